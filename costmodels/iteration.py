"""One training iteration: seconds per term, from layers to stages to the pipeline.

With t_s the forward and backward seconds of stage s for one micro-batch, m micro-batches and v chunks a
stage, the pipeline takes ``m max t + (sum t - max t) / v`` and the iteration adds what happens once per
step. A stage's t_s is linear in its layers and recomputed layers; that is all the stage solver needs.

[DeepSeek24]: DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 3.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.blocks import embedding_seconds, further_token_projection, head_seconds, layer_seconds
from costmodels.exchange import hop_seconds, optimizer_seconds, step_traffic
from costmodels.memory import kept_bytes_of_layer
from costmodels.modules import module_seconds, picked
from costmodels.offload import ACTIVATIONS, layer_offload_seconds, step_offload_seconds
from costmodels.passes import Passes
from costmodels.pieces import copies, ends, joined
from costmodels.scenario import Scenario
from costmodels.schedule_limits import no_pairs
from costmodels.schedules import SCHEDULES
from costmodels.sharded import slowdown
from costmodels.split import even_layers
from costmodels.stack import Stack
from costmodels.strategy import SCHEDULE_NAMES, SHARDING_INSIDE, Floats, Recompute, Strategies

FILLING = tuple(name for name, schedule in SCHEDULES.items() if schedule.splits_backward)
"""Schedules whose idle time depends on how long weight gradients take."""

PAIRING = tuple(name for name, schedule in SCHEDULES.items() if schedule.pairs is not no_pairs)
"""Schedules that run a forward beside a backward pass of the other direction."""

BLOCK_AXES = ("tp", "cp", "cp_kind", "micro_batch_size", "sequence_parallel", "ep", "etp")
"""All that the cost of a layer, the embedding and the head depends on."""


@dataclass(frozen=True, slots=True)
class RowSeconds:
    """What an iteration is composed of, arrays (N,), seconds per micro-batch unless said otherwise."""

    layer: Floats
    """One layer, forward and backward, nothing recomputed, exposed communication included."""
    forward: Floats
    """One layer forward without tensor-parallel traffic: what data-parallel traffic can hide behind."""
    backward: Floats
    layer_tp: Floats
    layer_cp: Floats
    layer_ep: Floats
    recompute: Floats
    """One recomputed layer's second forward pass, communication included."""
    weight: Floats
    """One layer's weight gradients, included in ``layer``."""
    selective: Floats
    """Included in ``layer`` where recomputation is selective."""
    embedding: Floats
    head: Floats
    hop: Floats
    """Sends and receives of one stage."""
    spread: Floats
    """Vocabulary work of every stage, where it is split over the stages."""
    host: Floats
    """Host time of one stage."""
    data_parallel: Floats
    """Per iteration: exposed gradient and parameter traffic."""
    optimizer: Floats
    """Per iteration."""
    overhead: Floats
    """Per iteration: host, data."""
    bubble: Floats
    """Share of the other stages' seconds that the slowest stage waits: 1 / v, less where weight gradients fill in."""
    layer_offload: Floats
    """Exposed traffic to and from the host, included in ``layer``."""
    offload: Floats
    """Per iteration: exposed step on the host, and traffic of states."""
    straggler: Floats
    """Share by which the slowest of all nodes stretches the pipeline."""

    def take(self, rows: NDArray[Any]) -> RowSeconds:
        """The given rows (an index or mask)."""
        return RowSeconds(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def row_seconds(rows: Strategies, scenario: Scenario) -> RowSeconds:
    """Price N strategies down to the quantities that a split of layers over stages multiplies."""
    return with_step(rows, scenario, core_seconds(rows, scenario))


def core_seconds(rows: Strategies, scenario: Scenario) -> RowSeconds:
    """All that does not depend on how states are sharded; the terms once per iteration are left at zero."""
    block, inverse = rows.distinct(*BLOCK_AXES)
    layer = layer_seconds(block, scenario)
    once = {
        "forward": layer.compute.forward + layer.cp.forward,
        "backward": layer.compute.backward + layer.cp.backward,
        "tp": sum_passes(layer.tp),
        "cp": sum_passes(layer.cp),
        "ep": sum_passes(layer.ep),
        "selective": layer.repeated(scenario.stack.selective),
        "again": layer.compute.forward + layer.communication.forward,
        "weight": layer.weight_gradients(scenario.rates.matmul.wgrad_ratio),
        "embedding": sum_passes(embedding_seconds(block, scenario)),
        "head": sum_passes(head_seconds(block, scenario)),
    }
    ahead = layer.compute + layer.communication + further_token_projection(block, scenario)
    once["head"] = once["head"] + scenario.model.mtp_layers * sum_passes(ahead)
    part = {name: values[inverse] for name, values in once.items()}
    selective = np.where(rows.recompute == Recompute.SELECTIVE, part["selective"], 0.0)
    if rows.recompute_modules.any():
        modules = module_seconds(block, scenario, layer)
        named = picked(rows.recompute_modules, {name: values[inverse] for name, values in modules.items()})
        selective = np.where(rows.recompute_modules > 0, named, selective)
    stack, nothing = scenario.stack, np.zeros(len(rows))
    spread = rows.vocabulary.astype(np.float64)
    nodes = max(scenario.gpus / scenario.group.gpus_per_node, 1.0)
    offloaded = nothing
    if (rows.offload == ACTIVATIONS).any():
        window = Passes(part["forward"], part["backward"])
        offloaded = layer_offload_seconds(rows, scenario, kept_bytes_of_layer(rows, scenario), window)
    saved = hidden_experts(rows, stack, traffic=part["ep"], window=part["forward"] + part["backward"])
    head = part["head"] - scenario.model.mtp_layers * saved
    layer_total = part["forward"] + part["backward"] + part["tp"] + part["ep"] - saved + selective + offloaded
    total = layer_total + np.where(rows.recompute >= Recompute.FULL, part["again"], 0.0)
    return RowSeconds(
        layer=layer_total,
        forward=part["forward"],
        backward=part["backward"],
        layer_tp=part["tp"],
        layer_cp=part["cp"],
        layer_ep=part["ep"] - saved,
        recompute=part["again"],
        weight=part["weight"],
        selective=selective,
        embedding=part["embedding"] * (1.0 - spread),
        head=head * (1.0 - spread),
        spread=(part["embedding"] + head) / rows.pp * spread,
        hop=hop_seconds(rows, scenario),
        host=nothing + stack.micro_batch_overhead * rows.vpp,
        data_parallel=nothing,
        optimizer=nothing,
        layer_offload=offloaded,
        offload=nothing,
        overhead=nothing + stack.iteration_overhead,
        bubble=bubble_share(rows, stack, forward=part["again"] - saved / 2.0, total=total, weight=part["weight"]),
        straggler=nothing + straggler_share(stack, nodes),
    )


def straggler_share(stack: Stack, nodes: float) -> float:
    """Share by which the slowest of that many nodes stretches the pipeline: the mean of a normal maximum."""
    return float(stack.straggler * np.sqrt(2.0 * np.log(max(nodes, 1.0))))


def hidden_experts(rows: Strategies, stack: Stack, *, traffic: Floats, window: Floats) -> Floats:
    """Seconds of one layer's dispatch and combine that lengthen nothing, on average over the micro-batches, (N,).

    Where a forward runs beside a backward pass, the traffic of both hides behind the computation of both, up to its
    length and at the price of ``overlap_slowdown``; the passes that fill and drain the pipeline have no partner
    [DeepSeek24]. What a recomputed layer exchanges again is not hidden.
    """
    share = np.zeros(len(rows))
    for name in PAIRING if stack.overlap.pairs else ():
        mine = rows.schedule == SCHEDULE_NAMES.index(name)
        pairs = SCHEDULES[name].pairs(rows.pp, rows.num_microbatches, rows.vpp)
        share = np.where(mine, pairs / rows.num_microbatches, share)
    behind = np.minimum(traffic, window)
    return share * (behind - slowdown(behind, stack))


def bubble_share(rows: Strategies, stack: Stack, *, forward: Floats, total: Floats, weight: Floats) -> Floats:
    """Share of the other stages' seconds per micro-batch that the slowest stage idles once an iteration, (N,).

    ``forward``, ``total`` and ``weight`` are seconds of one layer: its forward pass, everything, its weight
    gradients. For the schedules that do not tell weight gradients apart the share is 1 / v.
    """
    share = 1.0 / rows.vpp
    for code, name in enumerate(SCHEDULE_NAMES):
        mine = (rows.schedule == code) & (rows.pp > 1)
        if name in FILLING and mine.any():
            entry = SCHEDULES[name]
            drain = entry.drain if stack.post_validation else entry.drain_at_barrier
            p = np.maximum(rows.pp, 2)
            idle = drain(p, rows.num_microbatches, rows.vpp, forward, total - forward - weight, weight)
            share = np.where(mine, idle / ((p - 1) * total), share)
    return share


def with_step(rows: Strategies, scenario: Scenario, core: RowSeconds) -> RowSeconds:
    """The same, with what depends on the sharding.

    That is data-parallel traffic, the optimizer, what a step moves to the host, and how far stages lie apart where the
    ranks that share their states lie between them.
    """
    if (rows.rank_order == SHARDING_INSIDE).any():
        core = replace(core, hop=hop_seconds(rows, scenario))
    layer = Passes(core.forward, core.backward)
    return replace(
        core,
        data_parallel=step_traffic(rows, scenario, layer).total,
        optimizer=optimizer_seconds(rows, scenario),
        offload=step_offload_seconds(rows, scenario, layer),
    )


def sum_passes(passes: Passes) -> Floats:
    """Forward and backward together."""
    return passes.forward + passes.backward


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Exposed seconds of one iteration by cause, arrays (N,); the slowest stage's where stages differ."""

    compute: Floats
    recompute: Floats
    tp: Floats
    cp: Floats
    ep: Floats
    pp: Floats
    bubble: Floats
    dp: Floats
    optimizer: Floats
    host: Floats
    straggler: Floats
    offload: Floats

    @property
    def total(self) -> Floats:
        """Seconds of the iteration."""
        return np.sum([getattr(self, field.name) for field in fields(self)], axis=0)

    def row(self, index: int) -> dict[str, float]:
        """One iteration's terms by name."""
        return {field.name: float(getattr(self, field.name)[index]) for field in fields(self)}


def stage_extras(rows: Strategies, seconds: RowSeconds, stages: NDArray[np.int64]) -> Floats:
    """Seconds per micro-batch that stages spend beside their layers; both are of shape (N, P)."""
    side = np.where(rows.pp > 1, seconds.hop, 0.0) + seconds.host + seconds.spread
    first, last = ends(rows, stages)
    embedding, head = ((x / copies(rows))[:, None] for x in (seconds.embedding, seconds.head))
    return side[:, None] + first * embedding + last * head


def even_split(rows: Strategies, seconds: RowSeconds, num_layers: int, recomputed: Floats) -> tuple[Floats, Floats]:
    """(slowest stage, all stages) seconds per micro-batch under the best even-as-possible split, (N,).

    ``recomputed`` is the share of layers that are recomputed. The split is ``split.even_layers``.
    """
    unit = seconds.layer + recomputed * seconds.recompute
    p, held = rows.pp, even_layers(num_layers, rows)
    side = np.where(p > 1, seconds.hop, 0.0) + seconds.host + seconds.spread
    both = held.first * unit + (seconds.embedding + seconds.head) / copies(rows)
    apart = np.maximum(held.first * unit + seconds.embedding, held.last * unit + seconds.head)
    inner = np.where(p > 1, held.high * unit, 0.0)
    slowest = np.maximum(np.where(joined(rows), both, apart), inner) + side
    total = num_layers * unit + seconds.embedding + seconds.head + p * side
    return slowest, total


def compose(rows: Strategies, seconds: RowSeconds, slowest: Floats, total: Floats) -> Floats:
    """Seconds of the iteration from the slowest stage's and all stages' seconds per micro-batch, (N,)."""
    pipeline = rows.num_microbatches * slowest + (total - slowest) * seconds.bubble
    once = seconds.data_parallel + seconds.optimizer + seconds.offload + seconds.overhead
    return pipeline * (1.0 + seconds.straggler) + once


def breakdown(
    rows: Strategies,
    seconds: RowSeconds,
    *,
    slowest: Floats,
    total: Floats,
    layers: Floats,
    recomputed: Floats,
) -> Breakdown:
    """The iteration term by term; ``layers`` and ``recomputed`` are those of the slowest stage, arrays (N,)."""
    m = rows.num_microbatches
    bubble = (total - slowest) * seconds.bubble
    hops = np.where(rows.pp > 1, seconds.hop, 0.0)
    again = recomputed * seconds.recompute + layers * seconds.selective
    tp, cp, ep = (layers * part for part in (seconds.layer_tp, seconds.layer_cp, seconds.layer_ep))
    offload = layers * seconds.layer_offload
    compute = slowest - hops - seconds.host - again - tp - cp - ep - offload
    return Breakdown(
        compute=m * compute,
        recompute=m * again,
        tp=m * tp,
        cp=m * cp,
        ep=m * ep,
        pp=(m * hops).astype(np.float64),
        bubble=bubble,
        dp=seconds.data_parallel,
        optimizer=seconds.optimizer,
        host=seconds.overhead + m * seconds.host,
        straggler=(m * slowest + bubble) * seconds.straggler,
        offload=m * offload + seconds.offload,
    )
