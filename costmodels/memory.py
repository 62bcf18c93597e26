"""Bytes on every stage's busiest rank: states, activations in flight, logits, buffers.

A stage with n layers of which r are recomputed, c micro-batches in flight, needs

    n state + c ((n - r) stored + r checkpoint) + [r > 0] working + what its embedding or head adds

which is linear in n and r: the same numbers bound the search and constrain the stage solver.

[LamyPoirier22]: J. Lamy-Poirier, "Breadth-First Pipeline Parallelism", arXiv 2211.05953, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.blocks import attention_kept
from costmodels.context import exchange_bytes, repeated_bytes
from costmodels.experts import expert_activation_bytes, expert_parameters_per_rank, expert_shards
from costmodels.kernels import WORD
from costmodels.loss import logit_bytes
from costmodels.modules import module_bytes, picked
from costmodels.offload import ACTIVATIONS, EVERYTHING, host_bytes, host_room, share_offloaded
from costmodels.optimizers import kept_bytes, optimizer_of
from costmodels.passes import region_tokens, tokens_per_rank
from costmodels.pieces import copies, ends, of_both_ways
from costmodels.scenario import REDUCED, Scenario
from costmodels.schedules import SCHEDULES
from costmodels.sharded import GRADIENTS, PARAMETERS, by_chunk, second_shards
from costmodels.sizes import (
    embedding_parameters_per_rank,
    head_parameters_per_rank,
    layer_parameters_per_rank,
    padded_vocabulary_rows,
)
from costmodels.split import even_layers
from costmodels.strategy import SCHEDULE_NAMES, Bools, Floats, Ints, Recompute, Strategies

_KEPT_OF_EXPERTS = {"attention": 1.0, "operators": 0.5, "projections": 0.0, "up-projections": 1.0}
"""Share of the experts' activations that each kind of selective recomputation keeps."""
OFFLOADED_LAYERS = 2.0
"""Layers whose activations are on the device although they are offloaded: the running one, and one on its way."""
PREFETCHED_LAYERS = 2.0
"""Layers whose parameters are gathered at once under ZeRO stage 3: the running one and the prefetched one."""


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes per parameter of one rank, arrays (N,)."""

    weights: Floats
    gradients: Floats
    optimizer: Floats

    @property
    def total(self) -> Floats:
        """All three."""
        return self.weights + self.gradients + self.optimizer

    def take(self, rows: NDArray[Any]) -> StateBytes:
        """The given rows (an index or mask)."""
        return StateBytes(self.weights[rows], self.gradients[rows], self.optimizer[rows])


@dataclass(frozen=True, slots=True)
class RowBytes:
    """What a stage's memory is composed of, arrays (N,), bytes on one rank."""

    state: StateBytes
    """Per parameter."""
    layer_parameters: Floats
    """Of an average layer, routed experts left out."""
    expert_parameters: Floats
    """Routed experts of an average layer."""
    expert_state: StateBytes
    """Per parameter of an expert, which fewer ranks share."""
    embedding_parameters: Floats
    head_parameters: Floats
    edges: Floats
    """Optimizer bytes per parameter that embedding and head keep beyond a layer's (Muon)."""
    stored: Floats
    """Activations of one layer kept for one micro-batch."""
    checkpoint: Floats
    """The same when the layer is recomputed: its input."""
    working: Floats
    """One layer's activations while it is recomputed."""
    embedding_activation: Floats
    """Per micro-batch in flight on the first stage."""
    logits: Floats
    """At the loss, once."""
    ahead: Floats
    """States of the experts of multi-token-prediction layers, and those layers' activations, on the last stage."""
    everywhere: Floats
    """On every stage beside its layers: parameters gathered for the moment under ZeRO stage 3, and the stage's
    share of a vocabulary that is split over the stages."""

    def take(self, rows: NDArray[Any]) -> RowBytes:
        """The given rows (an index or mask)."""
        states = ("state", "expert_state")
        arrays = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name not in states}
        return RowBytes(state=self.state.take(rows), expert_state=self.expert_state.take(rows), **arrays)

    @property
    def layer_state(self) -> Floats:
        """Weights, gradients and optimizer state of one layer."""
        return self.layer_parameters * self.state.total + self.expert_parameters * self.expert_state.total

    @property
    def first(self) -> Floats:
        """States of the embedding."""
        return self.embedding_parameters * (self.state.total + self.edges)

    @property
    def last(self) -> Floats:
        """States of the head and of layers that predict further tokens, and the logits."""
        return self.head_parameters * (self.state.total + self.edges) + self.ahead + self.logits


def row_bytes(rows: Strategies, scenario: Scenario) -> RowBytes:
    """The memory of N strategies, down to the quantities that a split of layers over stages multiplies."""
    stack, region = scenario.stack, region_tokens(rows, scenario)
    stored = layer_activation_bytes(rows, scenario)
    here = rows.offload != ACTIVATIONS  # what goes to the host passes through room for two layers
    passing = np.where(here, 0.0, OFFLOADED_LAYERS * kept_bytes_of_layer(rows, scenario))
    passing = passing + repeated_module_bytes(rows, scenario)
    layer = layer_parameters_per_rank(rows, scenario)
    h = float(scenario.model.hidden_size)
    tokens = tokens_per_rank(rows, scenario)
    logits = logit_bytes(tokens, padded_vocabulary_rows(rows, scenario) / rows.tp, scenario)
    logits = logits + 2.0 * WORD * h * region
    state, experts = state_bytes(rows, scenario), expert_parameters_per_rank(rows, scenario)
    expert = state_bytes(rows, scenario, expert_shards(rows))
    embedding = embedding_parameters_per_rank(rows, scenario)
    head = head_parameters_per_rank(rows, scenario)
    at_ends = 1.0 - rows.vocabulary
    chosen = optimizer_of(stack)
    twice = copies(rows)
    edges = (chosen.edge_moments - chosen.moments) / np.where(rows.zero_stage >= 1, rows.sharding_degree * twice, 1)
    edges = edges * (1.0 - share_offloaded(rows, scenario))
    shared = ((embedding + head) * (state.total + edges) + logits) / rows.pp * (1.0 - at_ends)
    return RowBytes(
        state=state,
        layer_parameters=layer,
        expert_parameters=experts,
        expert_state=expert,
        embedding_parameters=embedding * at_ends,
        head_parameters=head * at_ends,
        edges=edges,
        stored=np.where(here, stored, 0.0),
        checkpoint=np.where(here, WORD * h * region, 0.0),
        working=stored,
        embedding_activation=(WORD + (1.0 if stack.dropout else 0.0)) * h * region,
        logits=logits * at_ends,
        ahead=scenario.model.mtp_layers * (experts * expert.total + held_ahead(rows) * stored),
        everywhere=shared
        + passing
        + exchange_bytes(rows, scenario)
        + _second_copy(rows, scenario, layer)
        + whole_bytes(rows, scenario, layer + experts),
    )


def _second_copy(rows: Strategies, scenario: Scenario, layer: Floats) -> Floats:
    """A second, sharded copy of the fullest even stage's layers within every innermost domain [Wang23], (N,)."""
    third = rows.zero_stage == PARAMETERS
    if not scenario.stack.second_shard or not third.any():
        return np.zeros(len(rows))
    held = copies(rows) * even_layers(scenario.model.num_layers, rows).high * layer
    return np.where(third, WORD * held / second_shards(rows, scenario), 0.0)


def whole_bytes(rows: Strategies, scenario: Scenario, layer: Floats) -> Floats:
    """Bytes of parameters and gradients that are whole for the moment, of ``layer`` parameters a layer, (N,).

    ZeRO stage 3 gathers the running layer and the next; breadth first they are chunks, and stages 2 and 3 add up a
    chunk's gradients over the micro-batches while those of the chunk before are scattered [LamyPoirier22]. Chunks
    are those of the even split.
    """
    third, chunked = rows.zero_stage == PARAMETERS, by_chunk(rows)
    chunk = np.ceil(even_layers(scenario.model.num_layers, rows).high / rows.vpp)
    gathered = np.where(third, PREFETCHED_LAYERS * WORD * layer * np.where(chunked, chunk, 1.0), 0.0)
    added = PREFETCHED_LAYERS * scenario.stack.gradient_bytes * layer * chunk
    return gathered + np.where(chunked & (rows.zero_stage >= GRADIENTS), added, 0.0)


def state_bytes(rows: Strategies, scenario: Scenario, shards: Ints | None = None) -> StateBytes:
    """Bytes per parameter whose states ``shards`` ranks share (the sharding degree, unless said), arrays (N,).

    ZeRO 1 shards the optimizer, 2 the gradients too, 3 the weights too [Rajbhandari20]. Where a pipeline holds every
    parameter twice, the two copies are replicas of each other and share what is sharded.
    """
    stack, z = scenario.stack, rows.zero_stage
    shard = (rows.sharding_degree if shards is None else shards) * copies(rows)
    fp32 = scenario.precision == "fp32"
    weights, sharded = 4.0 if fp32 else WORD, 4.0 if fp32 else float(stack.weight_bytes)
    if scenario.precision in REDUCED:
        narrow = stack.fp8_param_gather and stack.weight_bytes == WORD
        more = scenario.recipe.word - WORD if narrow else stack.reduced_weight_bytes
        weights, sharded = weights + more, sharded + more
    kept = kept_bytes(stack, fp32=fp32)
    alone = optimizer_of(stack).moments if stack.weight_bytes > WORD else kept
    optimizer = np.where(z >= 3, alone, kept)  # sharded weights in fp32 are their own master
    left = np.where(rows.offload == EVERYTHING, 0.0, 1.0)
    return StateBytes(
        weights=left * np.where(z >= 3, sharded / shard, weights),
        gradients=left * np.where(z >= 2, stack.gradient_bytes / shard, stack.gradient_bytes),
        optimizer=np.where(z >= 1, optimizer / shard, optimizer) * (1.0 - share_offloaded(rows, scenario)),
    )


def layer_activation_bytes(rows: Strategies, scenario: Scenario) -> Floats:
    """Bytes that one layer keeps of one micro-batch for its backward pass, shape (N,).

    Kept whole, or split over the tensor ranks by sequence parallelism: the inputs of norms and of the
    column-parallel products, dropout masks; split always: queries, keys, values, scores, the inputs of the
    row-parallel products. For a GPT block this is s b h (10 + 24/t + 5 a s / (h t)) [Korthikanti22].
    """
    model, stack = scenario.model, scenario.stack
    h = float(model.hidden_size)
    mask = 1.0 if stack.dropout else 0.0
    branches = 1.0 if model.parallel_block else 2.0
    saved = (
        scenario.recipe.word if scenario.precision in REDUCED else WORD
    )  # inputs of products are kept as they were multiplied
    whole: Any = model.num_norms * WORD * h + branches * saved * h + 2.0 * mask * h
    dense = 1.0 - model.num_moe_layers / model.num_layers
    ffn = WORD * model.fc1_width + saved * model.ffn_hidden_size
    inner: Any = WORD * (model.qkv_width + model.attention_output_width) + dense * ffn
    if model.mla is not None:
        whole += WORD * (model.mla.q_down_width + model.mla.kv_down_width)
    if model.localized_filtering:
        inner += saved * (model.hidden_size / 2 + 2 * h)
    flash = scenario.rates.attention is not None
    scores: Any = attention_kept(scenario)
    selective = (rows.recompute == Recompute.SELECTIVE) & (rows.recompute_modules == 0)
    if stack.selective == "attention":
        scores = scores if flash else np.where(selective, 0.0, scores)
    elif stack.selective == "operators":
        whole, inner = np.where(selective, whole / 2.0, whole), np.where(selective, inner / 2.0, inner)
    elif stack.selective == "up-projections":
        kept_inside = WORD * model.attention_output_width + dense * saved * model.fc1_width
        kept_inside += 0.0 if model.mla else WORD * model.qkv_width
        whole, inner = np.where(selective, whole - branches * saved * h, whole), np.where(selective, kept_inside, inner)
    else:
        whole, inner = np.where(selective, WORD * h, whole), np.where(selective, WORD * model.qkv_width, inner)
    kept = region_tokens(rows, scenario) * whole + tokens_per_rank(rows, scenario) * (inner + scores) / rows.tp
    kept = kept + repeated_bytes(rows, scenario) - repeated_module_bytes(rows, scenario)
    if not model.num_moe_layers:
        return kept
    share = np.where(selective, _KEPT_OF_EXPERTS[stack.selective], 1.0)
    repeated = selective & (stack.selective == "up-projections")
    return kept + (1.0 - dense) * share * expert_activation_bytes(rows, scenario, saved, repeated=repeated)


def kept_bytes_of_layer(rows: Strategies, scenario: Scenario) -> Floats:
    """Bytes that one layer keeps of one micro-batch, on the device or the host; its input where recomputed whole."""
    checkpoint = WORD * scenario.model.hidden_size * region_tokens(rows, scenario)
    return np.where(rows.recompute >= Recompute.FULL, checkpoint, layer_activation_bytes(rows, scenario))


def host_fits(rows: Strategies, scenario: Scenario) -> Bools:
    """Whether what is offloaded fits the host's memory, shape (N,)."""
    if not rows.offload.any():
        return np.ones(len(rows), dtype=np.bool_)
    return host_need(rows, scenario) <= host_room(scenario)


def host_need(rows: Strategies, scenario: Scenario) -> Floats:
    """Bytes of the host's memory that one device's offloaded data take, shape (N,)."""
    held = in_flight(rows, np.zeros_like(rows.pp))
    return host_bytes(rows, scenario, kept_bytes_of_layer(rows, scenario), held)


def repeated_module_bytes(rows: Strategies, scenario: Scenario) -> Floats:
    """Bytes of one layer and micro-batch that named modules are repeated for instead of kept, shape (N,)."""
    if not rows.recompute_modules.any():
        return np.zeros(len(rows))
    return picked(rows.recompute_modules, module_bytes(rows, scenario))


def in_flight(rows: Strategies, stage: Ints) -> Floats:
    """Micro-batches whose activations a stage holds at the worst moment, in whole stages, shape (N,)."""
    held = np.ones(len(rows))
    for code, name in enumerate(SCHEDULE_NAMES):
        mine = rows.schedule == code
        if mine.any():
            count = SCHEDULES[name].in_flight(rows.pp, rows.num_microbatches, rows.vpp, stage)
            held = np.where(mine, count, held)
    return held


def held_ahead(rows: Strategies) -> Floats:
    """Micro-batches whose activations the layers that predict further tokens hold, shape (N,).

    They stand behind the last chunk, which passes a micro-batch back as soon as it came; under GPipe and breadth first
    all come first.
    """
    everything = (rows.schedule == SCHEDULE_NAMES.index("gpipe")) | by_chunk(rows)
    return np.where(everything, rows.num_microbatches, 1).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of one strategy by cause, one array element per stage, shape (pp,)."""

    weights: NDArray[np.float64]
    gradients: NDArray[np.float64]
    optimizer: NDArray[np.float64]
    activations: NDArray[np.float64]
    logits: NDArray[np.float64]
    slack: NDArray[np.float64]
    reserved: NDArray[np.float64]

    @property
    def allocated(self) -> NDArray[np.float64]:
        """What the framework's allocator hands out at its peak."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits

    @property
    def total(self) -> NDArray[np.float64]:
        """What the device must have."""
        return self.allocated + self.slack + self.reserved


def footprint(
    rows: Strategies, memory: RowBytes, scenario: Scenario, *, row: int, layers: Ints, recomputed: Ints
) -> Footprint:
    """The memory of every stage of one row under a given split, arrays (pp,)."""
    pp = len(layers)
    stages = np.arange(pp)
    one = rows.take(np.full(pp, row))
    held, twice = in_flight(one, stages), float(copies(one)[0])
    first, last = ends(one, stages)
    passed, again = of_both_ways(layers, twice), of_both_ways(recomputed, twice)
    params = (
        twice * passed * memory.layer_parameters[row]
        + first * memory.embedding_parameters[row]
        + last * memory.head_parameters[row]
    )
    experts = (twice * passed + last * scenario.model.mtp_layers) * memory.expert_parameters[row]
    state, expert_state = memory.state, memory.expert_state
    activations = held * (
        (passed - again) * memory.stored[row]
        + again * memory.checkpoint[row]
        + first * memory.embedding_activation[row] / twice
    )
    activations = activations + last * scenario.model.mtp_layers * held_ahead(one) * memory.stored[row]
    activations = activations + (again > 0) * memory.working[row]
    weights = params * state.weights[row] + experts * expert_state.weights[row] + memory.everywhere[row]
    gradients = params * state.gradients[row] + experts * expert_state.gradients[row]
    optimizer = params * state.optimizer[row] + experts * expert_state.optimizer[row]
    edges = first * memory.embedding_parameters[row] + last * memory.head_parameters[row]
    optimizer = optimizer + edges * memory.edges[row]
    logits = last * memory.logits[row]
    slack = scenario.stack.slack * (weights + gradients + optimizer + activations + logits)
    return Footprint(weights, gradients, optimizer, activations, logits, slack, np.full(pp, scenario.stack.reserved))


def even_peaks(rows: Strategies, memory: RowBytes, num_layers: int) -> Floats:
    """Allocated bytes of the worst stage under the even split of ``pricing.even_assignment``, shape (N,).

    The worst is the first, the second (most micro-batches in flight among the fuller ones) or the last.
    """
    pp, split = rows.pp, even_layers(num_layers, rows)
    layers = (split.first, split.high, split.last)
    full = rows.recompute >= Recompute.FULL
    kept = np.where(full, memory.checkpoint, memory.stored)
    working = np.where(full, memory.working, 0.0)
    worst, twice = np.zeros(len(rows)), copies(rows)
    for place, held in enumerate(layers):
        stage = np.zeros_like(pp) if place == 0 else np.minimum(1, pp - 1) if place == 1 else pp - 1
        count = in_flight(rows, stage)
        first, last = ends(rows, stage)
        needed = held * (twice * memory.layer_state + count * kept)
        needed = needed + first * (memory.first + count * memory.embedding_activation / twice) + last * memory.last
        worst = np.maximum(worst, np.where((place == 1) & (pp <= 2), 0.0, needed))
    return worst + working + memory.everywhere


def memory_limit(scenario: Scenario) -> float:
    """Bytes that the allocator may hand out: usable memory less the reserve, less the allocator's slack."""
    usable = scenario.group.accelerator.usable_memory
    return (usable - scenario.stack.reserved) / (1.0 + scenario.stack.slack)
