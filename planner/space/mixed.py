"""The lattice of strategies over several node groups, refused by the same rules as that of one.

Every group takes contiguous stages of the pipeline. A core is a layout for each group (tp, dp and with them its
stages; cp is common) with what all share: the sequences of one micro-batch over all replicas, chunks, schedule,
switches. Each way to shard states and each order of the groups along the pipeline makes a branch of it, in which
only the layers of every stage are left to choose.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.groups import AnyScenario, Mixed, MixedStrategies
from costmodels.scenario import Scenario
from costmodels.strategy import AXES, Bools, Ints, Strategies, strategies
from planner.errors import BadRequest, OutOfTime
from planner.request.budget import CORE, Budget
from planner.request.pins import Pin
from planner.rules.conditions import REPEATS
from planner.rules.core import GROUP_RULES, Rule, sentence
from planner.space.active_rules import active
from planner.space.divisors import around, divisors, nearest_degrees
from planner.space.lattice import (
    LARGEST_MICRO_BATCH,
    Refusal,
    Space,
    axes_of,
    expand_partial,
    layouts,
    sharding_degrees,
    shown,
)
from planner.space.lattice import build as build_one

WIDTH = "group-width"
"""The rule that asks for as many ranks on every stage; without it groups may have stages of different widths."""

_LAYOUT = ("tp", "cp", "dp")
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
_SHARDING = {"zero_stage", "sharding_degree"}

Table = dict[str, NDArray[Any]]


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
    columns = {name: getattr(group, name) for name in AXES if name not in _SHARDING}
    return Strategies(**columns, zero_stage=zero_stage, sharding_degree=degree)


@dataclass
class _Lattice:
    """Rows under construction: columns that all groups share, and those of each."""

    mixed: Mixed
    rules: tuple[Rule, ...]
    shared: Table
    own: list[Table]
    beyond: int
    """Lattice points on axes not yet laid out that one row stands for."""
    split_apart: bool = False
    """Whether groups of one tensor rank go without the sequence parallelism of the others, as ``predict`` has it."""
    budget: Budget | None = None
    refusals: list[Refusal] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.own[0]["tp"])

    def columns(self, group: int) -> Table:
        """Columns of a group, as rules read them."""
        table = {**self.shared, **self.own[group]}
        if self.split_apart and "sequence_parallel" in table:
            table["sequence_parallel"] = table["sequence_parallel"] * (table["tp"] > 1)
        return table

    def keep(self, rows: NDArray[Any]) -> None:
        """The given rows alone (an index or mask)."""
        self.shared = {name: column[rows] for name, column in self.shared.items()}
        self.own = [{name: column[rows] for name, column in table.items()} for table in self.own]

    def expand(self, axis: str, values: NDArray[Any]) -> None:
        """The cross product with one more axis that all groups share."""
        rows = len(self)
        self.keep(np.repeat(np.arange(rows), len(values)))
        self.shared[axis] = np.tile(values, rows)
        self.beyond //= len(values)

    def refuse(self, new: set[str]) -> None:
        """Apply the rules that the new columns complete, group by group."""
        self.check_budget()
        known = set(self.columns(0))
        alive = np.ones(len(self), dtype=bool)
        for rule in self.rules:
            if set(rule.reads) <= known and set(rule.reads) & new:
                for g, scenario in enumerate(self.mixed.scenarios):
                    failed = alive & ~np.broadcast_to(rule.passes(self.columns(g), scenario), alive.shape)
                    self._note(rule, failed, g)
                    alive &= ~failed
        self.keep(alive)

    def check_budget(self) -> None:
        """Raises: OutOfTime: the budget is spent; half a lattice proves nothing."""
        if self.budget is None:
            return
        if self.budget.spent():
            said = f"no plan: {len(self):,} layouts were looked at and none was priced"
            raise OutOfTime(f"{said} {self.budget.limit}")
        self.budget.spend(CORE * len(self))

    def _note(self, rule: Rule, failed: Bools, group: int) -> None:
        if failed.any():
            row = {name: int(column[np.argmax(failed)]) for name, column in self.columns(group).items()}
            words = sentence(rule, row, self.mixed.scenarios[group])
            note(self.refusals, Refusal(rule.name, int(failed.sum()) * self.beyond, words))


def note(refusals: list[Refusal], new: Refusal) -> None:
    """Add a refusal, to the rule's earlier ones where there are any."""
    for place, known in enumerate(refusals):
        if known.rule == new.rule:
            refusals[place] = Refusal(known.rule, known.count + new.count, known.example)
            return
    refusals.append(new)


def build(mixed: Mixed, pins: Mapping[str, Pin], *, one_width: bool = True, budget: Budget | None = None) -> MixedSpace:
    """Lay out the lattice under the pins and apply every rule but memory.

    Args:
        mixed: the groups with all their GPUs.
        pins: tp, dp and micro-batch restrict every group, or each has its own, pp the whole pipeline.
        one_width: whether every stage has as many ranks.
        budget: what it may take, and is charged to; as much as it takes unless given.

    Raises:
        BadRequest: pinned degrees that cannot make up the GPUs of the groups.
        OutOfTime: it takes more than that.
    """
    lead = mixed.lead
    axes = axes_of(lead, {name: pin for name, pin in pins.items() if name != "micro_batch_size"})
    widths = np.array(divisors(lead.global_batch_size))
    orders = np.array(list(itertools.permutations(range(len(mixed.scenarios)))))
    beyond = len(widths) * math.prod(len(axes[name]) for name in _SHARED) * len(axes["sharding"]) * len(orders)
    lattice = _laid_out(mixed, pins, _rules(lead, pins, one_width=one_width), beyond)
    lattice.budget = budget
    candidates = len(lattice) * beyond
    lattice.refuse({"tp", "cp", "dp", "pp", "ranks", "widest"})
    lattice.expand("batch_width", widths)
    _deal_out(lattice, pins)
    for name in _SHARED:
        lattice.expand(name, axes[name])
        lattice.refuse({name})
    row, recompute = expand_partial(lattice.shared, axes["recompute"], axes["sharding"])
    if len(row) > len(lattice):
        candidates += (len(row) - len(lattice)) * len(axes["sharding"]) * len(orders)
        lattice.keep(row)
        lattice.shared["recompute"] = recompute
    return _with_sharding(lattice, axes["sharding"], orders, candidates)


def _rules(lead: Scenario, pins: Mapping[str, Pin], *, one_width: bool) -> tuple[Rule, ...]:
    """The rules of groups first: what they refuse, no other rule needs to."""
    usual = active(lead, frozenset(pins))
    return tuple(rule for rule in (*GROUP_RULES, *usual) if one_width or rule.name != WIDTH)


def _laid_out(mixed: Mixed, pins: Mapping[str, Pin], rules: tuple[Rule, ...], beyond: int) -> _Lattice:
    """Every combination of the groups' layouts with one cp, and no more stages than layers."""
    layers = mixed.lead.model.num_layers
    own = [
        _layouts(one, {name: pin.of(g) for name, pin in pins.items()}, most=layers)
        for g, one in enumerate(mixed.scenarios)
    ]
    joined = own[:1]
    for table in own[1:]:
        same = joined[0]["cp"][:, None] == table["cp"][None, :]
        stages = sum((one["stages"] for one in joined), np.zeros(1, np.int64))[:, None] + table["stages"][None, :]
        left, right = np.nonzero(same & (stages <= layers))
        joined = [{name: column[left] for name, column in one.items()} for one in joined]
        joined.append({name: column[right] for name, column in table.items()})
    shared = {"cp": joined[0]["cp"], "pp": np.sum([one["stages"] for one in joined], axis=0)}
    widest = np.max([one["ranks"] for one in joined], axis=0)
    split_apart = "tp" in pins and max(pins["tp"].each, default=1) > 1
    lattice = _Lattice(mixed, rules, {**shared, "widest": widest}, joined, beyond, split_apart)
    if "pp" in pins:
        kept = np.isin(shared["pp"], pins["pp"].restrict(np.unique(shared["pp"]).tolist()))
        if not kept.any():
            raise BadRequest(_no_pipeline(mixed, pins, shared["pp"]))
        lattice.keep(kept)
    return lattice


def _no_pipeline(mixed: Mixed, pins: Mapping[str, Pin], known: Ints) -> str:
    wanted = pins["pp"].values[0] if pins["pp"].values else pins["pp"].low
    what = " + ".join(f"{one.gpus} {one.group.name}" for one in mixed.scenarios)
    near = around(np.unique(known).tolist(), wanted) if len(known) else "no number of stages does"
    return f"pp {shown(pins['pp'])} stages cannot be made of {what} GPUs; {near}"


def _layouts(scenario: Scenario, pins: Mapping[str, Pin], *, most: int) -> Table:
    """Every tp x cp x dp ranks of a stage that divide the group's GPUs, with the stages that they leave."""
    gpus, whole = scenario.gpus, divisors(scenario.gpus)
    degrees = [_allowed(scenario, pins, name, whole) for name in _LAYOUT]
    tp, cp, dp = (axis.reshape(-1) for axis in np.meshgrid(*degrees, indexing="ij"))
    ranks = tp * cp * dp
    kept = (gpus % ranks == 0) & (gpus // np.minimum(ranks, gpus) <= most)
    tp, cp, dp, ranks = (column[kept] for column in (tp, cp, dp, ranks))
    if not len(tp):
        asked = {name: pins[name] for name in _LAYOUT if name in pins}
        said = ", ".join(f"{name} {shown(pin)}" for name, pin in asked.items()) or "no layout"
        near = f"; {nearest_degrees(layouts(gpus, {}), asked)} can" if asked else ""
        raise BadRequest(f"{said} cannot make up the {gpus} GPUs of node group {scenario.group.name}{near}")
    return {"tp": tp, "cp": cp, "dp": dp, "ranks": ranks, "stages": gpus // ranks}


def _allowed(scenario: Scenario, pins: Mapping[str, Pin], name: str, whole: list[int]) -> Ints:
    wanted = pins[name].restrict(whole) if name in pins else tuple(whole)
    found = np.array([d for d in wanted if scenario.gpus % d == 0], dtype=np.int64)
    if not len(found):
        asked, near = shown(pins[name]), around(whole, wanted[0] if wanted else 1)
        raise BadRequest(f"{name} {asked} does not divide the {scenario.gpus} GPUs of {scenario.group.name}; {near}")
    return found


def _deal_out(lattice: _Lattice, pins: Mapping[str, Pin]) -> None:
    """Each group's micro-batch: its share of the sequences that all replicas take at a time."""
    lattice.refuse({"batch_width"})
    wanted = pins.get("micro_batch_size")
    kept = np.ones(len(lattice), dtype=bool)
    for g, table in enumerate(lattice.own):
        table["micro_batch_size"] = lattice.shared["batch_width"] // table["dp"]
        usual = np.unique(table["micro_batch_size"][table["micro_batch_size"] <= LARGEST_MICRO_BATCH])
        kept &= np.isin(table["micro_batch_size"], wanted.of(g).restrict(usual.tolist()) if wanted else usual)
    if wanted and not kept.any() and len(kept):
        _note_micro_batch(lattice, wanted)
    lattice.keep(kept)
    lattice.refuse({"micro_batch_size"})


def _note_micro_batch(lattice: _Lattice, wanted: Pin) -> None:
    """No row has the pinned micro-batch on every group: say so, with those that the other pins leave."""
    own = [table["micro_batch_size"] for table in lattice.own]
    able = np.unique(own[0][np.all([one == own[0] for one in own], axis=0) & (own[0] <= LARGEST_MICRO_BATCH)]).tolist()
    batch = lattice.mixed.lead.global_batch_size
    near = f"; {around(able, wanted.values[0] if wanted.values else wanted.low)}" if able else ""
    words = f"micro-batch {shown(wanted)} does not divide the batch of {batch} among the replicas of every group{near}"
    note(lattice.refusals, Refusal("batch-divides", len(lattice) * lattice.beyond, words))


def _with_sharding(lattice: _Lattice, options: Ints, orders: Ints, candidates: int) -> MixedSpace:
    scenarios = lattice.mixed.scenarios
    stage, degree = options.T
    zero, shards = _shards(lattice, stage[None, :], degree[None, :])
    allowed = np.ones(zero.shape[:2], dtype=bool)
    for rule in lattice.rules:
        if set(rule.reads) & _SHARDING:
            lattice.check_budget()
            for g, scenario in enumerate(scenarios):
                wide = {name: column[:, None] for name, column in lattice.columns(g).items()}
                wide |= {"zero_stage": zero[:, :, g], "sharding_degree": shards[:, :, g]}
                failed = allowed & ~np.broadcast_to(rule.passes(wide, scenario), allowed.shape)
                _note_pair(lattice, rule, failed, wide, scenario, len(orders))
                allowed &= ~failed
    return MixedSpace(
        candidates=candidates,
        cores=_cores(lattice),
        zero_stage=zero,
        layout=np.arange(len(lattice)),
        degree=shards,
        allowed=allowed,
        refusals=tuple(lattice.refusals),
        orders=orders,
        one_width=any(rule.name == WIDTH for rule in lattice.rules),
    )


def _note_pair(lattice: _Lattice, rule: Rule, failed: Bools, wide: Table, scenario: Scenario, times: int) -> None:
    if failed.any():
        core, option = (int(place[0]) for place in np.nonzero(failed))
        row = {name: int(np.broadcast_to(column, failed.shape)[core, option]) for name, column in wide.items()}
        note(lattice.refusals, Refusal(rule.name, int(failed.sum()) * times, sentence(rule, row, scenario)))


def _shards(lattice: _Lattice, stage: Ints, degree: Ints) -> tuple[Ints, Ints]:
    """ZeRO stage and sharding degree of every group, (C, Z, G).

    A group with one rank has nothing to share where others have; where a node's ranks are all or one, the group
    shares over all its ranks, and the option repeats another one if that is so in every group.
    """
    ranks = [table["dp"] * lattice.shared["cp"] for table in lattice.own]
    several = np.max(ranks, axis=0)[:, None] > 1
    near, zero = [], []
    for g in range(len(lattice.mixed.scenarios)):
        wide = {name: lattice.columns(g)[name][:, None] for name in ("dp", "cp", "tp")} | {"zero_stage": stage}
        near.append(np.broadcast_to(sharding_degrees(wide, degree), (len(lattice), stage.shape[1])))
        alone = several & (ranks[g][:, None] == 1)
        zero.append(np.where(alone, 0, stage))
    repeats = np.all([one == REPEATS for one in near], axis=0)
    whole = [np.where((one == REPEATS) & ~repeats, ranks[g][:, None], one) for g, one in enumerate(near)]
    shards = [np.where(z == 0, np.where(stage == 0, degree, 1), one) for z, one in zip(zero, whole, strict=True)]
    return np.stack(zero, axis=2), np.stack(shards, axis=2)


def _cores(lattice: _Lattice) -> MixedStrategies:
    names = (*_SHARED, "cp", "pp", "tp", "dp", "micro_batch_size")
    batches = lattice.mixed.lead.global_batch_size // lattice.shared["batch_width"]
    groups = tuple(
        strategies(**{name: table[name] for name in names}, num_microbatches=batches)
        for table in map(lattice.columns, range(len(lattice.own)))
    )
    stages = np.stack([table["stages"] for table in lattice.own], axis=1)
    order = np.tile(np.arange(len(groups)), (len(lattice), 1))
    return MixedStrategies.of(groups, stages, order)


def lay_out(
    question: AnyScenario, pins: Mapping[str, Pin], *, one_width: bool = True, budget: Budget | None = None
) -> Space:
    """The lattice of a question on one node group or several; arguments and errors as of ``build``."""
    if isinstance(question, Mixed):
        return build(question, pins, one_width=one_width, budget=budget)
    return build_one(question, pins)
