"""Runners-up: the best strategies that differ in kind from the plan and from each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from costmodels.model.flops import utilization
from costmodels.names import Recompute
from costmodels.node_groups import AnyScenario, MixedStrategies, held_bytes, parts_of
from costmodels.strategy import Bools, Strategies
from costmodels.useful_flops import counted_flops
from planner.answer.build import mean_peak, order_in_words, strategy_record
from planner.answer.plan import Alternative, Strategy
from planner.explain.why_not import Challenged
from planner.request.budget import Budget
from planner.request.resolve import Resolved
from planner.search.best_first import Outcome
from planner.search.choice import SURE, faster, points_of
from planner.search.objective import Objective, Search
from planner.search.split import Incumbent

_COMPARED = (
    *("tp", "cp", "pp", "ep", "zero_stage", "recompute", "sequence_parallel", "schedule"),
    *("cp_kind", "vpp", "micro_batch_size"),
)
"""Axes in which alternatives are said to differ."""
_COMPARED_BY_GROUP = ("tp", "cp", "pp", "dp", "vpp", "micro_batch_size")
"""Those over several node groups."""


class RunnersUp(NamedTuple):
    """The best of every kind that was looked at, the best of all first, and whether all were looked at."""

    best: tuple[Incumbent, ...]
    complete: bool


def runners_up(search: Search, tried: Sequence[Challenged], budget: Budget) -> RunnersUp:
    """The best of their kinds, the plan's own among them; each under its best split.

    They come from the challenges that were searched and from the most promising rows that the search saw.
    """
    question, outcome = search.objective.question, search.outcome
    kinds = _Kinds(search, budget)
    alike = [one for one in tried if one.question is question]
    searched = (outcome.best, search.taken, *(one.outcome.best for one in alike))
    for known in sorted((best for best in searched if best), key=search.objective.value):
        kinds.add(known)
    reach = _enough(outcome, kinds.top) if search.objective.by_time else math.inf
    complete = kinds.look(reach) and all(one.outcome.proved for one in alike)
    if kinds.last > reach:
        complete = kinds.look(math.inf) and complete
    best = tuple(one for _, one in sorted(kinds.found, key=lambda pair: pair[0]))
    return RunnersUp(best, complete and not budget.late)


class _Kinds:
    """The best that was found of every kind, and which kinds were seen."""

    def __init__(self, search: Search, budget: Budget) -> None:
        self.search, self.budget, self.top = search, budget, search.resolved.request.top
        self.seen = set[tuple[object, ...]]()
        self.found: list[tuple[float, Incumbent]] = []

    def add(self, solved: Incumbent) -> None:
        record = strategy_record(solved.row, solved.assignment, self.search.objective.question)
        kind = _kind(solved.row, record)
        if kind not in self.seen:
            self.found.append((self.search.objective.value(solved), solved))
        self.seen.update((kind, *_row_kinds(solved.row)))

    def unseen(self, rows: Strategies) -> Bools:
        """Which rows are of a kind that was not seen, (N,)."""
        return np.array([kind not in self.seen for kind in _row_kinds(rows)], dtype=bool)

    @property
    def last(self) -> float:
        """The value from which on nothing can be among the runners-up; infinite until there are enough."""
        if len(self.found) <= self.top:
            return math.inf
        return sorted(value for value, _ in self.found)[self.top] if self.top else 0.0

    def look(self, reach: float) -> bool:
        """Add the kinds that take less than so many seconds, and whether the budget sufficed for all."""
        objective, below = self.search.objective, min(reach, self.last)
        for bound, row in objective.promising(self.search.outcome, self.budget, below, self.unseen):
            if bound >= self.last:
                break
            if self.budget.spent():
                return False
            if self.unseen(row)[0] and (solved := objective.split(row, self.budget)):
                self.add(solved)
        return True


def _enough(outcome: Outcome, top: int) -> float:
    """Seconds in which the best ``top`` kinds but the plan surely run: layouts whose even split takes no longer."""
    least: dict[tuple[int, ...], float] = {}
    for part in outcome.pool:
        near = part.take(part.fits & np.isfinite(part.even_split_seconds))
        if len(near.rows):
            layouts, inverse = near.rows.distinct("tp", "cp", "pp", "ep")
            seconds = np.full(len(layouts), np.inf)
            np.minimum.at(seconds, inverse, near.even_split_seconds)
            kinds = zip(*(getattr(layouts, name).tolist() for name in ("tp", "cp", "pp", "ep")), strict=True)
            for kind, value in zip(kinds, seconds.tolist(), strict=True):
                least[kind] = min(value, least.get(kind, np.inf))
    return sorted(least.values())[top] if len(least) > top else np.inf


def alternatives(search: Search, others: Sequence[Incumbent]) -> tuple[Alternative, ...]:
    """The runners-up that are not of the kind of the strategy taken, best first."""
    resolved, objective, taken, best = search.resolved, search.objective, search.taken, search.outcome.best
    assert best is not None
    question = resolved.question
    chosen = strategy_record(taken.row, taken.assignment, question)
    pairs = ((solved, strategy_record(solved.row, solved.assignment, question)) for solved in others)
    apart = ((solved, one) for solved, one in pairs if _kind(solved.row, one) != _kind(taken.row, chosen))
    shown, known = [], None if objective.by_memory else points_of(best, resolved)
    for solved, record in islice(apart, resolved.request.top):
        differs = ", ".join(_differences(solved.row, record, taken.row, chosen, question))
        tied = known is not None and faster(best, solved, resolved, known) < SURE
        shown.append(_alternative(record, solved, objective, resolved, differs, tied=tied))
    return tuple(shown)


def _alternative(
    record: Strategy, solved: Incumbent, objective: Objective, resolved: Resolved, differs: str, *, tied: bool
) -> Alternative:
    scenario, seconds = resolved.scenario, objective.seconds(solved)
    flops = counted_flops(scenario) * scenario.tokens
    return Alternative(
        strategy=record,
        iteration_seconds=seconds,
        mfu=utilization(flops=flops, seconds=seconds, gpus=scenario.gpus, peak=mean_peak(resolved)),
        peak_memory_bytes=float(np.max(held_bytes(solved.row, resolved.question, solved.assignment).total)),
        effective=objective.effective(solved) if objective.name == "goodput" else None,
        differs=differs,
        tied=tied,
    )


def _differences(
    row: Strategies, record: Strategy, other: Strategies, chosen: Strategy, question: AnyScenario
) -> list[str]:
    """What a strategy has otherwise than the one chosen, in words; by node group where they differ."""
    if not (isinstance(row, MixedStrategies) and isinstance(other, MixedStrategies)):
        names = [name for name in _COMPARED if getattr(record, name) != getattr(chosen, name)]
        return [f"{name} {getattr(record, name)}" for name in names]
    said = [(_degree(name, row, question), _degree(name, other, question)) for name in _COMPARED_BY_GROUP]
    order = [order_in_words(row.order[0], question)] if (row.order != other.order).any() else []
    return [mine for mine, its in said if mine != its] + order


def _degree(name: str, row: MixedStrategies, question: AnyScenario) -> str:
    """An axis of a strategy in words, by node group where they differ: "tp 2 on old, 1 on new"."""
    values = [int(getattr(group, name)[0]) for group in row.groups]
    if len(set(values)) == 1:
        return f"{name} {values[0]}"
    by_group = zip(values, parts_of(question), strict=True)
    return f"{name} " + ", ".join(f"{value} on {one.group.name}" for value, one in by_group)


def _kind(row: Strategies, record: Strategy) -> tuple[object, ...]:
    """All that strategies of a kind have in common; over several node groups that is their layout."""
    if isinstance(row, MixedStrategies):
        return _row_kinds(row)[0]
    return (record.tp, record.cp, record.pp, record.ep, record.recompute == "none", record.zero_stage >= 2)


def _row_kinds(rows: Strategies) -> list[tuple[object, ...]]:
    """The kinds of rows before their recomputed layers are known: "partial" stands apart from none and all."""
    if isinstance(rows, MixedStrategies):
        degrees = [getattr(group, name).tolist() for group in rows.groups for name in ("tp", "cp", "dp")]
        return list(zip(*degrees, map(tuple, rows.order.tolist()), strict=True))
    degrees = [getattr(rows, name).tolist() for name in ("tp", "cp", "pp", "ep")]
    recompute = [Recompute(kind).name for kind in rows.recompute.tolist()]
    return list(zip(*degrees, recompute, (rows.zero_stage >= 2).tolist(), strict=True))
