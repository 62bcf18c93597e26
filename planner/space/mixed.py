"""The lattice of strategies over several node groups, refused by the same rules as that of one.

Every group takes contiguous stages of the pipeline. A core is a layout for each group (tp, dp and with them its
stages; cp is common) with what all share: the sequences of one micro-batch over all replicas, chunks, schedule,
switches. Each way to shard states and each order of the groups along the pipeline makes a branch of it, in which
only the layers of every stage are left to choose.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from costmodels.node_groups import AnyScenario, Mixed, MixedStrategies
from costmodels.scenario import Scenario
from costmodels.strategy import AXES, Bools, Ints, Strategies, strategies
from planner.errors import BadRequest
from planner.request.budget import Budget
from planner.request.pins import Pin
from planner.rules.conditions import REPEATS
from planner.rules.core import Rule
from planner.rules.divisors import around, divisors
from planner.space.active_rules import active, of_groups
from planner.space.lattice import (
    LARGEST_MICRO_BATCH,
    LAYER,
    Space,
    add_partial,
    axes_of,
    layouts,
    shown,
)
from planner.space.lattice import build as build_one
from planner.space.sharding import SHARDING, sharding_degrees
from planner.space.table import Columns, Refusal, Table, chosen

WIDTH = "group-width"
"""The rule that asks for as many ranks on every stage; without it groups may have stages of different widths."""

_SHARED = (
    "cp_kind",
    "vpp",
    "ep",
    "etp",
    "schedule",
    "sequence_parallel",
    "recompute",
    "recompute_modules",
    "offload",
    "rank_order",
    "vocabulary",
    "recompute_num_layers",
)


@dataclass(frozen=True)
class MixedSpace(Space):
    """All strategies over the groups, those that pass every rule but memory as cores x sharding x orders.

    ``zero_stage`` and ``degree`` are of every group, (C, Z, G); ``allowed[c, z]`` says whether core c may take
    sharding option z; ``orders`` (K, G) lists the groups' orders along the pipeline. ``one_width``: every stage has as
    many ranks.
    """

    cores: MixedStrategies
    orders: Ints
    one_width: bool

    def branches(self, cores: Ints) -> MixedStrategies:
        """Every branch of the given cores."""
        place, option = np.nonzero(self.allowed[cores])
        core = np.repeat(cores[place], len(self.orders))
        option = np.repeat(option, len(self.orders))
        order = np.tile(self.orders, (len(place), 1))
        taken = self.cores.take(core)
        groups = tuple(
            _sharded(group, self.zero_stage[core, option, g], self.degree[core, option, g])
            for g, group in enumerate(taken.groups)
        )
        return MixedStrategies.of(groups, taken.stages, order)


def _sharded(group: Strategies, zero_stage: Ints, degree: Ints) -> Strategies:
    columns = {name: getattr(group, name) for name in AXES if name not in SHARDING}
    return Strategies(**columns, zero_stage=zero_stage, sharding_degree=degree)


LikelyOnGroups = Callable[[MixedStrategies], Bools]
"""Which rows over several node groups are worth laying out further, (N,), by the axes of `LAYER`."""


def build(
    mixed: Mixed,
    pins: Mapping[str, Pin],
    *,
    one_width: bool = True,
    budget: Budget | None = None,
    likely: LikelyOnGroups | None = None,
) -> MixedSpace:
    """Lay out the lattice under the pins and apply every rule but memory.

    Args:
        mixed: the groups with all their GPUs.
        pins: tp, dp and micro-batch restrict every group, or each has its own, pp the whole pipeline.
        one_width: whether every stage has as many ranks.
        budget: what it may take, and is charged to; as much as it takes unless given.
        likely: what alone is laid out, where somebody knows; counts and refusals are then of no use.

    Raises:
        BadRequest: pinned degrees that cannot make up the GPUs of the groups.
        OutOfTime: it takes more than that.
    """
    lead = mixed.lead
    axes = axes_of(lead, {name: pin for name, pin in pins.items() if name != "micro_batch_size"})
    widths = np.array(divisors(lead.global_batch_size))
    orders = np.array(list(itertools.permutations(range(len(mixed.scenarios)))))
    beyond = len(widths) * math.prod(len(axes[name]) for name in _SHARED) * len(axes["sharding"]) * len(orders)
    table = _laid_out(mixed, pins, _rules(lead, pins, one_width=one_width), beyond)
    table.budget = budget
    candidates = len(table) * beyond
    table.refuse({"tp", "cp", "dp", "pp", "ranks", "widest", "most_tp", "most_dp"})
    table.expand("batch_width", widths)
    _deal_out(table, pins)
    early = [name for name in _SHARED if likely and name in LAYER]
    for name in early:
        table.expand(name, axes[name])
    if likely:
        table.keep(np.flatnonzero(likely(_cores(table))))
    for name in (name for name in _SHARED if name not in early):
        table.expand(name, axes[name])
    candidates += add_partial(table, axes["recompute"], axes["sharding"]) * len(orders)
    return _with_sharding(table, axes["sharding"], orders, candidates, one_width=one_width)


def _rules(lead: Scenario, pins: Mapping[str, Pin], *, one_width: bool) -> tuple[Rule, ...]:
    """The rules of groups first: what they refuse, no other rule needs to."""
    usual = active(lead, frozenset(pins))
    return tuple(rule for rule in (*of_groups(lead), *usual) if one_width or rule.name != WIDTH)


def _laid_out(mixed: Mixed, pins: Mapping[str, Pin], rules: tuple[Rule, ...], beyond: int) -> Table:
    """Every combination of the groups' layouts with one cp, and no more stages than layers."""
    layers = mixed.lead.model.num_layers
    own = [
        _layouts(one, {name: pin.of(g) for name, pin in pins.items() if name != "pp"}, most=layers)
        for g, one in enumerate(mixed.scenarios)
    ]
    joined = own[:1]
    for other in own[1:]:
        same = joined[0]["cp"][:, None] == other["cp"][None, :]
        stages = sum((one["stages"] for one in joined), np.zeros(1, np.int64))[:, None] + other["stages"][None, :]
        left, right = np.nonzero(same & (stages <= layers))
        joined = [chosen(one, left) for one in joined]
        joined.append(chosen(other, right))
    shared = {"cp": joined[0]["cp"], "pp": np.sum([one["stages"] for one in joined], axis=0)}
    most = {"widest": "ranks", "most_tp": "tp", "most_dp": "dp"}
    shared |= {name: np.max([one[axis] for one in joined], axis=0) for name, axis in most.items()}
    split_apart = "tp" in pins and max(pins["tp"].each, default=1) > 1
    table = Table(mixed.scenarios, rules, shared, beyond, joined, split_apart)
    if "pp" in pins:
        kept = np.isin(shared["pp"], pins["pp"].restrict(np.unique(shared["pp"]).tolist()))
        if not kept.any():
            raise BadRequest(_no_pipeline(mixed, pins, shared["pp"]))
        table.keep(np.flatnonzero(kept))
    return table


def _no_pipeline(mixed: Mixed, pins: Mapping[str, Pin], known: Ints) -> str:
    wanted = pins["pp"].values[0] if pins["pp"].values else pins["pp"].low
    what = " + ".join(f"{one.gpus} {one.group.name}" for one in mixed.scenarios)
    near = around(np.unique(known).tolist(), wanted) if len(known) else "no number of stages works"
    return f"pp {shown(pins['pp'])} stages cannot be made of {what} GPUs; {near}"


def _layouts(scenario: Scenario, pins: Mapping[str, Pin], *, most: int) -> Columns:
    """Every tp x cp x dp ranks of a stage that divide the group's GPUs, with the stages that they leave."""
    columns = layouts(scenario.gpus, pins, of=scenario.group.name)
    kept = np.flatnonzero(columns["pp"] <= most)
    tp, cp, pp, dp = (columns[name][kept] for name in ("tp", "cp", "pp", "dp"))
    order = np.lexsort((dp, cp, tp))
    return {name: x[order] for name, x in {"tp": tp, "cp": cp, "dp": dp, "ranks": tp * cp * dp, "stages": pp}.items()}


def _deal_out(table: Table, pins: Mapping[str, Pin]) -> None:
    """Each group's micro-batch: its share of the sequences that all replicas take at a time."""
    wanted = pins.get("micro_batch_size")
    kept = np.ones(len(table), dtype=bool)
    for g, own in enumerate(table.own):
        own["micro_batch_size"] = size = table.shared["batch_width"] // own["dp"]
        usual = np.unique(size[size <= LARGEST_MICRO_BATCH])
        kept &= np.isin(size, wanted.of(g).restrict(usual.tolist()) if wanted else usual)
    if wanted and not kept.any() and len(kept):
        _note_micro_batch(table, wanted)
    table.keep(np.flatnonzero(kept))
    table.refuse({"micro_batch_size"})


def _note_micro_batch(table: Table, wanted: Pin) -> None:
    """No row has the pinned micro-batch on every group: say so, with those that the other pins leave."""
    own = [one["micro_batch_size"] for one in table.own]
    able = np.unique(own[0][np.all([one == own[0] for one in own], axis=0) & (own[0] <= LARGEST_MICRO_BATCH)]).tolist()
    batch = table.parts[0].global_batch_size
    near = f"; {around(able, wanted.values[0] if wanted.values else wanted.low)}" if able else ""
    words = f"micro-batch {shown(wanted)} does not divide the batch of {batch} among the replicas of every group{near}"
    table.note(Refusal("batch-divides", len(table) * table.beyond, words))


def _with_sharding(table: Table, options: Ints, orders: Ints, candidates: int, *, one_width: bool) -> MixedSpace:
    stage, degree = options.T
    zero, shards = _shards(table, stage[None, :], degree[None, :])
    allowed = np.ones(zero.shape[:2], dtype=bool)
    for rule in table.rules:
        if set(rule.reads) & SHARDING:
            table.check_budget(len(table))
            for g, scenario in enumerate(table.parts):
                wide = {name: column[:, None] for name, column in table.columns(g).items()}
                wide |= {"zero_stage": zero[:, :, g], "sharding_degree": shards[:, :, g]}
                failed = allowed & ~np.broadcast_to(rule.passes(wide, scenario), allowed.shape)
                table.note_options(rule, failed, wide, g, np.array([len(orders)]))
                allowed &= ~failed
    return MixedSpace(
        candidates=candidates,
        cores=_cores(table),
        zero_stage=zero,
        layout=np.arange(len(table)),
        degree=shards,
        allowed=allowed,
        refusals=tuple(table.refusals),
        orders=orders,
        one_width=one_width,
    )


def _shards(table: Table, stage: Ints, degree: Ints) -> tuple[Ints, Ints]:
    """ZeRO stage and sharding degree of every group, (C, Z, G).

    A group with one rank has nothing to share where others have; where a node's ranks are all or one, the group
    shares over all its ranks, and the option repeats another one if that is so in every group.
    """
    ranks = [own["dp"] * table.shared["cp"] for own in table.own]
    several = np.max(ranks, axis=0)[:, None] > 1
    near, zero = [], []
    for g in range(len(table.parts)):
        wide = {name: table.columns(g)[name][:, None] for name in ("dp", "cp", "tp")} | {"zero_stage": stage}
        near.append(np.broadcast_to(sharding_degrees(wide, degree), (len(table), stage.shape[1])))
        zero.append(np.where(several & (ranks[g][:, None] == 1), 0, stage))
    repeats = np.all([one == REPEATS for one in near], axis=0)
    whole = [np.where((one == REPEATS) & ~repeats, ranks[g][:, None], one) for g, one in enumerate(near)]
    shards = [np.where(z == 0, np.where(stage == 0, degree, 1), one) for z, one in zip(zero, whole, strict=True)]
    return np.stack(zero, axis=2), np.stack(shards, axis=2)


def _cores(table: Table) -> MixedStrategies:
    names = (*_SHARED, "cp", "pp", "tp", "dp", "micro_batch_size")
    batches = table.parts[0].global_batch_size // table.shared["batch_width"]
    columns = [{name: x for name, x in table.columns(g).items() if name in names} for g in range(len(table.own))]
    groups = tuple(strategies(**one, num_microbatches=batches) for one in columns)
    stages = np.stack([one["stages"] for one in table.own], axis=1)
    return MixedStrategies.of(groups, stages, np.tile(np.arange(len(groups)), (len(table), 1)))


def lay_out(
    question: AnyScenario, pins: Mapping[str, Pin], *, one_width: bool = True, budget: Budget | None = None
) -> Space:
    """The lattice of a question on one node group or several; arguments and errors as of ``build``."""
    if isinstance(question, Mixed):
        return build(question, pins, one_width=one_width, budget=budget)
    return build_one(question, pins)
