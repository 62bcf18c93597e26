"""One training iteration: seconds per term, from layers to stages to the pipeline.

With t_s the forward and backward seconds of stage s for one micro-batch, m micro-batches and v chunks a
stage, the pipeline takes ``m max t + (sum t - max t) / v`` and the iteration adds what happens once per
step. A stage's t_s is linear in its layers and recomputed layers; that is all the stage solver needs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.layer.blocks import kind_seconds
from costmodels.layer.forward_backward import Passes, average, no_passes
from costmodels.layer.fp8_scales import sharing_seconds
from costmodels.layer.overlapped_experts import PAIR_AXES, further_axes, paired_terms
from costmodels.layer.recompute_modules import checkpoint_seconds, selective_seconds
from costmodels.layer.terms import LayerTerms
from costmodels.layer.tower import repeated_tower_seconds, tower_seconds
from costmodels.layer.vocabulary import embedding_seconds, further_token_projection, head_seconds
from costmodels.layout.layers_by_kind import ByKind, contents, heaviest_at_least
from costmodels.layout.split import even_layers
from costmodels.layout.stage_contents import copies, end_sends, ends, joined
from costmodels.memory.activations import kept_bytes_of_kind
from costmodels.model.layer_kinds import Kind, mtp_kind
from costmodels.names import SHARDING_INSIDE, Recompute
from costmodels.pipeline.bubble_share import bubble_share, straggler_share
from costmodels.scenario import Scenario
from costmodels.step.offload import ACTIVATIONS, layer_offload_seconds, step_offload_seconds
from costmodels.step.optimizer import optimizer_seconds
from costmodels.step.sharded import repeated_window
from costmodels.step.traffic import stage_send_seconds, step_traffic
from costmodels.strategy import BLOCK_AXES, LAYER_AXES, Floats, Ints, Strategies, once_for
from costmodels.training.goodput import wall_stretch


@dataclass(frozen=True, slots=True)
class RowSeconds(LayerTerms):
    """What an iteration is composed of, arrays (N,), seconds per micro-batch unless said otherwise.

    Where layers differ, those of one layer are of an average one.
    """

    embedding: Floats
    head: Floats
    send: Floats
    """Sends and receives of one stage with two neighbours; 0 without a pipeline."""
    vocabulary_spread: Floats
    """Vocabulary work of every stage, where it is split over the stages."""
    host: Floats
    """Host time of one stage, and what its ranks wait for to share the scales of 8-bit products."""
    data_parallel: Floats
    """Per iteration: exposed gradient and parameter traffic."""
    optimizer: Floats
    """Per iteration."""
    overhead: Floats
    """Per iteration: host, data."""
    bubble: Floats
    """Share of the other stages' seconds that the slowest stage waits: 1 / v, less where weight gradients fill in."""
    offload: Floats
    """Per iteration: exposed step on the host, and traffic of states."""
    straggler: Floats
    """Share by which the slowest of all nodes stretches the pipeline."""
    upkeep: Floats
    """Wall time over that of checkpoints that cost nothing: 1 unless the scenario counts interruptions."""
    kinds: ByKind[LayerTerms] | None = None
    """Seconds of one layer of each kind, where layers differ along the depth."""

    @classmethod
    def of_layers(cls, layers: LayerTerms, **further: Any) -> RowSeconds:
        """The seconds of these layers and all that is composed with them."""
        return cls._made(lambda name: getattr(layers, name), further)


def row_seconds(strategies: Strategies, scenario: Scenario) -> RowSeconds:
    """Price N strategies down to the quantities that a split of layers over stages multiplies."""
    return with_step(strategies, scenario, core_seconds(strategies, scenario))


def core_seconds(strategies: Strategies, scenario: Scenario) -> RowSeconds:
    """All that does not depend on how states are sharded; the terms once per iteration are left at zero."""
    axes = _layer_axes(strategies, scenario)
    found = once_for(strategies, axes, lambda few: _passes_of_layers(few, scenario))
    stack, nothing, spread = scenario.stack, np.zeros(len(strategies)), strategies.vocabulary.astype(np.float64)
    mean, embedding, head = found.mean, found.embedding, found.head
    passes = {"layer": mean.layer, "recompute": mean.recompute, "weight": mean.weight, "forward": found.forward}
    return RowSeconds.of_layers(
        mean,
        embedding=embedding * (1.0 - spread),
        head=head * (1.0 - spread),
        vocabulary_spread=(embedding + head) / strategies.pp * spread,
        send=stage_send_seconds(strategies, scenario),
        host=_host_seconds(strategies, scenario),
        data_parallel=nothing,
        optimizer=nothing,
        offload=nothing,
        overhead=nothing + _step_overhead(scenario),
        bubble=bubble_share(strategies, stack, **passes),
        straggler=nothing + stragglers(scenario),
        upkeep=nothing + 1.0,
        kinds=None if scenario.depth.uniform else ByKind(scenario.depth, found.kinds),
    )


class _Layers(NamedTuple):
    """Seconds of one micro-batch that layers and the ends of the model take, arrays (N,)."""

    mean: LayerTerms
    """Of an average layer."""
    kinds: tuple[LayerTerms, ...]
    """Of one layer of each kind, where layers differ."""
    forward: Floats
    """An average layer's forward pass with its traffic, less what of it another pass hides."""
    embedding: Floats
    head: Floats


def _layer_axes(strategies: Strategies, scenario: Scenario) -> tuple[str, ...]:
    """What the passes of layers depend on: ``LAYER_AXES``, what pairs them, what decides how much is offloaded."""
    axes = (*LAYER_AXES, *further_axes(scenario.stack))
    if scenario.stack.overlap.paired_passes:
        axes += (*PAIR_AXES, "schedule")
    if (strategies.offload == ACTIVATIONS).any():
        axes += ("zero_stage", "sharding_degree", "pp")
    return tuple(dict.fromkeys(axes))


def _passes_of_layers(strategies: Strategies, scenario: Scenario) -> _Layers:
    block, inverse = strategies.distinct(*BLOCK_AXES)
    depth = scenario.depth
    alone = tuple(_layer_terms(kind, strategies, block, inverse, scenario) for kind in depth.kinds)
    terms, hidden = paired_terms(alone, strategies, scenario.stack)
    mean = average(terms, depth.shares)
    saved = hidden[0] if len(hidden) == 1 else np.dot(depth.shares, hidden)
    embedding = _with_forwards(embedding_seconds(block, scenario), scenario).total[inverse]
    if scenario.tower is not None:
        embedding = embedding + _with_forwards(tower_seconds(block, scenario), scenario).total[inverse]
        again = strategies.recompute >= Recompute.FULL
        embedding = embedding + again * repeated_tower_seconds(block, scenario)[inverse]
    head = (_with_forwards(head_seconds(block, scenario), scenario) + _further_tokens(block, scenario)).total[inverse]
    return _Layers(
        mean=mean,
        kinds=() if depth.uniform else terms,
        forward=mean.recompute - mean.checkpointing - saved / 2.0,
        embedding=embedding,
        head=head - scenario.model.mtp_layers * saved,
    )


def _layer_terms(
    kind: Kind, strategies: Strategies, block: Strategies, inverse: Ints, scenario: Scenario
) -> LayerTerms:
    """One layer of a kind as an iteration reads it, priced for the distinct blocks and gathered to all."""
    layer = kind_seconds(block, scenario, kind)
    deep = scenario.trained_depth
    once = (layer.compute + layer.cp).take(inverse)
    whole = _with_forwards(once, scenario, deep)
    parts = (layer.tp, layer.cp, layer.ep, layer.ep_alone, layer.launch)
    tp, cp, ep, alone, launch = (_with_forwards(passes, scenario, deep).total[inverse] for passes in parts)
    skipped = layer.skipped[inverse] * float(scenario.stack.recompute.skips_unread)
    at_ends = (checkpoint_seconds(scenario, layer)[inverse] - skipped) / strategies.recompute_num_layers
    selective = deep * selective_seconds(strategies, block, inverse, scenario, layer, kind)
    offloaded = np.zeros(len(strategies))
    if (strategies.offload == ACTIVATIONS).any():
        kept = kept_bytes_of_kind(strategies, scenario, kind)
        offloaded = layer_offload_seconds(strategies, scenario, kept, whole)
    return LayerTerms(
        layer=whole.total + tp + ep + selective + offloaded,
        forward=whole.forward,
        backward=whole.backward,
        layer_tp=tp,
        layer_cp=cp,
        layer_ep=ep,
        layer_alone=alone - ep,
        layer_launch=launch,
        recompute=deep * ((layer.compute.forward + layer.alone.forward)[inverse] + at_ends),
        checkpointing=deep * at_ends,
        weight=deep * layer.weight_gradients(0.0 if scenario.frozen else scenario.rates.matmul.wgrad_ratio)[inverse],
        selective=selective,
        layer_offload=offloaded,
        window=Passes(once.forward, deep * once.backward) - layer.hidden_ep.take(inverse),
        repeated_window=repeated_window(strategies, layer.compute.forward[inverse] - skipped, selective),
        paired=layer.paired.take(inverse),
    )


def _with_forwards(passes: Passes, scenario: Scenario, back: float = 1.0) -> Passes:
    """Passes with the forward ones that no backward pass follows, such as a reference model's.

    ``back`` is the share of layers that a backward pass reaches, which is spread over all alike.
    """
    return Passes((1.0 + scenario.further_forwards) * passes.forward, back * passes.backward)


def _further_tokens(block: Strategies, scenario: Scenario) -> Passes:
    """Layers that predict further tokens, on the last stage, shape (N,)."""
    if not scenario.model.mtp_layers:
        return no_passes(block)
    layer = kind_seconds(block, scenario, mtp_kind(scenario.model))
    each = layer.compute + layer.communication + further_token_projection(block, scenario)
    return scenario.model.mtp_layers * each


def with_step(strategies: Strategies, scenario: Scenario, core: RowSeconds) -> RowSeconds:
    """Seconds of strategies with the terms that depend on how states are sharded, added to their ``core``.

    These are data-parallel traffic, the optimizer, what a step moves to the host, and how far stages and data ranks lie
    apart where the ranks that share their states lie between them.
    """
    if (strategies.rank_order == SHARDING_INSIDE).any():
        core = core.changed(send=stage_send_seconds(strategies, scenario), host=_host_seconds(strategies, scenario))
    layer = Passes(core.forward, core.backward)
    traffic = step_traffic(strategies, scenario, core.window, core.kinds, core.paired, core.repeated_window)
    return core.changed(
        upkeep=core.upkeep if scenario.stability is None else wall_stretch(strategies, scenario, scenario.stability),
        data_parallel=traffic.total,
        optimizer=optimizer_seconds(strategies, scenario),
        offload=step_offload_seconds(strategies, scenario, layer),
    )


def stragglers(scenario: Scenario) -> float:
    """Share by which the slowest of all nodes stretches the pipeline, the one term that the number of nodes changes."""
    return straggler_share(scenario.stack.calibrated.straggler, scenario.gpus / scenario.group.gpus_per_node)


def _step_overhead(scenario: Scenario) -> float:
    """Seconds that an iteration costs the host besides its passes."""
    known = scenario.stack.calibrated
    return known.host_time * known.iteration_overhead + scenario.stack.host.calls_per_step * scenario.rates.launch


def _host_seconds(strategies: Strategies, scenario: Scenario) -> Floats:
    stack = scenario.stack
    overhead = stack.calibrated.host_time * stack.host.micro_batch_overhead
    return overhead * strategies.vpp + sharing_seconds(strategies, scenario)


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

    def columns(self) -> dict[str, Floats]:
        """The terms by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def rows(self) -> list[dict[str, float]]:
        """Every iteration's terms by name."""
        names, columns = zip(*self.columns().items(), strict=True)
        return [dict(zip(names, row, strict=True)) for row in np.stack(columns, axis=1).tolist()]


def sends_at(strategies: Strategies, seconds: RowSeconds, stages: NDArray[np.int64]) -> Floats:
    """Seconds per micro-batch that stages spend on sends and receives; both are of shape (N, P)."""
    outer = (stages == 0) | (stages == strategies.pp[:, None] - 1)
    return np.where(outer, end_send(strategies, seconds)[:, None], seconds.send[:, None])


def end_send(strategies: Strategies, seconds: RowSeconds) -> Floats:
    """Seconds per micro-batch that the first and the last stage spend on sends and receives, (N,)."""
    return seconds.send * end_sends(strategies)


def all_sides(strategies: Strategies, seconds: RowSeconds) -> Floats:
    """Seconds per micro-batch that all stages together spend besides layers, embedding and head, (N,)."""
    hops = (strategies.pp - 2.0) * seconds.send + 2.0 * end_send(strategies, seconds)
    return hops + strategies.pp * (seconds.host + seconds.vocabulary_spread)


def stage_extras(strategies: Strategies, seconds: RowSeconds, stages: NDArray[np.int64]) -> Floats:
    """Seconds per micro-batch that stages spend besides their layers; both are of shape (N, P)."""
    side = sends_at(strategies, seconds, stages) + (seconds.host + seconds.vocabulary_spread)[:, None]
    first, last = ends(strategies, stages)
    embedding, head = ((x / copies(strategies))[:, None] for x in (seconds.embedding, seconds.head))
    return side + first * embedding + last * head


def even_split(
    strategies: Strategies, seconds: RowSeconds, num_layers: int, recomputed: Floats
) -> tuple[Floats, Floats]:
    """(slowest stage, all stages) seconds per micro-batch under the best even-as-possible split, (N,).

    ``recomputed`` is the share of layers that are recomputed. The split is ``split.even_layers``.
    """
    unit = seconds.layer + recomputed * seconds.recompute
    total = num_layers * unit + seconds.embedding + seconds.head + all_sides(strategies, seconds)
    if seconds.kinds is not None:
        held = contents(strategies, seconds.kinds.depth)
        stages = held.total(seconds.kinds.each("layer") + recomputed * seconds.kinds.each("recompute"))
        return (stages + stage_extras(strategies, seconds, held.stage)).max(axis=1), total
    return _slowest_uniform(strategies, seconds, num_layers, unit), total


def _slowest_uniform(strategies: Strategies, seconds: RowSeconds, num_layers: int, unit: Floats) -> Floats:
    """The slowest stage of an even split of layers that are alike, (N,); of two stages none is a middle one."""
    held = even_layers(num_layers, strategies)
    both = held.first * unit + (seconds.embedding + seconds.head) / copies(strategies)
    apart = np.maximum(held.first * unit + seconds.embedding, held.last * unit + seconds.head)
    inner = np.where(strategies.pp > 1, held.high * unit, 0.0)
    outer = end_send(strategies, seconds)
    further = np.where(strategies.pp > 2, seconds.send, outer)
    slowest = np.maximum(np.where(joined(strategies), both, apart) + outer, inner + further)
    return slowest + seconds.host + seconds.vocabulary_spread


def fullest_stage(
    strategies: Strategies, layer: Floats, kinds: ByKind[LayerTerms] | None, num_layers: int, again: Floats
) -> Floats:
    """Seconds of layers that some stage of any split has at least, (N,): it holds the most slices or more.

    ``layer`` is an average layer's seconds, ``again`` the share of layers that are recomputed.
    """
    if kinds is None:
        return even_layers(num_layers, strategies).heaviest_at_least * layer
    return heaviest_at_least(strategies, kinds.depth, kinds.each("layer") + again * kinds.each("recompute"))


def at_stage(seconds: RowSeconds, held: Floats, again: Floats, hop: Floats) -> RowSeconds:
    """Seconds of strategies with the average layer and the sends of one stage of each in place of the model's.

    ``held`` and ``again``, (N, K), are its layers and recomputed layers by kind; ``hop``, (N,), its sends and receives.
    """
    if seconds.kinds is None:
        return seconds.changed(send=hop)
    parts = ("layer_tp", "layer_cp", "layer_ep", "layer_launch", "selective", "layer_offload")
    mean: dict[str, Any] = {name: _average(held, seconds.kinds.each(name)) for name in parts}
    return seconds.changed(**mean, recompute=_average(again, seconds.kinds.each("recompute")), send=hop)


def _average(layers: Floats, each: Floats) -> Floats:
    """What the layers of a stage have on average, (N, K) of the kinds' (K, N); 0 of none."""
    count = layers.sum(axis=1)
    return np.array([one @ own for one, own in zip(layers, each.T.copy(), strict=True)]) / np.where(count, count, 1.0)


def compose(strategies: Strategies, seconds: RowSeconds, slowest: Floats, total: Floats) -> Floats:
    """Seconds of the iteration from the slowest stage's and all stages' seconds per micro-batch, (N,)."""
    pipeline = strategies.num_microbatches * slowest + (total - slowest) * seconds.bubble
    return iteration_of(seconds, pipeline)


def iteration_of(seconds: RowSeconds, pipeline: Floats) -> Floats:
    """Seconds of the iteration from those of the pipeline, stragglers and what happens once aside, (N,)."""
    return (pipeline * (1.0 + seconds.straggler) + _once(seconds)) * seconds.upkeep


def pipeline_within(seconds: RowSeconds, iteration: float) -> Floats:
    """The other way round: what an iteration of so many seconds leaves its pipeline, (N,)."""
    return (iteration / seconds.upkeep - _once(seconds)) / (1.0 + seconds.straggler)


def _once(seconds: RowSeconds) -> Floats:
    return seconds.data_parallel + seconds.optimizer + seconds.offload + seconds.overhead


def breakdown(
    strategies: Strategies, seconds: RowSeconds, *, slowest: Floats, total: Floats, layers: Floats, recomputed: Floats
) -> Breakdown:
    """The iteration term by term; the seconds' ``send`` and what is given are the slowest stage's, arrays (N,)."""
    m = strategies.num_microbatches
    bubble = (total - slowest) * seconds.bubble
    again = recomputed * seconds.recompute + layers * seconds.selective
    tp, cp, ep = (layers * part for part in (seconds.layer_tp, seconds.layer_cp, seconds.layer_ep))
    offload, waits = layers * seconds.layer_offload, layers * seconds.layer_launch
    compute = slowest - seconds.send - seconds.host - waits - again - tp - cp - ep - offload
    return Breakdown(
        compute=m * compute,
        recompute=m * again,
        tp=m * tp,
        cp=m * cp,
        ep=m * ep,
        pp=m * seconds.send,
        bubble=bubble,
        dp=seconds.data_parallel,
        optimizer=seconds.optimizer,
        host=seconds.overhead + m * (seconds.host + waits),
        straggler=(m * slowest + bubble) * seconds.straggler,
        offload=m * offload + seconds.offload,
    )
