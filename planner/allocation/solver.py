"""One option for every job within the nodes of every group, by CP-SAT, objective after objective.

A multiple-choice knapsack with one capacity per node group. Aims are minimised one after the other: a later one only
chooses among the best of those before it. A job that waits starts when the jobs that run then leave enough nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from costmodels.strategy import Floats, Ints
from planner.request.budget import Budget

RESOLUTION: Final = 10**12
"""Whole steps between the best and the worst sum of an objective in the solver's numbers: it is proved to that."""
_SOLVER: Final = {"num_workers": 1, "random_seed": 0, "catch_sigint_signal": False}


@dataclass(frozen=True, slots=True)
class Held:
    """Which nodes an option holds and when, now or after it has waited, arrays (O,).

    Nothing is counted at the last moment at which one begins: all else has ended by then.
    """

    group: Ints
    """Index of the group, -1 where it does not matter when waiting ends."""
    nodes: Ints
    start: Floats
    """Seconds from now, 0 for an option that takes nodes now."""
    until: Floats


@dataclass(frozen=True, slots=True)
class Options:
    """What the jobs can choose from, arrays (O,), sorted by job; every job has at least one."""

    job: Ints
    group: Ints
    """Index of the group, -1 for an option that takes no nodes."""
    nodes: Ints
    objectives: tuple[Floats, ...]
    """What each option costs under each objective, first things first."""
    capacity: Ints
    """Nodes of each group, (G,)."""
    held: Held | None = None
    """None where it makes no difference when waiting ends."""

    def used(self, chosen: Ints) -> Ints:
        """Nodes of each group that some options take, (G,)."""
        placed = chosen[self.group[chosen] >= 0]
        return np.bincount(self.group[placed], self.nodes[placed], len(self.capacity)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Choice:
    """The options chosen, one per job, and what is known of the last objective."""

    options: Ints
    value: float
    bound: float
    """No choice that is as good under the objectives before has a smaller sum."""
    proved: bool


def solve(
    options: Options,
    *,
    budget: Budget,
    banned: Ints | None = None,
    hint: Ints | None = None,
    report: Callable[[float, float], None] | None = None,
) -> Choice | None:
    """The best choice, None where nothing was found.

    Args:
        options: what there is.
        budget: what the solver may take, and is charged to.
        banned: options that nobody may take.
        hint: a choice to begin with.
        report: given the sum of the last objective and its bound, of every choice that is the best so far.

    Returns:
        a choice, proved if every objective was proved best (to one part in ``RESOLUTION`` of its range); None if no
        choice keeps the capacities, or none was found within the budget.
    """
    from ortools.sat.python import cp_model

    model, taken = _model(options, banned)
    best, proved, bound = hint, True, -np.inf
    for place, objective in enumerate(options.objectives, 1):
        cost, unit, base = _whole(options, objective)
        total = sum(int(c) * taken[o] for o, c in enumerate(cost) if c)
        model.minimize(total)
        model.clear_hints()
        for o in () if best is None else best:
            model.add_hint(taken[o], 1)
        solver = cp_model.CpSolver()
        for name, value in (*_SOLVER.items(), *budget.solver_limits.items()):
            setattr(solver.parameters, name, value)
        watched = report if place == len(options.objectives) else None
        status = solver.solve(model, watched and _watcher(watched, unit, base))
        budget.spend_solver(solver.response_proto.deterministic_time)
        if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
            if best is None or status == cp_model.INFEASIBLE:
                return None
            return _choice(options, best, bound, proved=False)
        best = np.array([o for o, var in enumerate(taken) if solver.boolean_value(var)], dtype=np.int64)
        proved = proved and status == cp_model.OPTIMAL
        bound = base + unit * solver.best_objective_bound
        model.add(total <= int(cost[best].sum()))
    assert best is not None
    return _choice(options, best, bound, proved=proved)


def _watcher(report: Callable[[float, float], None], unit: float, base: float) -> Any:
    """What CP-SAT calls with every better solution, in whole units above a base."""
    from ortools.sat.python import cp_model

    class Watcher(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            report(base + unit * self.objective_value, base + unit * self.best_objective_bound)

    return Watcher()


def _model(options: Options, banned: Ints | None) -> tuple[Any, list[Any]]:
    """One option per job, no group's nodes exceeded."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    taken = [model.new_bool_var("") for _ in options.job]
    for job in np.unique(options.job):
        model.add_exactly_one(taken[o] for o in np.flatnonzero(options.job == job))
    for group, nodes in enumerate(options.capacity):
        mine = np.flatnonzero(options.group == group)
        model.add(sum(int(options.nodes[o]) * taken[o] for o in mine) <= int(nodes))
    for option in () if banned is None else banned:
        model.add(taken[option] == 0)
    if options.held is not None:
        _one_after_the_other(model, taken, options.held, options.capacity)
    return model, taken


def _one_after_the_other(model: Any, taken: list[Any], held: Held, capacity: Ints) -> None:
    """No group's nodes are exceeded whenever one begins that has waited."""
    last = held.start.max(initial=0.0)
    for group, nodes in enumerate(capacity):
        mine = held.group == group
        for moment in np.unique(held.start[mine & (held.start > 0.0) & (held.start < last)]):
            then = np.flatnonzero(mine & (held.start <= moment) & (held.until > moment))
            model.add(sum(int(held.nodes[o]) * taken[o] for o in then) <= int(nodes))


def _whole(options: Options, objective: Floats) -> tuple[Ints, float, float]:
    """Costs above each job's least in whole units, rounded down, the unit, and the sum of the least."""
    least = np.full(int(options.job.max()) + 1, np.inf)
    most = np.full(len(least), -np.inf)
    np.minimum.at(least, options.job, objective)
    np.maximum.at(most, options.job, objective)
    unit = float((most - least).sum()) / RESOLUTION or 1.0
    return np.floor((objective - least[options.job]) / unit).astype(np.int64), unit, float(least.sum())


def _choice(options: Options, chosen: Ints, bound: float, *, proved: bool) -> Choice:
    value = float(options.objectives[-1][chosen].sum())
    return Choice(chosen, value, min(bound, value), proved)
