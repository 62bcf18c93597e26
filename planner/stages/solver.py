"""Layers and recomputed layers per pipeline stage: the optimum of one problem, proved.

Memory is settled in the tables of ``planner.stages.tables``. A greedy split that meets a lower bound needs no solver,
nor do two stages; CP-SAT [CP-SAT] proves the rest. ``stage_lower_bound`` answers for many problems at once,
optimistically and without a solver.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Literal

import numpy as np

from costmodels.pipeline.schedules import pipeline_seconds
from planner.request.budget import SOLVE, SPLIT, Budget
from planner.stages.boolean_model import Scale, boolean_model, scale_of
from planner.stages.chain import Found, may_beat, may_fit, solve_chain
from planner.stages.problem import StageProblem
from planner.stages.tables import (
    Split,
    StageTable,
    evened,
    floors,
    has_split,
    incumbent,
    objective,
    slowest_below,
    split_of,
    stage_table,
    within,
)

_SOLVER = {
    "num_workers": 1,
    "random_seed": 0,
    "catch_sigint_signal": False,
    "linearization_level": 2,
    "cp_model_presolve": False,
}
"""Deterministic, and the fastest of ten settings on 290 hard problems of 96 layers: 3.5 ms, at most 21."""
_PROVED = 1e-8
"""Relative distance of bound and objective at which a solution is proved."""
_ROUNDING = 1e-13
"""Relative difference between two sums of the same seconds."""


@dataclass(frozen=True, slots=True)
class StageSolution:
    """An answer to a ``StageProblem``.

    Attributes:
        layers: layers per stage; empty where there is no answer.
        recompute_layers: recomputed layers per stage.
        slowest_seconds: forward and backward seconds of the slowest stage per micro-batch.
        total_seconds: the same, summed over the stages.
        objective_seconds: ``pipeline_seconds`` of the two.
        bound_seconds: no split is faster than this (within the cutoff, where there was one).
        status: "optimal" (proved to a relative 1e-8), "feasible" (the budget ran out), "infeasible" (proved:
            nothing fits, or nothing is faster than the cutoff), "unknown" (the budget ran out below the cutoff).
    """

    layers: tuple[int, ...]
    recompute_layers: tuple[int, ...]
    slowest_seconds: float
    total_seconds: float
    objective_seconds: float
    bound_seconds: float
    status: Literal["optimal", "feasible", "infeasible", "unknown"]


def solve(
    problem: StageProblem,
    *,
    cutoff_seconds: float | None = None,
    budget: Budget | None = None,
    hint: Sequence[int] | None = None,
) -> StageSolution:
    """The fastest split of the layers that fits in memory, with its proof.

    Minimises ``pipeline_seconds`` over layers and recomputed layers per stage. Among equally fast splits it
    takes one with the fewest recomputed layers, and evens out the layers as far as moves between two stages
    can. A bound that meets a greedy split settles most problems; CP-SAT (one worker, fixed seed) settles the
    rest. Slices that differ are split by dynamic programming (``planner.stages.chain``).

    Args:
        problem: what to split.
        cutoff_seconds: only splits faster than this are of interest.
        budget: what the answer may take, and is charged to; one of its own unless given.
        hint: layers per stage of a split that may be good; it is ignored where it does not fit.
    """
    budget = Budget(effort=SPLIT) if budget is None else budget
    if problem.alike and problem.recompute == "free":
        return _solve_alike(problem, cutoff_seconds, budget, hint)
    budget.spend(SOLVE)
    if problem.slices is not None:
        ceiling = math.inf if cutoff_seconds is None else cutoff_seconds
        found = solve_chain(problem, cutoff=ceiling, budget=budget, hint=hint)
        return _of_chain(found)
    table = stage_table(problem)
    if not has_split(problem, table):
        return _nothing("infeasible", math.inf)
    best = incumbent(problem, table, hint)
    ceiling = min(objective(problem, best), math.inf if cutoff_seconds is None else cutoff_seconds)
    reduced = within(problem, table, slowest_below(problem, ceiling, floors(problem, table)[1]))
    best, bound, proved = _improved(problem, reduced, best, ceiling=ceiling, budget=budget)
    bound = min(bound, ceiling)
    if cutoff_seconds is not None and objective(problem, best) >= cutoff_seconds:
        return _nothing("infeasible" if proved else "unknown", bound)
    best = evened(problem, table, best)
    return _solution(problem, table, best, bound=bound, proved=proved)


def _solve_alike(
    problem: StageProblem, cutoff: float | None, budget: Budget, hint: Sequence[int] | None
) -> StageSolution:
    """The best over all numbers of layers that every stage recomputes alike, each number solved on its own.

    More recomputation is never faster under the same split, and fits wherever less does but for the working set of
    stages that did not recompute; so numbers are tried from none upwards, and once no split of one number, memory
    aside, may be faster than the best found, none of a greater number is.
    """
    best, proved = None, True
    spare = problem.num_layers - sum(sorted(problem.fewest or (1,) * problem.num_stages)[:-1])
    numbers = range(max(spare, 0) + 1)
    for first in numbers if problem.slices is None else np.flatnonzero(may_fit(problem)[: len(numbers)]).tolist():
        one = replace(problem, alike=False, recompute="first", first=first)
        ceiling = best.objective_seconds if best else cutoff
        if not _may_beat(one, ceiling, budget):
            break
        found = solve(one, cutoff_seconds=ceiling, budget=budget, hint=hint)
        proved = proved and found.status in {"optimal", "infeasible"}
        best = found if found.layers else best
    return _concluded(best, proved=proved, cutoff=cutoff)


def _may_beat(problem: StageProblem, ceiling: float | None, budget: Budget) -> bool:
    """Whether a split may be faster than ``ceiling``, memory aside."""
    if problem.slices is None:
        free = replace(problem, memory_limit=math.inf)
        return solve(free, cutoff_seconds=ceiling, budget=budget).status != "infeasible"
    budget.spend(SOLVE)
    return may_beat(problem, math.inf if ceiling is None else ceiling)


def _concluded(best: StageSolution | None, *, proved: bool, cutoff: float | None) -> StageSolution:
    """The best of several solves as one answer; where any was not proved, its bound is the weakest."""
    if best is None:
        return _nothing("infeasible" if proved else "unknown", math.inf if cutoff is None else cutoff)
    return best if proved else replace(best, status="feasible", bound_seconds=0.0)


def _improved(
    problem: StageProblem, table: StageTable, best: Split, *, ceiling: float, budget: Budget
) -> tuple[Split, float, bool]:
    """The best split, a lower bound, and whether it is proved that nothing is better (or below ``ceiling``).

    ``table`` holds every split whose objective is below ``ceiling``, which is that of ``best`` or less.
    """
    if not has_split(problem, table):
        return best, ceiling, True
    slowest, total, recomputed = floors(problem, table)
    bound = objective(problem, Split(table.fewest, slowest, total, recomputed))
    met = best.slowest <= slowest and best.total <= total * (1 + _ROUNDING) and best.recomputed <= recomputed
    if met or (bound >= ceiling and objective(problem, best) > ceiling):
        return best, bound, True
    return _search(problem, table, best, bound=bound, ceiling=ceiling, budget=budget)


def _search(
    problem: StageProblem, table: StageTable, best: Split, *, bound: float, ceiling: float, budget: Budget
) -> tuple[Split, float, bool]:
    """A better split, a bound, and whether it is proved that nothing better is left; of two stages all are tried."""
    scale = scale_of(problem, table, ceiling=ceiling)
    limit = scale.cost(best, table) - 1
    if objective(problem, best) > ceiling:
        limit = scale.weight * math.ceil((ceiling - scale.base) / scale.unit) - 1
    if problem.num_stages == 2:
        cost, found = min(_of_two_stages(problem, table, scale), key=itemgetter(0))
        return (found if cost <= limit else best), max(bound, scale.seconds(min(cost, limit + 1))), True
    return _solved(problem, table, best, scale, bound=bound, limit=limit, budget=budget)


def _of_two_stages(problem: StageProblem, table: StageTable, scale: Scale) -> Iterator[tuple[int, Split]]:
    """Every split over two stages, with its cost in the solver's numbers."""
    fewest, most = table.fewest.tolist(), table.most.tolist()
    for first in range(max(fewest[0], problem.num_layers - most[1]), min(most[0], problem.num_layers - fewest[1]) + 1):
        split = split_of(problem, table, np.array([first, problem.num_layers - first]))
        yield scale.cost(split, table), split


def _solved(
    problem: StageProblem, table: StageTable, best: Split, scale: Scale, *, bound: float, limit: int, budget: Budget
) -> tuple[Split, float, bool]:
    """``_search`` by CP-SAT among the splits that cost up to ``limit``."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    holds, cost = boolean_model(model, problem, table, scale)
    model.add(cost <= limit)
    model.minimize(cost)
    solver = cp_model.CpSolver()
    for name, value in (*_SOLVER.items(), *budget.solver_limits.items()):
        setattr(solver.parameters, name, value)
    status = solver.solve(model)
    budget.spend_solver(solver.response_proto.deterministic_time)
    if status == cp_model.INFEASIBLE:
        return best, max(bound, scale.seconds(limit + 1)), True
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return best, bound, False
    layers = table.fewest.copy()
    np.add.at(layers, [s for (_, s), held in holds.items() if solver.boolean_value(held)], 1)
    best = split_of(problem, table, layers)
    return best, max(bound, scale.seconds(solver.best_objective_bound)), status == cp_model.OPTIMAL


def _solution(problem: StageProblem, table: StageTable, split: Split, *, bound: float, proved: bool) -> StageSolution:
    recomputed = table.recomputed[split.layers, np.arange(problem.num_stages)]
    seconds = problem.stage_seconds(split.layers, recomputed)
    objective = float(
        pipeline_seconds(
            micro_batches=problem.num_microbatches,
            slowest=seconds.max(),
            total=seconds.sum(),
            vpp=problem.vpp,
        )
    )
    return StageSolution(
        layers=tuple(split.layers.tolist()),
        recompute_layers=tuple(recomputed.tolist()),
        slowest_seconds=float(seconds.max()),
        total_seconds=float(seconds.sum()),
        objective_seconds=objective,
        bound_seconds=min(bound, objective),
        status="optimal" if proved else "feasible",
    )


def _of_chain(found: Found | float) -> StageSolution:
    """The answer of the chain's solver as a solution."""
    if isinstance(found, float):
        return _nothing("infeasible", found)
    return StageSolution(
        layers=found.layers,
        recompute_layers=found.recomputed,
        slowest_seconds=found.slowest,
        total_seconds=found.total,
        objective_seconds=found.objective,
        bound_seconds=found.bound,
        status="optimal" if found.bound >= found.objective * (1 - _PROVED) else "feasible",
    )


def _nothing(status: Literal["infeasible", "unknown"], bound: float) -> StageSolution:
    return StageSolution(
        layers=(),
        recompute_layers=(),
        slowest_seconds=math.inf,
        total_seconds=math.inf,
        objective_seconds=math.inf,
        bound_seconds=bound,
        status=status,
    )
