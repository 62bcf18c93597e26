"""The cheapest nodes and choices that reach a throughput, by CP-SAT, with its proof.

With the throughput X given, every constraint is linear in what is chosen: a group of k nodes keeps up where
X times its node-seconds per example is at most k, resource by resource. What depends on k itself (rows that a node
holds for itself, requests to k servers, the slowest of k nodes) is linear in k or in one boolean per value of k.

Whole numbers: node-seconds in units of 2^-22, bytes in units of 64 KiB, dollars per hour in millionths. Every
coefficient of a load is rounded down and every room up, so that the solver sees a relaxation: what it proves
impossible is impossible, its bound on the cost holds, and a plan that it finds is checked in floats afterwards.
Presolve is off: with units of 2^-28 that of OR-tools 9.15 calls some problems infeasible that have plans.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from costmodels.sparse.load import ALL, CORES, NICS, RESOURCES, STEP, Load, node_seconds, straggler
from costmodels.sparse.parameter_server import lateness
from costmodels.strategy import Floats
from planner.request.budget import SOLVE, Budget
from planner.sparse.layout import SLACK, Choice, Layout, Nodes, demands, undominated

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

UNIT: Final = 2**22
"""Units of a node-second per second."""
PAGE: Final = 2.0**16
"""Bytes of a unit of memory."""
MICRO: Final = 1e6 * 3600.0
"""Millionths of a dollar per hour, from dollars per second."""
_SOLVER: Final = {
    "num_workers": 1,
    "random_seed": 0,
    "catch_sigint_signal": False,
    "linearization_level": 2,
    "cp_model_presolve": False,
}


class Limits(NamedTuple):
    """What a plan must keep to."""

    rate: float
    """Examples per second, at least."""
    budget: float = math.inf
    """Dollars per second, at most."""
    staleness: int | None = None
    """Steps of other workers between pull and push, at most."""


@dataclass(frozen=True, slots=True)
class Found:
    """An answer of the solver.

    Attributes:
        status: "optimal", "feasible" (the budget ran out before the proof), "infeasible" (proved), "unknown" (time ran
            out before any plan).
        chosen: a choice for every place; empty where there is no plan.
        nodes: nodes of every group.
        bound: dollars per second that no plan within the limits undercuts.
        worth: of every place the choices that no other dominates.
    """

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    chosen: tuple[int, ...]
    nodes: Nodes
    bound: float
    worth: tuple[Sequence[int], ...] = ()


def solve(layout: Layout, limits: Limits, *, budget: Budget, dear: bool = False) -> Found:
    """The cheapest plan within the limits, or a proof that there is none.

    Args:
        layout: what there is to choose.
        limits: the throughput to reach, the budget and staleness to keep.
        budget: what it may take, and is charged to.
        dear: any plan within the limits will do; its bound is then no more than zero.
    """
    from ortools.sat.python import cp_model

    if not all(place.choices for place in layout.places):
        return _nothing("infeasible", layout, math.inf)
    left = [
        undominated(place.choices, demands(place.choices, limits.rate, unit=UNIT, page=PAGE)) for place in layout.places
    ]
    problem = _stated(cp_model.CpModel(), _only(layout, left), limits, dear=dear)
    solver = cp_model.CpSolver()
    for name, value in (*_SOLVER.items(), *budget.solver_limits.items()):
        setattr(solver.parameters, name, value)
    status = solver.solve(problem.model)
    budget.spend(SOLVE)
    budget.spend_solver(solver.response_proto.deterministic_time)
    if status == cp_model.INFEASIBLE:
        return _nothing("infeasible", layout, math.inf)
    bound = 0.0 if dear else solver.best_objective_bound / MICRO
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return _nothing("unknown", layout, bound)
    chosen = tuple(
        next(index for index, picked in zip(kept, place, strict=True) if solver.boolean_value(picked))
        for kept, place in zip(left, problem.picked, strict=True)
    )
    nodes = np.array([solver.value(count) for count in problem.nodes], dtype=np.int64)
    return Found("optimal" if status == cp_model.OPTIMAL else "feasible", chosen, nodes, bound, tuple(left))


def _only(layout: Layout, left: Sequence[Sequence[int]]) -> Layout:
    """The layout with those choices of every place alone."""
    places = (
        replace(place, choices=tuple(place.choices[index] for index in kept))
        for place, kept in zip(layout.places, left, strict=True)
    )
    return replace(layout, places=tuple(places))


def _stated(model: cp_model.CpModel, layout: Layout, limits: Limits, *, dear: bool) -> _Problem:
    """All of the problem: what keeps up, has room and stays fresh within the budget; the cheapest unless ``dear``."""
    picked = [[model.new_bool_var("") for _ in place.choices] for place in layout.places]
    stock = layout.stock.tolist()
    nodes = [model.new_int_var(0, most, "") for most in stock]
    is_size = [[model.new_bool_var("") for _ in range(most + 1)] for most in stock]
    problem = _Problem(model, layout, limits, picked, nodes, is_size, {}, {})
    for booleans in picked:
        model.add_exactly_one(booleans)
    for count, sizes in zip(nodes, is_size, strict=True):
        model.add_exactly_one(sizes)
        model.add(sum(k * size for k, size in enumerate(sizes)) == count)
    for _, choice, boolean in problem.options():
        for group in {choice.group, choice.group if choice.home is None else choice.home}:
            model.add(nodes[group] >= 1).only_enforce_if(boolean)
    _drop_hopeless(problem)
    _count_requests(problem)
    _count_crossings(problem)
    _keep_up(problem)
    _find_room(problem)
    _stay_fresh(problem)
    cost = sum(round(price * MICRO) * count for price, count in zip(layout.prices, nodes, strict=True))
    if math.isfinite(limits.budget):
        model.add(cost <= math.ceil(limits.budget * MICRO))
    if not dear:
        model.minimize(cost)
    return problem


def _nothing(status: Literal["infeasible", "unknown"], layout: Layout, bound: float) -> Found:
    return Found(status, (), np.zeros(len(layout.prices), dtype=np.int64), bound)


def holds(layout: Layout, limits: Limits, chosen: tuple[int, ...], nodes: Nodes) -> bool:
    """Whether a plan keeps to its limits, in floats, but for what rounding may cost."""
    load = layout.load(chosen)
    fast = bool((layout.rates(load, nodes) >= limits.rate * (1 - SLACK)).all())
    fresh = limits.staleness is None or layout.staleness(chosen, nodes) <= limits.staleness
    cheap = float(layout.prices @ nodes) <= limits.budget * (1 + SLACK)
    return fast and fresh and cheap and layout.fits(load, nodes)


class _Problem(NamedTuple):
    """A problem as the solver has it.

    ``picked[place][choice]``, ``nodes[group]``, ``is_size[group][k]``, and the rest that follows from them.
    ``asked``: (places' table, worker group, home group) to the nodes that its workers ask. ``crossed``: (wire,
    source group, target group) to whether the wire joins them.
    """

    model: cp_model.CpModel
    layout: Layout
    limits: Limits
    picked: list[list[cp_model.IntVar]]
    nodes: list[cp_model.IntVar]
    is_size: list[list[cp_model.IntVar]]
    asked: dict[tuple[int, int, int], cp_model.IntVar]
    crossed: dict[tuple[int, int, int], cp_model.IntVar]

    def options(self) -> Iterator[tuple[int, Choice, cp_model.IntVar]]:
        """Every place with each of its choices and whether it is taken."""
        for place, booleans in enumerate(self.picked):
            for choice, boolean in zip(self.layout.places[place].choices, booleans, strict=True):
                yield place, choice, boolean


def _drop_hopeless(problem: _Problem) -> None:
    """A choice that alone asks for more than there is can be left out, and keeps numbers small."""
    stock, rate = problem.layout.stock[:, None], problem.limits.rate
    for _, choice, boolean in problem.options():
        alone = node_seconds(choice.load, np.ones(len(stock), dtype=np.int64))[ALL] - _requests(choice.load)
        shared = node_seconds(choice.load, np.full(len(stock), 2))[ALL] - 2 * _requests(choice.load)
        if ((rate * alone > 1 + SLACK) & (rate * shared > stock * (1 + SLACK))).any():
            problem.model.add(boolean == 0)


def _requests(load: Load) -> Floats:
    """Node-seconds per example of requests to one node of each group, shape (G, R)."""
    seconds = np.zeros_like(load.work[ALL])
    seconds[:, CORES] = load.messages.sum(axis=1)
    return seconds


def _count_requests(problem: _Problem) -> None:
    """``asked`` is the home's nodes where a table's workers and home are these, else nothing."""
    users: dict[tuple[int, int, int], list[cp_model.IntVar]] = {}
    for place, choice, boolean in problem.options():
        if choice.home is not None:
            users.setdefault((place, choice.group, choice.home), []).append(boolean)
    for key, booleans in users.items():
        most = int(problem.layout.stock[key[2]])
        problem.asked[key] = problem.model.new_int_var(0, most, "")
        problem.model.add(problem.asked[key] >= problem.nodes[key[2]] - most + most * sum(booleans))


def _count_crossings(problem: _Problem) -> None:
    on: dict[tuple[int, int], list[cp_model.IntVar]] = {}
    for place, choice, boolean in problem.options():
        on.setdefault((place, choice.group), []).append(boolean)
    for index, wire in enumerate(problem.layout.wires):
        for source, target in permutations(range(len(problem.layout.prices)), 2):
            senders, takers = on.get((wire.source, source)), on.get((wire.target, target))
            if senders and takers:
                crossed = problem.model.new_bool_var("")
                problem.model.add(crossed >= sum(senders) + sum(takers) - 1)
                problem.crossed[index, source, target] = crossed


def _keep_up(problem: _Problem) -> None:
    """Every group keeps up on every resource, and in sync mode within its steps too."""
    every = range(len(RESOURCES))
    for group, count in enumerate(problem.nodes):
        saved = _stays(problem, group, ALL)
        for resource in every:
            used = _used(problem, group, part=ALL, resources=[resource])
            if resource in NICS and saved is not None:
                used.append(-saved)
            problem.model.add(sum(used) <= UNIT * count)
        if problem.layout.scenario.mode == "sync":
            saved, used = _stays(problem, group, STEP), _used(problem, group, part=STEP, resources=[*every])
            if saved is not None:
                used.append(-len(NICS) * saved)
            problem.model.add(sum(used) <= _in_step(problem, group))


def _in_step(problem: _Problem, group: int) -> cp_model.LinearExprT:
    """Nodes over the slowest of them, by the boolean of every size."""
    sizes = np.arange(problem.layout.stock[group] + 1)
    useful = sizes / straggler(sizes, variation=problem.layout.scenario.runtime.variation)
    return sum(_up(value) * size for value, size in zip(useful, problem.is_size[group], strict=True))


def _used(problem: _Problem, group: int, *, part: int, resources: list[int]) -> list[cp_model.LinearExprT]:
    """Units of node-seconds per second that a group spends, rows that stay on a node counted as if they travelled."""
    layout, rate = problem.layout, problem.limits.rate
    terms: list[cp_model.LinearExprT] = [
        _down(rate * choice.load.work[part, group, resources].sum()) * boolean
        for _, choice, boolean in problem.options()
    ]
    for (index, source, target), crossed in problem.crossed.items():
        if group in {source, target}:
            work = layout.crossings[index, source, target].work[part, group, resources].sum()
            terms.append(_down(rate * work) * crossed)
    if CORES in resources:
        for (index, worker, home), asked in problem.asked.items():
            terms.append(_down(rate * _message(layout, index, worker, home)[group, home]) * asked)
    return terms


def _message(layout: Layout, place: int, worker: int, home: int) -> Floats:
    """Core node-seconds per example and node asked, (G, G); alike for all tiers of a table."""
    return next(c.load.messages for c in layout.places[place].choices if (c.group, c.home) == (worker, home))


def _stays(problem: _Problem, group: int, part: int) -> cp_model.IntVar | None:
    """Units of network traffic that stay on their node: the group's own traffic over its k nodes."""
    model, rate = problem.model, problem.limits.rate
    terms, largest = [], [0] * len(problem.picked)
    for place, choice, boolean in problem.options():
        inside = choice.load.inside[part, group]
        if inside > 0.0:
            terms.append((_up(rate * inside), boolean))
            largest[place] = max(largest[place], terms[-1][0])
    if not terms:
        return None
    most = sum(largest)
    own = model.new_int_var(0, most, "")
    model.add(own == sum(weight * boolean for weight, boolean in terms))
    stays = model.new_int_var(0, most, "")
    for k, size in enumerate(problem.is_size[group]):
        if k:
            model.add(k * stays <= own + k - 1).only_enforce_if(size)
    # what the sizes together say of the largest own traffic, for the relaxation, which hardly sees the lines above
    sizes = enumerate(problem.is_size[group][1:], 1)
    model.add(stays <= sum(-(-(most + k - 1) // k) * size for k, size in sizes))
    return stays


def _find_room(problem: _Problem) -> None:
    """Rows fit into their tiers on all nodes together, copies on each."""
    layout = problem.layout
    for group, count in enumerate(problem.nodes):
        for tier in range(layout.capacity.shape[1]):
            stored = _bytes(problem, "stored", group, tier)
            problem.model.add(stored <= math.ceil(layout.capacity[group, tier] / PAGE) * count)
        for kind in range(layout.own.shape[1]):
            problem.model.add(_bytes(problem, "copies", group, kind) <= math.ceil(layout.own[group, kind] / PAGE))


def _bytes(problem: _Problem, what: Literal["stored", "copies"], group: int, kind: int) -> cp_model.LinearExprT:
    options = problem.options()
    return sum(math.floor(getattr(one.load, what)[group, kind] / PAGE) * boolean for _, one, boolean in options)


def _stay_fresh(problem: _Problem) -> None:
    """As many nodes that look rows up as the staleness allows; it grows with them."""
    layout, staleness = problem.layout, problem.limits.staleness
    if staleness is None:
        return
    for place, choice, boolean in problem.options():
        if layout.places[place].kind == "table":
            group = layout.scenario.groups[choice.group]
            most = sum(lateness(layout.scenario, group, k) <= staleness for k in range(1, group.nodes + 1))
            problem.model.add(problem.nodes[choice.group] <= most).only_enforce_if(boolean)


def _down(nodes: float) -> int:
    return math.floor(nodes * UNIT)


def _up(nodes: float) -> int:
    return math.ceil(nodes * UNIT)
