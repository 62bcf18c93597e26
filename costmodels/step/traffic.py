"""Traffic once per micro-batch between stages, and once per iteration between data-parallel ranks.

Megatron-Core fills buckets with parameters in the order in which their gradients appear; a bucket travels when its
last gradient is there, so that the last one, with the embedding, has no backward pass left to hide behind. Parameters
come back bucket by bucket in the opposite order. Every bucket goes round the ring by itself: with many ranks it is as
long on its way as it takes to send. With a pipeline only the first stage has buckets, while the others reduce whole
chunks during its last passes; that is left at one collective [Megatron-Core, distributed_data_parallel.py].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from costmodels.layer.adapters import trained_experts, trained_share
from costmodels.layer.forward_backward import Passes, tokens_per_rank
from costmodels.layer.terms import LayerTerms
from costmodels.layout.layers_by_kind import ByKind
from costmodels.layout.parameters_per_rank import (
    embedding_parameters_per_rank,
    heaviest_experts,
    heaviest_stage,
    heaviest_stage_parameters,
    padded_vocabulary_rows,
)
from costmodels.layout.placement import (
    data_groups,
    distinct_meshes,
    expert_data_group,
    group_of,
    mesh_axes,
    sharding_groups,
    strides,
)
from costmodels.layout.split import even_layers
from costmodels.layout.stage_contents import by_chunk, joined
from costmodels.model.further import stream_width
from costmodels.model.parameters import attention_projections
from costmodels.names import SCHEDULE_NAMES, SHARDED_GRADIENTS, SHARDED_PARAMETERS, WORD
from costmodels.pipeline.schedules import SCHEDULES
from costmodels.primitives.collectives import (
    all_reduce_seconds,
    broadcast_seconds,
    gather_seconds,
    message_seconds,
    slowest_hop,
)
from costmodels.primitives.overlap import exposed
from costmodels.primitives.rank_groups import ends_of
from costmodels.scenario import Scenario
from costmodels.stack.stack import Stack
from costmodels.step.sharded import compute_slowdown, every_micro_batch, gather_word
from costmodels.strategy import AXES, Bools, Floats, Ints, Strategies, of_axes, once_for


def stage_send_seconds(strategies: Strategies, scenario: Scenario) -> Floats:
    """Exposed seconds that a stage with two neighbours spends per micro-batch on sends and receives, both passes, (N,).

    Every chunk passes one activation on and one gradient back; with scatter/gather or sequence parallelism
    each tensor rank sends its share [Narayanan21]. ``overlap.pp`` = 1 is a send that stops both stages, and a pipeline
    is as slow as its slowest hop. Where sends delay their receivers alone, an iteration waits for some of them
    (``Schedule.waits``).
    """
    stack = scenario.stack
    latency, rate = _slowest_hop(strategies, scenario)
    one = message_seconds(_sent_bytes(strategies, scenario), latency=latency, rate=rate)
    seconds = 2.0 * strategies.vpp * one * _exposed_sends(strategies, scenario) / stack.calibrated.reached("pipeline")
    return np.where(strategies.pp > 1, seconds, 0.0)


def _slowest_hop(strategies: Strategies, scenario: Scenario) -> tuple[Floats, Floats]:
    """Latency and bytes a second of the slowest hop of a pipeline, (N,)."""

    def find(few: Strategies) -> tuple[Floats, Floats]:
        stride, reach = (column.astype(np.float64) for column in (strides(few)["pp"], few.pp))
        return slowest_hop(stride, reach, scenario.group.tiers)

    return once_for(strategies, mesh_axes(strategies), find)


@of_axes("tp", "cp", "micro_batch_size", "sequence_parallel")
def _sent_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes of the activation that a rank passes on, (N,)."""
    size = WORD * tokens_per_rank(strategies, scenario) * stream_width(scenario.model)
    split = (strategies.sequence_parallel > 0) | scenario.stack.pipeline.scatter_gather
    return np.where(split, size / strategies.tp, size)


@of_axes("schedule", "pp", "vpp", "num_microbatches")
def _exposed_sends(strategies: Strategies, scenario: Scenario) -> Floats:
    """Share of a send that stops the stages, as far as the schedule waits for it, (N,)."""
    overlap = scenario.stack.overlap
    return np.where(strategies.vpp > 1, overlap.pp_interleaved, overlap.pp) * waited_sends(strategies)


def waited_sends(strategies: Strategies) -> Floats:
    """Share of a stage's sends and receives that its schedule waits for, (N,)."""
    share = np.ones(len(strategies))
    for code in strategies.schedules():
        schedule, mine = SCHEDULES[SCHEDULE_NAMES[code]], (strategies.schedule == code) & (strategies.pp > 1)
        if schedule.sends_overlap and mine.any():
            waited = schedule.waited(np.maximum(strategies.pp, 2), strategies.num_microbatches, strategies.vpp)
            share = np.where(mine, waited, share)
    return share


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


def step_traffic(
    strategies: Strategies,
    scenario: Scenario,
    layer: Passes,
    kinds: ByKind[LayerTerms] | None = None,
    paired: Passes | None = None,
    repeated: Floats | float = 0.0,
) -> StepTraffic:
    """Exposed data-parallel seconds of one iteration, for the stage with the most parameters.

    ZeRO 0 reduces gradients everywhere once an iteration; 1 scatters them over the sharding group, reduces the
    shards over its replicas and gathers the parameters; from 2 on gradients are scattered layer by layer in every
    micro-batch, at 3 every layer is gathered twice a micro-batch, hidden behind the computation of the neighbouring
    layer [Rajbhandari20], [Zhao23]. With a pipeline stage 2 is taken to keep gradients whole until the last
    micro-batch; breadth first, all travels once an iteration and behind all micro-batches [LamyPoirier22].
    ``layer`` is the computation of one layer for one micro-batch that hides no traffic of the layer's own; where layers
    differ, ``kinds`` has that of each kind. What of it hides that of another micro-batch's experts, ``paired``, hides
    none of what travels in every micro-batch; the last backward and the first forward pass have no such partner.
    That hides behind the ``repeated`` seconds that a layer's backward pass computes again as well.
    """
    stack = scenario.stack
    few, inverse = alike_steps(strategies)
    gradients, parameters, tied = (seconds[inverse] for seconds in _once_per_step(few, scenario))
    first = unhidden_share(few, scenario, heaviest_stage_parameters(few, scenario))[inverse]
    window = _window(strategies, scenario, layer, kinds)
    slow, way = compute_slowdown(data_groups(few), scenario)[inverse], stack.switches
    open_part = partial(_exposed_once, strategies=strategies, first=first, stack=stack, slow=slow)
    backward = open_part(gradients, window.backward, hidden=way.overlap_grad_reduce)
    forward = open_part(parameters, window.forward, hidden=way.overlap_param_gather)
    sharded, whole = strategies.zero_stage >= SHARDED_GRADIENTS, strategies.zero_stage >= SHARDED_PARAMETERS
    if sharded.any():
        sharded = sharded & (whole | (strategies.pp == 1)) & np.isin(strategies.zero_stage, stack.supports.zero_stages)
        longer = Passes(layer.forward, layer.backward + repeated)
        always = every_micro_batch(strategies, scenario, longer, kinds, paired)
        backward = np.where(sharded, always[0], backward)
        forward = np.where(sharded & (whole | stack.sharding.fsdp_stage2), always[1], forward)
    return StepTraffic(backward, forward, tied=tied)


STEP_AXES = tuple(
    name
    for name in AXES
    if name
    not in {"micro_batch_size", "num_microbatches", "recompute", "recompute_modules", "sequence_parallel", "cp_kind"}
)
"""All that traffic and updates once an iteration can depend on, before anything hides them."""


def share_steps(strategies: Strategies) -> None:
    """Have strategies that are alike once an iteration priced together there, as nine of ten are in a search.

    What is found is the same to the last bit; of random ones too few are alike for it to pay.
    """
    strategies.once("steps", lambda: strategies.distinct(*STEP_AXES) if len(strategies) > 1 else None)


def alike_steps(strategies: Strategies) -> tuple[Strategies, Ints | slice]:
    """Strategies to price once an iteration, and which of them every one is."""
    known: tuple[Strategies, Ints] | None = strategies.once("steps", lambda: None)
    return known or (strategies, slice(None))  # which must not know itself, as in ``Strategies.distinct``


def _window(strategies: Strategies, scenario: Scenario, layer: Passes, kinds: ByKind[LayerTerms] | None) -> Passes:
    """Computation of one micro-batch that traffic once an iteration can hide behind.

    Every stage has the low number of layers, however it is split; where layers differ it is the heaviest stage's.
    """
    if kinds is None:
        low = even_layers(scenario.model.num_layers, strategies).low
        return Passes(low * layer.forward, low * layer.backward)
    held = heaviest_stage(strategies, scenario).held
    each = [part.window for part in kinds.parts]
    return sum((held[:, k] * window for k, window in enumerate(each[1:], 1)), held[:, 0] * each[0])


def _once_per_step(strategies: Strategies, scenario: Scenario) -> tuple[Floats, Floats, Floats]:
    """Seconds of reducing gradients, gathering parameters and reducing a tied embedding, once an iteration."""
    size = heaviest_stage_parameters(strategies, scenario) * trained_share(scenario)
    pieces = gradient_collectives(strategies, scenario, size)
    pace, size = pieces / scenario.stack.calibrated.reached("data"), size / pieces
    gradients, parameters = _data_once(strategies, scenario, size)
    gradients, parameters = gradients * pace, parameters * pace + _list_seconds(strategies, scenario)
    if scenario.model.num_moe_layers:
        reduced, gathered = _experts_once(strategies, scenario)
        gradients, parameters = gradients + reduced, parameters + gathered
    return gradients, parameters, tied_embedding_seconds(strategies, scenario)


def _list_seconds(strategies: Strategies, scenario: Scenario) -> Floats | float:
    """Seconds to copy every rank's part of each tensor of a stage out of what was gathered, launch by launch, (N,)."""
    model, costs = scenario.model, scenario.stack.sharding
    if costs.parameter_exchange != "listed":
        return 0.0
    near, _far = sharding_groups(strategies)
    tensors = len(attention_projections(model)) + 2 + model.num_norms
    copies = even_layers(model.num_layers, strategies).high * tensors * near.size
    return np.where((strategies.zero_stage > 0) & (near.size > 1), copies * costs.copy_time_per_rank, 0.0)


def _data_once(strategies: Strategies, scenario: Scenario, size: Floats) -> tuple[Floats, Floats]:
    """Seconds of reducing ``size`` gradients to the ranks that step them, and of gathering as many parameters.

    Where nothing is sharded every rank is a replica of its own shard, and no parameter is gathered.
    """
    stack, tiers, (near, far) = scenario.stack, scenario.group.tiers, sharding_groups(strategies)
    given, kept = stack.gradients.reduce_bytes * size, gather_word(scenario) * size
    scatter, gather = gather_seconds(np.array([given, kept]), near, tiers)
    if stack.sharding.parameter_exchange == "broadcast":
        gather = broadcast_seconds(kept, near, tiers)
    if stack.sharding.gradient_exchange == "all-reduce":
        return all_reduce_seconds(given, data_groups(strategies), tiers), gather
    return scatter + all_reduce_seconds(given / strategies.sharding_degree, far, tiers), gather


def _experts_once(strategies: Strategies, scenario: Scenario) -> tuple[Floats, Floats]:
    """Seconds of reducing gradients and gathering parameters of experts, over the ranks that hold the same ones."""
    stack, tiers, group = scenario.stack, scenario.group.tiers, expert_data_group(strategies)
    size = heaviest_experts(strategies, scenario) * trained_experts(scenario)
    given, kept = stack.gradients.reduce_bytes * size, gather_word(scenario) * size
    pace, sharded = 1.0 / stack.calibrated.reached("data"), strategies.zero_stage > 0
    whole = all_reduce_seconds(given, group, tiers)
    scatter, gather = gather_seconds(np.array([given, kept]), group, tiers)
    return np.where(sharded, scatter, whole) * pace, np.where(sharded, gather, 0.0) * pace


@of_axes("schedule", "pp", "vpp", "num_microbatches")
def _pieces(strategies: Strategies, stack: Stack) -> tuple[Floats, Floats]:
    """Chunks that traffic once an iteration comes in, and micro-batches that each passes behind the others, (N,)."""
    chunked, interleaved = by_chunk(strategies), stack.overlap.by_chunk & (strategies.pp > 1)
    batches = strategies.num_microbatches
    times = np.where(chunked, batches, np.minimum(strategies.pp, batches)).astype(np.float64)
    return np.where(chunked | interleaved, strategies.vpp, 1.0), times


def _exposed_once(
    seconds: Floats, window: Floats, *, strategies: Strategies, first: Floats, stack: Stack, slow: Floats, hidden: bool
) -> Floats:
    """``exposed``, where ``window`` is one micro-batch's pass.

    By chunks, all traffic but the outermost chunk's has the passes of all micro-batches through another chunk to
    hide behind; under interleaving, those of as many as there are stages, if the stack sends chunk by chunk.
    """
    v, times = _pieces(strategies, stack)
    behind = window * times * (v - 1.0) / v
    part = partial(exposed, share=first, slow=slow, hidden=hidden)
    return part(seconds * (v - 1.0) / v, behind) + part(seconds / v, window / v)


def tied_embedding_seconds(strategies: Strategies, scenario: Scenario) -> Floats:
    """All-reduce of a tied embedding's gradient between the first and the last stage, in the format it is kept in.

    Megatron-LM hands the buffer's own gradient to it; DeepSpeed the weight's, whatever data ranks reduce in
    (``runtime/pipe/module.py``, ``allreduce_tied_weight_gradients``).
    """
    model, stack = scenario.model, scenario.stack
    if not model.tied_embeddings or scenario.frozen:
        return np.zeros(len(strategies))
    few, inverse = distinct_meshes(strategies)
    ends, table = ends_of(group_of(few, "pp")), padded_vocabulary_rows(few, scenario)
    size = stack.gradients.gradient_bytes * table * model.embedding_width / few.tp
    return np.where(joined(strategies), 0.0, all_reduce_seconds(size, ends, scenario.group.tiers)[inverse])


def gradient_collectives(strategies: Strategies, scenario: Scenario, size: Floats) -> Floats:
    """Collectives in which the gradients of ``size`` parameters travel once an iteration, shape (N,)."""
    layers = even_layers(scenario.model.num_layers, strategies).high
    buckets = np.ceil(size / _bucket_parameters(strategies, scenario))
    count = np.where(
        _is_bucketed(strategies, scenario), buckets, scenario.stack.sharding.collectives_per_layer * layers
    )
    return np.maximum(count, 1.0)


def unhidden_share(strategies: Strategies, scenario: Scenario, size: Floats) -> Floats:
    """Share of ``size`` parameters whose gradients appear, and which are needed, with nothing left to compute, (N,).

    A parameter is never cut in two, so that the last bucket holds all of the embedding.
    """
    last = np.maximum(_bucket_parameters(strategies, scenario), embedding_parameters_per_rank(strategies, scenario))
    share = np.minimum(last / np.maximum(size, 1.0), 1.0)
    return np.where(_is_bucketed(strategies, scenario), share, scenario.stack.sharding.bucket_exposed)


def _is_bucketed(strategies: Strategies, scenario: Scenario) -> Bools:
    return (strategies.pp == 1) & (scenario.stack.switches.bucket_size > 0)


def _bucket_parameters(strategies: Strategies, scenario: Scenario) -> Floats:
    """Parameters of one bucket, more where there are more ranks, so that pieces of a ring do not become too small."""
    per_rank = scenario.stack.sharding.bucket_per_rank
    return np.maximum(max(scenario.stack.switches.bucket_size, 1.0), per_rank * data_groups(strategies).size)
