"""Traffic once per micro-batch between stages, and once per iteration between data-parallel ranks.

[LamyPoirier22]: J. Lamy-Poirier, "Breadth-First Pipeline Parallelism", arXiv 2211.05953, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.collectives import all_reduce_seconds, broadcast_seconds, gather_seconds, send_seconds
from costmodels.experts import expert_data_group, expert_parameters_per_rank, expert_shards
from costmodels.kernels import WORD, stream_seconds
from costmodels.passes import Passes, tokens_per_rank
from costmodels.pieces import copies, folded, joined
from costmodels.placement import Group, group_of, split_group, strides
from costmodels.scenario import Scenario
from costmodels.sizes import heaviest_stage_parameters, layer_parameters_per_rank, padded_vocabulary_rows
from costmodels.split import even_layers
from costmodels.stack import Stack
from costmodels.strategy import SCHEDULE_NAMES, Bools, Floats, Strategies


def hop_seconds(rows: Strategies, scenario: Scenario) -> Floats:
    """Exposed seconds that a stage spends per micro-batch on sends and receives, forward and backward, (N,).

    Every chunk passes one activation on and one gradient back; with scatter/gather or sequence parallelism
    each tensor rank sends its share [Narayanan21]. ``overlap.pp`` = 1 is a send that stops both stages. Where it
    delays the receiver alone, the event simulation shows about 0.9 of it in 1F1B, which has no slack, and 0.1 to 0.4
    in schedules that have some (``tests/costmodels/test_interleaving.py``).
    """
    stack = scenario.stack
    size = WORD * tokens_per_rank(rows, scenario) * scenario.model.hidden_size
    split = (rows.sequence_parallel > 0) | stack.scatter_gather
    size = np.where(split, size / rows.tp, size)
    one = send_seconds(size, strides(rows)["pp"].astype(np.float64), rows.pp.astype(np.float64), scenario.group.tiers)
    exposed = np.where(rows.vpp > 1, stack.overlap.pp_interleaved, stack.overlap.pp)
    return 2.0 * rows.vpp * one * exposed / stack.communication_efficiency


@dataclass(frozen=True, slots=True)
class StepTraffic:
    """Exposed seconds once per iteration, arrays (N,)."""

    gradients: Floats
    parameters: Floats
    tied: Floats

    @property
    def total(self) -> Floats:
        """All three."""
        return self.gradients + self.parameters + self.tied


def step_traffic(rows: Strategies, scenario: Scenario, layer: Passes) -> StepTraffic:
    """Exposed data-parallel seconds of one iteration, for the stage with the most parameters.

    ZeRO 0 reduces gradients everywhere; 1 and 2 scatter them over the sharding group, reduce the shards over
    its replicas and gather the parameters; 3 gathers every layer twice a micro-batch and scatters its
    gradients, hidden behind the computation of the neighbouring layer [Rajbhandari20], [Zhao23]; breadth first,
    once an iteration and behind all micro-batches [LamyPoirier22]. ``layer``
    is the computation of one layer for one micro-batch.
    """
    group = group_of(rows, "cp", "dp")
    near, far = split_group(group, rows.sharding_degree)
    size = heaviest_stage_parameters(rows, scenario)
    split = even_layers(scenario.model.num_layers, rows)
    layers = copies(rows) * split.high
    window = (split.low * layer.forward, split.low * layer.backward)  # every stage has that much, however it is split
    once = _once_per_step(rows, scenario, size, group, near, far)
    if scenario.model.num_moe_layers:
        apart = _experts_once(rows, scenario, expert_layers(rows, scenario))
        once = (once[0] + apart[0], once[1] + apart[1])
    stack = scenario.stack
    once = (
        _exposed_once(once[0], window[1], rows, stack=stack, hidden=stack.overlap.gradients),
        _exposed_once(once[1], window[0], rows, stack=stack, hidden=stack.overlap.parameters),
    )
    if 3 in scenario.stack.zero_stages and (rows.zero_stage == 3).any():
        always = _every_micro_batch(rows, scenario, near, far, layer, layers)
        third = rows.zero_stage == 3
        once = (np.where(third, always[0], once[0]), np.where(third, always[1], once[1]))
    return StepTraffic(*once, tied=_tied_embedding(rows, scenario))


def _once_per_step(
    rows: Strategies,
    scenario: Scenario,
    size: Floats,
    group: Group,
    near: Group,
    far: Group,
) -> tuple[Floats, Floats]:
    stack, tiers = scenario.stack, scenario.group.tiers
    pieces = np.maximum(stack.collectives_per_layer * even_layers(scenario.model.num_layers, rows).high, 1)
    pace, size = pieces / stack.communication_efficiency, size / pieces
    whole = all_reduce_seconds(stack.reduce_bytes * size, group, tiers)
    scatter = gather_seconds(stack.reduce_bytes * size, near, tiers)
    replicas = all_reduce_seconds(stack.reduce_bytes * size / rows.sharding_degree, far, tiers)
    sharded = np.where(near.size > 1, scatter, 0.0) + np.where(far.size > 1, replicas, 0.0)
    alone = group.size <= 1
    gradients = np.where(alone, 0.0, np.where(rows.zero_stage == 0, whole, sharded)) * pace
    spread = broadcast_seconds if stack.parameter_exchange == "broadcast" else gather_seconds
    gather = np.where(near.size > 1, spread(WORD * size, near, tiers), 0.0) * pace
    parameters = np.where(rows.zero_stage == 0, 0.0, gather)
    return gradients, parameters


def expert_layers(rows: Strategies, scenario: Scenario) -> Floats:
    """Layers whose experts the fullest stage holds: those that predict further tokens are with the head, shape (N,)."""
    split, twice = even_layers(scenario.model.num_layers, rows), copies(rows)
    head = np.where(folded(rows), split.first, split.last)
    return np.maximum(twice * split.high, twice * head + scenario.model.mtp_layers)


def _experts_once(rows: Strategies, scenario: Scenario, layers: Floats) -> tuple[Floats, Floats]:
    """The same for routed experts, over the ranks that hold the same ones."""
    stack, tiers, group = scenario.stack, scenario.group.tiers, expert_data_group(rows)
    size = layers * expert_parameters_per_rank(rows, scenario)
    pace = (group.size > 1) / stack.communication_efficiency
    whole = all_reduce_seconds(stack.reduce_bytes * size, group, tiers)
    scatter, gather = (gather_seconds(width * size, group, tiers) for width in (stack.reduce_bytes, WORD))
    sharded = rows.zero_stage > 0
    return np.where(sharded, scatter, whole) * pace, np.where(sharded, gather, 0.0) * pace


def exposed(seconds: Floats, window: Floats, *, stack: Stack, hidden: bool) -> Floats:
    """What of a collective lengthens the iteration: all of it, or its first bucket and what outlasts the window.

    What is hidden slows the computation beside it.
    """
    if not hidden:
        return seconds
    first = stack.bucket_exposed * seconds
    rest = seconds - first
    return first + np.maximum(rest - window, 0.0) + slowdown(np.minimum(rest, window), stack)


def by_chunk(rows: Strategies) -> Bools:
    """Whether a chunk sees all its micro-batches before the next one starts, shape (N,) [LamyPoirier22]."""
    return rows.schedule == SCHEDULE_NAMES.index("breadth-first")


def _exposed_once(seconds: Floats, window: Floats, rows: Strategies, *, stack: Stack, hidden: bool) -> Floats:
    """``exposed``, where ``window`` is one micro-batch's pass.

    By chunks, all traffic but the outermost chunk's has the passes of all micro-batches through another chunk to
    hide behind.
    """
    v = rows.vpp.astype(np.float64)
    inner = exposed(seconds * (v - 1.0) / v, window * rows.num_microbatches * (v - 1.0) / v, stack=stack, hidden=hidden)
    outer = exposed(seconds / v, window / v, stack=stack, hidden=hidden)
    return np.where(by_chunk(rows), inner + outer, exposed(seconds, window, stack=stack, hidden=hidden))


def slowdown(hidden: Floats, stack: Stack) -> Floats:
    """Seconds by which ``hidden`` seconds of communication hold up the computation they run beside."""
    return hidden * stack.overlap_slowdown / (1.0 + stack.overlap_slowdown)


def _every_micro_batch(
    rows: Strategies, scenario: Scenario, near: Group, far: Group, layer: Passes, layers: Floats
) -> tuple[Floats, Floats]:
    """Exposed (backward, forward) seconds of ZeRO stage 3.

    What is gathered is copied out of the communication buffer in front of every layer, and gradients are cast
    and copied into it, on the stream that computes. By chunks, a layer is gathered once for all micro-batches, which
    it then hides behind.
    """
    once = by_chunk(rows)
    layer = Passes(*(np.where(once, rows.num_microbatches, 1) * x for x in (layer.forward, layer.backward)))
    stack, tiers = scenario.stack, scenario.group.tiers
    pace = 1.0 / stack.communication_efficiency
    size = layer_parameters_per_rank(rows, scenario)
    gather = np.where(near.size > 1, gather_seconds(WORD * size, near, tiers), 0.0) * pace
    scatter = np.where(near.size > 1, gather_seconds(stack.reduce_bytes * size, near, tiers), 0.0) * pace
    shard = stack.reduce_bytes * size / rows.sharding_degree
    scatter = scatter + np.where(far.size > 1, all_reduce_seconds(shard, far, tiers), 0.0) * pace
    experts, same = expert_parameters_per_rank(rows, scenario), expert_data_group(rows)
    if scenario.model.num_moe_layers:
        shared = (same.size > 1) * pace
        gather = gather + shared * gather_seconds(WORD * experts, same, tiers)
        scatter = scatter + shared * gather_seconds(stack.reduce_bytes * experts, same, tiers)
    forward = _behind(gather, layer.forward, layers, stack=stack, hidden=stack.overlap.parameters)
    backward = _behind(gather + scatter, layer.backward, layers, stack=stack, hidden=stack.overlap.gradients)
    times = np.where(once, 1, rows.num_microbatches) if stack.gathers_per_micro_batch else np.ones(len(rows))
    copied = np.where(near.size > 1, layers * size, 0.0) + np.where(same.size > 1, layers * experts, 0.0)
    copies = [
        stream_seconds(traffic=copied * traffic, share=scenario.rates.stream, bandwidth=scenario.rates.bandwidth)
        for traffic in (2.0 * WORD, 2.0 * WORD + WORD + stack.reduce_bytes)
    ]
    return (backward + copies[1]) * times, (forward + copies[0]) * times


def _behind(seconds: Floats, window: Floats, layers: Floats, *, stack: Stack, hidden: bool) -> Floats:
    """Exposed seconds of one collective per layer, prefetched behind the layer before it."""
    if not hidden:
        return layers * seconds
    late = np.maximum(seconds - window, 0.0) + slowdown(np.minimum(seconds, window), stack)
    return seconds + (layers - 1.0) * late


def _tied_embedding(rows: Strategies, scenario: Scenario) -> Floats:
    """All-reduce of a tied embedding's gradient between the first and the last stage."""
    model, stack = scenario.model, scenario.stack
    if not model.tied_embeddings:
        return np.zeros(len(rows))
    size = stack.reduce_bytes * padded_vocabulary_rows(rows, scenario) * model.embedding_width / rows.tp
    pair = np.minimum(rows.pp, 2)
    ends = Group(pair, ((pair, strides(rows)["pp"] * np.maximum(rows.pp - 1, 1)),))
    return np.where(joined(rows), 0.0, all_reduce_seconds(size, ends, scenario.group.tiers))


def optimizer_seconds(rows: Strategies, scenario: Scenario) -> Floats:
    """Clip, Adam step and cast of the parameters a rank updates, and zeroing of its gradients, (N,)."""
    stack, rates = scenario.stack, scenario.rates
    size = heaviest_stage_parameters(rows, scenario)
    twice = copies(rows)
    experts = expert_layers(rows, scenario) * expert_parameters_per_rank(rows, scenario)
    shared = np.where(rows.zero_stage > 0, rows.sharding_degree * twice, 1.0)
    mine = size / shared + experts / np.where(rows.zero_stage > 0, expert_shards(rows) * twice, 1.0)
    size = size + experts
    traffic = mine * stack.optimizer_traffic + size * stack.gradient_bytes
    return traffic / (rates.stream * rates.bandwidth)
