"""Sequences of an iteration where nobody says them, and how the answer says so."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from costmodels.model.model import Model
from costmodels.model.parameters import parameters
from costmodels.scenario import Scenario
from costmodels.stack.supports import Supports
from hardware.records import Cluster
from planner.request.fine_tune import FINE_TUNE_BATCH, fine_tune_batch, fine_tunes
from planner.request.pins import parse_pins
from planner.rules.divisors import divisors

if TYPE_CHECKING:
    from planner.request.request import PlanRequest

SMALLEST_BATCH_TOKENS = 4 * 2**20
BATCH_TOKENS_PER_GPU = 1024
NEAR_BATCH = 1.0 / 8.0
"""Share of the batch that a model was trained with by which a batch that the GPUs divide may differ from it."""
REPLICA_BYTES = 6.0
"""Of a parameter that every replica has, however its optimizer is sharded: weights in 16 bits, gradients in 32."""


def default_batch(gpus: int, seq_length: int) -> int:
    """Sequences per iteration where none are asked for: 1024 tokens per GPU, at least 4 Mi tokens.

    Always gpus times a power of two (halves included while they stay whole), so that every data-parallel
    degree that divides the GPUs divides the batch, or all but a small power of two of it.
    """
    wanted = max(SMALLEST_BATCH_TOKENS, BATCH_TOKENS_PER_GPU * gpus) / seq_length
    batch = gpus
    while batch < wanted:
        batch *= 2
    while batch % 2 == 0 and batch // 2 >= wanted:
        batch //= 2
    return batch


def near_batch(model: Model, gpus: int, seq_length: int) -> int | None:
    """Sequences per iteration nearly as the model was trained, so that data-parallel degrees divide them.

    None where nobody published it, where so many GPUs are given less than 1024 tokens each, who take a larger batch
    then, and where no multiple of the GPUs, or of a part of them that is smaller by a power of two, is near to it.
    """
    if model.batch_tokens is None or model.batch_tokens < BATCH_TOKENS_PER_GPU * gpus:
        return None
    wanted, unit = model.batch_tokens / seq_length, gpus
    while unit % 2 == 0 and unit > NEAR_BATCH * wanted:
        unit //= 2
    batch = unit * round(wanted / unit)
    return batch if abs(batch - wanted) <= NEAR_BATCH * wanted else None


def own_batch(request: PlanRequest, model: Model, cluster: Cluster, supports: Supports, seq_length: int) -> int | None:
    """Sequences per iteration exactly as the model was trained; None where that leaves a search no good degrees.

    Where the GPUs do not divide the batch, each replica has a multiple of what is left of them, ``rest``. That costs
    little where its memory takes that many GPUs anyway (in powers of two, as degrees mostly are), and an odd factor
    divides its layers. None too where a GPU has less than 1024 tokens, as in ``near_batch``.
    """
    tokens = model.batch_tokens or 0
    if tokens < BATCH_TOKENS_PER_GPU * request.gpus or tokens % seq_length or len(cluster.groups) > 1:
        return None
    batch, memory = tokens // seq_length, cluster.groups[0].accelerator.memory
    rest, needed = request.gpus // math.gcd(request.gpus, batch), REPLICA_BYTES * parameters(model) / memory
    if rest == 1:
        return batch
    odd = rest // (rest & -rest)
    if model.moe or rest > (needed if odd == 1 else 2.0 ** math.ceil(math.log2(needed))):
        return None
    pinned = _pinned_ranks(request)
    if pinned is not None:
        return batch if pinned % rest == 0 else None
    even = odd == 1 or _has_even_stages(model.num_layers, request.gpus, odd, needed)
    return batch if supports.ends_as_layers and even else None


def _pinned_ranks(request: PlanRequest) -> int | None:
    """GPUs of a replica that a request pins, others free or 1; None where it pins no degree of parallelism."""
    pins = parse_pins(request.pins)
    values = [pins[axis].values for axis in ("tp", "cp", "pp", "dp") if axis in pins]
    return math.prod(one[0] for one in values if len(one) == 1 and "dp" not in pins) if values else None


def _has_even_stages(layers: int, gpus: int, odd: int, needed: float) -> bool:
    """Whether equal stages, embedding and head a layer each or none, hold a replica with two tensor ranks."""
    counts = {*divisors(layers), *divisors(layers + 2)}
    return any(count % odd == 0 and gpus % count == 0 and 2 * count >= needed for count in counts)


def usual_batch(request: PlanRequest, model: Model, cluster: Cluster, supports: Supports, seq_length: int) -> int:
    """Sequences per iteration where none are asked for: a fine-tune's, the model's own, or by a rule of tokens."""
    gpus = request.gpus
    if fine_tunes(request):
        return fine_tune_batch(gpus)
    own = own_batch(request, model, cluster, supports, seq_length)
    return own or near_batch(model, gpus, seq_length) or default_batch(gpus, seq_length)


def describe_batch(request: PlanRequest, scenario: Scenario) -> str:
    """How many sequences are taken unasked, and where the number is from, with the rounding if there is any."""
    rule = f"a fine-tune: {FINE_TUNE_BATCH} or more" if fine_tunes(request) else _rule(scenario)
    what = "sequences" if scenario.task.sequences == 1 else "pairs"
    return f"global batch {scenario.global_batch_size} {what} ({rule})"


def _rule(scenario: Scenario) -> str:
    """Where the batch of a pretraining is from, with the rounding where it made a difference."""
    model, batch = scenario.model, scenario.global_batch_size
    exact = batch * scenario.seq_length == model.batch_tokens
    if model.batch_tokens and (exact or batch == near_batch(model, scenario.gpus, scenario.seq_length)):
        plain = exact and scenario.seq_length == model.seq_length
        said = "" if plain else f", {model.batch_tokens / 1e6:.3g} M tokens"
        return f"the batch it was trained with{said}{'' if exact else ', as near as the GPUs divide'}"
    wanted = max(SMALLEST_BATCH_TOKENS, BATCH_TOKENS_PER_GPU * scenario.gpus) / scenario.seq_length
    rule = "1024 tokens per GPU, at least 4 Mi in all"
    if batch < wanted + 1.0:
        return rule
    return f"{rule}: {math.ceil(wanted)}, up to a power of two times the {scenario.gpus:,} GPUs or a part of them"
