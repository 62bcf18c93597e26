"""Pipelines over several node groups: what every stage costs where it stands.

A stage stands on one group and has tp x cp x dp ranks of it, so that tensor, context and data-parallel traffic stays
inside the group; only the pipeline's hops cross from one group to the next. Every group is priced by the formulas
of a cluster of its own (``iteration``, ``memory``), as if all stages of the pipeline stood on it, and each stage
takes the figures of its group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.arrays import Columns
from costmodels.iteration import RowSeconds, breakdown, compose, core_seconds
from costmodels.layout.split import Assignment
from costmodels.layout.stage_contents import stages_in_flight
from costmodels.memory.footprint import Footprint, footprint
from costmodels.memory.limits import memory_limit
from costmodels.memory.rows import RowBytes, row_bytes
from costmodels.pipeline.bubble_share import straggler_share
from costmodels.pricing import Price, effective_recompute, price_strategy, stage_bytes
from costmodels.scenario import Scenario
from costmodels.step.optimizer import optimizer_seconds
from costmodels.step.traffic import StepTraffic, stage_send_seconds, step_traffic, tied_embedding_seconds
from costmodels.strategy import AXES, Floats, Ints, Strategies
from hardware.records import Cluster


@dataclass(frozen=True)
class Mixed:
    """One question on several node groups: the same model, software and batch, each group with its own GPUs."""

    cluster: Cluster
    scenarios: tuple[Scenario, ...]
    """Of every group, in the cluster's order; ``gpus`` counts those of the group."""

    @property
    def lead(self) -> Scenario:
        """The question on the first group, for what all groups have in common."""
        return self.scenarios[0]

    @property
    def gpus(self) -> int:
        """GPUs of all groups."""
        return sum(one.gpus for one in self.scenarios)

    @cached_property
    def nodes(self) -> float:
        """Nodes of all groups."""
        return sum(one.gpus / one.group.gpus_per_node for one in self.scenarios)

    def crossing(self, one: int, other: int) -> tuple[Scenario, Scenario]:
        """Two groups with nothing but the tier over which they reach each other."""
        pair = self.scenarios[one], self.scenarios[other]
        tiers = self.cluster.crossing(pair[0].group.name, pair[1].group.name)
        first, second = (
            replace(scenario, group=scenario.group.model_copy(update={"tiers": (tier,)}))
            for scenario, tier in zip(pair, tiers, strict=True)
        )
        return first, second


PER_GROUP = ("tp", "dp", "micro_batch_size")
"""Axes on which node groups may differ, and that a predicted strategy may give for each."""

AnyScenario = Scenario | Mixed
"""A question on one node group, or on several."""


def parts_of(scenario: AnyScenario) -> tuple[Scenario, ...]:
    """The question on each node group, in the cluster's order."""
    return scenario.scenarios if isinstance(scenario, Mixed) else (scenario,)


@dataclass(frozen=True, slots=True)
class MixedStrategies(Strategies):
    """N strategies over G groups: the columns of each group, its stages, and the groups' order in the pipeline.

    ``groups[g]`` has the degrees of the stages on group g; its ``pp`` is the whole pipeline's, and so are
    ``vpp``, ``num_microbatches`` and the switches. ``stages`` (N, G) counts the stages on each group, ``order``
    (N, G) says which group stands at which place of the pipeline. Its own columns are those of the first group.
    """

    groups: tuple[Strategies, ...]
    stages: Ints
    order: Ints

    @staticmethod
    def of(groups: tuple[Strategies, ...], stages: Ints, order: Ints) -> MixedStrategies:
        """Strategies whose own columns are those of the first group."""
        first = {name: getattr(groups[0], name) for name in AXES}
        return MixedStrategies(**first, groups=groups, stages=stages, order=order)

    def take(self, chosen: NDArray[Any] | slice) -> MixedStrategies:
        """The chosen strategies (an index, mask or slice)."""
        groups = tuple(one.take(chosen) for one in self.groups)
        return MixedStrategies.of(groups, self.stages[chosen], self.order[chosen])

    def group_at(self) -> Ints:
        """The group of every stage, (N, P) for the most stages P; behind a row's last stage its last group."""
        ends = np.cumsum(np.take_along_axis(self.stages, self.order, axis=1), axis=1)
        width = int(self.pp.max(initial=1))
        place = (np.arange(width)[None, :, None] >= ends[:, None, :-1]).sum(axis=2)
        return np.take_along_axis(self.order, place, axis=1)


@dataclass(frozen=True, slots=True)
class MixedSeconds(Columns):
    """Seconds of N strategies by stage, arrays (N, P), and of each group as ``iteration`` prices it.

    What happens once per iteration, the stragglers and the bubble's share are the whole pipeline's in every group.
    """

    groups: tuple[RowSeconds, ...]
    layer: Floats
    recompute: Floats
    send: Floats
    extra: Floats
    """What a stage spends per micro-batch besides its layers, its hops included."""


@dataclass(frozen=True, slots=True)
class MixedBytes(Columns):
    """What the memory of every stage is composed of, arrays (N, P), bytes on one rank; and of each group."""

    groups: tuple[RowBytes, ...]
    limit: Floats
    """What the allocator may hand out on the stage's device."""
    fixed: Floats
    """Of what is no layer."""
    layer: Floats
    """States of one layer."""
    activation: Floats
    """Per layer that stores its activations, all micro-batches in flight."""
    checkpoint: Floats
    """Per recomputed layer, all micro-batches in flight."""
    working: Floats


def mixed_seconds(rows: MixedStrategies, mixed: Mixed) -> MixedSeconds:
    """Price N strategies stage by stage, up to what a split of the layers multiplies."""
    cores = [core_seconds(group, one) for group, one in zip(rows.groups, mixed.scenarios, strict=True)]
    groups = _together(rows, mixed, cores)
    at, stages = rows.group_at(), np.arange(int(rows.pp.max(initial=1)))
    hop = _hops(rows, mixed, at)
    first, last = stages == 0, stages == rows.pp[:, None] - 1
    extra = hop + _at(at, [one.host + one.vocabulary_spread for one in groups])
    extra = extra + first * _at(at, [one.embedding for one in groups]) + last * _at(at, [one.head for one in groups])
    return MixedSeconds(
        groups=groups,
        layer=_at(at, [one.layer for one in groups]),
        recompute=_at(at, [one.recompute for one in groups]),
        send=hop,
        extra=extra,
    )


def _at(group_at: Ints, values: list[Floats]) -> Floats:
    """Values (N,) of each group as those of every stage, (N, P)."""
    return np.take_along_axis(np.stack(values, axis=1), group_at, axis=1)


def _together(rows: MixedStrategies, mixed: Mixed, cores: list[RowSeconds]) -> tuple[RowSeconds, ...]:
    """Each group's seconds with the whole pipeline's terms once per iteration.

    The groups reduce their gradients and step their optimizers at the same time; the iteration waits for the
    slowest of them. A tied embedding is reduced between the first and the last group.
    """
    steps = steps_of_groups(rows, mixed, cores)
    traffic = np.stack([step.gradients + step.parameters for step, _ in steps], axis=1)
    optimizer = np.stack([seconds for _, seconds in steps], axis=1)
    slowest = np.argmax(traffic + optimizer, axis=1)[:, None]
    common = {
        "data_parallel": np.take_along_axis(traffic, slowest, axis=1)[:, 0] + steps[0][0].tied,
        "optimizer": np.take_along_axis(optimizer, slowest, axis=1)[:, 0],
        "overhead": np.max([one.overhead for one in cores], axis=0),
        "straggler": np.full(len(rows), straggler_share(mixed.lead.stack.calibrated.straggler, mixed.nodes)),
        "bubble": np.max([one.bubble for one in cores], axis=0),
    }
    return tuple(replace(one, **common) for one in cores)


def steps_of_groups(
    rows: MixedStrategies, mixed: Mixed, cores: Sequence[RowSeconds]
) -> list[tuple[StepTraffic, Floats]]:
    """Exposed data-parallel traffic and the optimizer of every group, (N,), for the layers its stages should hold.

    They are reckoned before any split: where all stages take as long, a stage holds what it would in an even pipeline
    of ``sum_k stages_k (layer seconds here / layer seconds on group k)`` stages like itself.
    """
    pace = np.sum([rows.stages[:, k] / core.layer for k, core in enumerate(cores)], axis=0)
    most = max(mixed.lead.model.num_layers, 2)
    tied = _between(rows, mixed, tied_embedding_seconds)[np.arange(len(rows)), rows.order[:, 0], rows.order[:, -1]]
    steps = []
    for group, one, core in zip(rows.groups, mixed.scenarios, cores, strict=True):
        alike = replace(group, pp=np.clip(np.rint(core.layer * pace).astype(np.int64), 2, most))
        step = step_traffic(alike, one, core.window, paired=core.paired, repeated=core.repeated_window)
        steps.append((replace(step, tied=tied), optimizer_seconds(alike, one)))
    return steps


def _between(rows: MixedStrategies, mixed: Mixed, cost: Callable[[Strategies, Scenario], Floats]) -> Floats:
    """What a transfer between any two groups takes, (N, G, G).

    The rank that has more to send, or the slower way out, sets the time.
    """
    count = len(rows.groups)
    table = np.zeros((len(rows), count, count))
    for one, other in combinations(range(count), 2):
        sides = zip((one, other), mixed.crossing(one, other), strict=True)
        table[:, one, other] = np.max([cost(rows.groups[g], scenario) for g, scenario in sides], axis=0)
    return table + table.transpose(0, 2, 1)


def _hops(rows: MixedStrategies, mixed: Mixed, at: Ints) -> Floats:
    """Sends of every stage, (N, P): half of what both its neighbours would ask for.

    A stage sends activations to the next stage and as many gradients to the one before. An interleaved pipeline of v
    chunks goes v - 1 times from its last stage back to its first, whose neighbours beyond are one short.
    """
    links, n, last = _links(rows, mixed), np.arange(len(rows)), rows.pp - 1
    right = np.zeros(at.shape)
    right[:, :-1] = links[n[:, None], at[:, :-1], at[:, 1:]]
    chunks = rows.groups[0].vpp
    right[n, last] = links[n, at[n, last], at[:, 0]] * (chunks - 1) / chunks
    left = np.roll(right, 1, axis=1)
    left[:, 0] = right[n, last]
    return (left + right) / 2.0


def _links(rows: MixedStrategies, mixed: Mixed) -> Floats:
    """Sends and receives of a stage between two of group i, or one of i and one of j: (N, G, G)."""
    two = np.full(len(rows), 2)
    table = _between(rows, mixed, lambda group, scenario: stage_send_seconds(replace(group, pp=two), scenario))
    for k, (group, scenario) in enumerate(zip(rows.groups, mixed.scenarios, strict=True)):
        table[:, k, k] = stage_send_seconds(replace(group, pp=rows.stages[:, k]), scenario)
    return table


def mixed_bytes(rows: MixedStrategies, mixed: Mixed) -> MixedBytes:
    """The memory of N strategies stage by stage, up to what a split of the layers multiplies."""
    groups = _group_bytes(rows, mixed)
    at = rows.group_at()
    stages = np.arange(at.shape[1])
    held = stages_in_flight(rows.groups[0], len(stages)) + _at(at, [g.queued for g in groups])
    first, last = stages == 0, stages == rows.pp[:, None] - 1
    ends = first * (_at(at, [g.first for g in groups]) + held * _at(at, [g.embedding_activation for g in groups]))
    return MixedBytes(
        groups=groups,
        limit=_at(at, [memory_limit(one, group) for one, group in zip(mixed.scenarios, rows.groups, strict=True)]),
        fixed=_at(at, [g.everywhere for g in groups]) + ends + last * _at(at, [g.last for g in groups]),
        layer=_at(at, [g.layer_state for g in groups]),
        activation=held * _at(at, [g.stored for g in groups]),
        checkpoint=held * _at(at, [g.checkpoint for g in groups]),
        working=_at(at, [g.working for g in groups]) - last * _at(at, [g.logits_released for g in groups]),
    )


def first_in_pipeline(row: Strategies) -> Strategies:
    """One strategy as the group has it that the pipeline begins on."""
    return row.groups[int(row.order[0, 0])] if isinstance(row, MixedStrategies) else row


def as_it_runs(row: Strategies, split: Assignment) -> Strategies:
    """One strategy with its recomputation called what it comes to, on every group."""
    if not isinstance(row, MixedStrategies):
        return effective_recompute(row, split)
    return MixedStrategies.of(tuple(effective_recompute(one, split) for one in row.groups), row.stages, row.order)


def price(row: Strategies, scenario: AnyScenario, split: Assignment) -> Price:
    """The price of a single strategy under a split, with its recomputation as what it comes to.

    Over several groups seconds and bytes by cause are those of the slowest stage.
    """
    run = as_it_runs(row, split)
    if isinstance(scenario, Mixed):
        assert isinstance(run, MixedStrategies)
        return price_mixed(run, scenario, split)
    return price_strategy(run, scenario, split)


def held_bytes(row: Strategies, scenario: AnyScenario, split: Assignment) -> Footprint:
    """The memory of every stage alone, of what ``price`` has."""
    run = as_it_runs(row, split)
    if isinstance(scenario, Mixed):
        assert isinstance(run, MixedStrategies)
        return _footprint(run, scenario, _group_bytes(run, scenario), split)
    return stage_bytes(run, scenario, split)


def stage_limits(row: Strategies, scenario: AnyScenario) -> Floats:
    """Usable bytes of the device of every stage of a single strategy, (pp,)."""
    usable = np.array([one.group.accelerator.usable_memory for one in parts_of(scenario)])
    at = row.group_at()[0] if isinstance(row, MixedStrategies) else np.zeros(int(row.pp[0]), dtype=np.int64)
    return usable[at]


def price_mixed(row: MixedStrategies, mixed: Mixed, assignment: Assignment) -> Price:
    """The price of a single row under an assignment; seconds and bytes by cause are those of the slowest stage."""
    seconds, at = mixed_seconds(row, mixed), row.group_at()[0]
    memory = _group_bytes(row, mixed)
    stages = assignment.layers * seconds.layer[0] + assignment.recomputed * seconds.recompute[0] + seconds.extra[0]
    slow = int(np.argmax(stages))
    group = int(at[slow])
    one = replace(seconds.groups[group], send=seconds.send[:, slow])
    slowest, total = stages[slow : slow + 1], np.array([stages.sum()])
    terms = breakdown(
        row.groups[group],
        one,
        slowest=slowest,
        total=total,
        layers=assignment.layers[slow : slow + 1].astype(np.float64),
        recomputed=assignment.recomputed[slow : slow + 1].astype(np.float64),
    )
    return Price(
        iteration=float(compose(row.groups[group], one, slowest, total)[0]),
        stage_seconds=stages,
        breakdown=terms.rows()[0],
        footprint=_footprint(row, mixed, memory, assignment),
        seconds=one,
        memory=memory[group],
    )


def _group_bytes(rows: MixedStrategies, mixed: Mixed) -> tuple[RowBytes, ...]:
    """The memory of each group's stages, of an average layer where layers differ, as their seconds are."""
    pairs = zip(rows.groups, mixed.scenarios, strict=True)
    return tuple(replace(row_bytes(group, one), kinds=None) for group, one in pairs)


def _footprint(row: MixedStrategies, mixed: Mixed, memory: Sequence[RowBytes], split: Assignment) -> Footprint:
    """Every stage's bytes as its group counts them."""
    each = [
        footprint(*one, row=0, layers=split.layers, recomputed=split.recomputed)
        for one in zip(row.groups, memory, mixed.scenarios, strict=True)
    ]
    at, stages = row.group_at()[0], np.arange(len(split.layers))
    parts = {f.name: np.stack([getattr(one, f.name) for one in each])[at, stages] for f in fields(Footprint)}
    return Footprint(**parts)
