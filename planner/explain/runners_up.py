"""Runners-up: the best strategies that differ in kind from the plan and from each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from costmodels.model.flops import utilization
from costmodels.names import Recompute
from costmodels.pricing import effective_recompute, stage_bytes
from costmodels.strategy import Strategies
from planner.answer.build import counted_flops, strategy_record
from planner.answer.plan import Alternative, Strategy
from planner.explain.why_not import Challenged
from planner.request.budget import Budget
from planner.request.resolve import Resolved
from planner.search.best_first import Outcome
from planner.search.objective import Objective
from planner.search.split import Incumbent
from planner.trust.table import figures

_KINDS = ("tp", "cp", "pp", "ep", "zero_stage", "recompute", "sequence_parallel", "schedule")


class RunnersUp(NamedTuple):
    """The best of every kind that was looked at, the best of all first, and whether all were looked at."""

    best: tuple[Incumbent, ...]
    complete: bool


def runners_up(
    outcome: Outcome, tried: Sequence[Challenged], objective: Objective, taken: Incumbent, top: int, *, budget: Budget
) -> RunnersUp:
    """The best of their kinds, the plan's own among them; each under its best split.

    They come from the challenges that were searched and from the most promising rows that the search saw.
    """
    scenario, seen = objective.scenario, set[tuple[object, ...]]()
    found: list[tuple[float, Incumbent]] = []

    def add(solved: Incumbent) -> None:
        kind = _kind(strategy_record(solved.row, solved.assignment, scenario))
        if kind not in seen:
            found.append((objective.value(solved), solved))
        seen.update((kind, _row_kind(solved.row)))

    searched = (outcome.best, taken, *(one.outcome.best for one in tried))
    for known in sorted((best for best in searched if best), key=objective.value):
        add(known)
    complete = all(one.outcome.proved for one in tried)
    for bound, row in objective.promising(outcome):
        if _settled([value for value, _ in found], top, bound):
            break
        if budget.spent():
            complete = False
            break
        if _row_kind(row) not in seen and (solved := objective.split(row, budget)):
            add(solved)
    return RunnersUp(tuple(one for _, one in sorted(found, key=lambda pair: pair[0])), complete)


def _settled(values: list[float], top: int, bound: float) -> bool:
    """Whether no later row, none of them better than ``bound``, can be among the best ``top`` beside the plan."""
    return len(values) > top and (top == 0 or bound >= sorted(values)[top])


def alternatives(
    others: Sequence[Incumbent], objective: Objective, resolved: Resolved, chosen: Strategy, best: Incumbent
) -> tuple[Alternative, ...]:
    """The runners-up that are not of the chosen strategy's kind, best first."""
    shown, least = [], objective.value(best)
    for solved in others:
        record = strategy_record(solved.row, solved.assignment, resolved.scenario)
        if _kind(record) != _kind(chosen):
            shown.append(_alternative(record, solved, objective, resolved, chosen, least))
    return tuple(shown[: resolved.request.top])


def _alternative(
    record: Strategy, solved: Incumbent, objective: Objective, resolved: Resolved, chosen: Strategy, least: float
) -> Alternative:
    scenario = resolved.scenario
    seconds, runs = objective.seconds(solved), effective_recompute(solved.row, solved.assignment)
    flops = counted_flops(scenario) * scenario.tokens
    differs = [
        name
        for name in (*_KINDS, "cp_kind", "vpp", "micro_batch_size")
        if getattr(record, name) != getattr(chosen, name)
    ]
    return Alternative(
        strategy=record,
        iteration_seconds=seconds,
        mfu=utilization(flops=flops, seconds=seconds, gpus=scenario.gpus, peak=scenario.peak_rate),
        peak_memory_bytes=float(np.max(stage_bytes(runs, scenario, solved.assignment).total)),
        effective=objective.effective(solved) if objective.name == "goodput" else None,
        differs=", ".join(f"{name} {getattr(record, name)}" for name in differs),
        tied=not objective.by_memory and objective.value(solved) <= least * (1.0 + figures().tie),
    )


def _kind(record: Strategy) -> tuple[object, ...]:
    return (record.tp, record.cp, record.pp, record.ep, record.recompute == "none", record.zero_stage >= 2)


def _row_kind(row: Strategies) -> tuple[object, ...]:
    """The kind of a row before its recomputed layers are known: "partial" stands apart from none and all."""
    at = row.row(0)
    return (at["tp"], at["cp"], at["pp"], at["ep"], Recompute(at["recompute"]).name, at["zero_stage"] >= 2)
