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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from costmodels.sparse.load import ALL, CORES, NICS, RESOURCES, STEP, Load, node_seconds, straggler
from costmodels.sparse.parameter_server import lateness
from costmodels.strategy import Floats
from planner.request.budget import SOLVE, Budget
from planner.sparse.dominance import demands, undominated
from planner.sparse.layout import SLACK, Layout, Nodes

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
    model = cp_model.CpModel()
    variables = _stated(model, _only(layout, left), limits, dear=dear)
    solver = cp_model.CpSolver()
    for name, value in (*_SOLVER.items(), *budget.solver_limits.items()):
        setattr(solver.parameters, name, value)
    status = solver.solve(model)
    budget.spend(SOLVE)
    budget.spend_solver(solver.response_proto.deterministic_time)
    if status == cp_model.INFEASIBLE:
        return _nothing("infeasible", layout, math.inf)
    bound = 0.0 if dear else solver.best_objective_bound / MICRO
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return _nothing("unknown", layout, bound)
    chosen = tuple(
        next(index for index, picked in zip(kept, place, strict=True) if solver.boolean_value(picked))
        for kept, place in zip(left, variables.picked, strict=True)
    )
    nodes = np.array([solver.value(count) for count in variables.nodes], dtype=np.int64)
    return Found("optimal" if status == cp_model.OPTIMAL else "feasible", chosen, nodes, bound, tuple(left))


def _only(layout: Layout, left: Sequence[Sequence[int]]) -> Layout:
    """The layout with those choices of every place alone."""
    places = (
        replace(place, choices=tuple(place.choices[index] for index in kept))
        for place, kept in zip(layout.places, left, strict=True)
    )
    return replace(layout, places=tuple(places))


def _stated(model: cp_model.CpModel, layout: Layout, limits: Limits, *, dear: bool) -> _Variables:
    """All of the problem: what keeps up, has room and stays fresh within the budget; the cheapest unless ``dear``."""
    variables = _variables(model, layout, limits)
    _keep_up(model, layout, limits, variables)
    _find_room(model, layout, variables)
    _stay_fresh(model, layout, limits, variables)
    prices = [round(price * MICRO) for price in layout.prices]
    cost = sum(price * count for price, count in zip(prices, variables.nodes, strict=True))
    if math.isfinite(limits.budget):
        model.add(cost <= math.ceil(limits.budget * MICRO))
    if not dear:
        model.minimize(cost)
    return variables


def _nothing(status: Literal["infeasible", "unknown"], layout: Layout, bound: float) -> Found:
    return Found(status, (), np.zeros(len(layout.prices), dtype=np.int64), bound)


def holds(layout: Layout, limits: Limits, chosen: tuple[int, ...], nodes: Nodes) -> bool:
    """Whether a plan keeps to its limits, in floats, but for what rounding may cost."""
    load = layout.load(chosen)
    fast = bool((layout.rates(load, nodes) >= limits.rate * (1 - SLACK)).all())
    fresh = limits.staleness is None or layout.staleness(chosen, nodes) <= limits.staleness
    cheap = float(layout.prices @ nodes) <= limits.budget * (1 + SLACK)
    return fast and fresh and cheap and layout.fits(load, nodes)


class _Variables(NamedTuple):
    """``picked[place][choice]``, ``nodes[group]``, ``is_size[group][k]``, and the rest that follows from them.

    ``asked``: (places' table, worker group, home group) to the nodes that its workers ask. ``crossed``: (wire,
    source group, target group) to whether the wire joins them.
    """

    picked: list[list[cp_model.IntVar]]
    nodes: list[cp_model.IntVar]
    is_size: list[list[cp_model.IntVar]]
    asked: dict[tuple[int, int, int], cp_model.IntVar]
    crossed: dict[tuple[int, int, int], cp_model.IntVar]


def _variables(model: cp_model.CpModel, layout: Layout, limits: Limits) -> _Variables:
    picked = [[model.new_bool_var("") for _ in place.choices] for place in layout.places]
    for booleans in picked:
        model.add_exactly_one(booleans)
    stock = layout.stock.tolist()
    nodes = [model.new_int_var(0, most, "") for most in stock]
    is_size = [[model.new_bool_var("") for _ in range(most + 1)] for most in stock]
    for count, sizes in zip(nodes, is_size, strict=True):
        model.add_exactly_one(sizes)
        model.add(sum(k * size for k, size in enumerate(sizes)) == count)
    for place, booleans in zip(layout.places, picked, strict=True):
        for choice, boolean in zip(place.choices, booleans, strict=True):
            for group in {choice.group, choice.group if choice.home is None else choice.home}:
                model.add(nodes[group] >= 1).only_enforce_if(boolean)
    _drop_hopeless(model, layout, limits, picked)
    variables = _Variables(picked, nodes, is_size, {}, {})
    _count_requests(model, layout, variables)
    _count_crossings(model, layout, variables)
    return variables


def _drop_hopeless(
    model: cp_model.CpModel, layout: Layout, limits: Limits, picked: list[list[cp_model.IntVar]]
) -> None:
    """A choice that alone asks for more than there is can be left out, and keeps numbers small."""
    stock = layout.stock[:, None]
    for place, booleans in zip(layout.places, picked, strict=True):
        for choice, boolean in zip(place.choices, booleans, strict=True):
            alone = node_seconds(choice.load, np.ones(len(stock), dtype=np.int64))[ALL] - _requests(choice.load)
            shared = node_seconds(choice.load, np.full(len(stock), 2))[ALL] - 2 * _requests(choice.load)
            hopeless = (limits.rate * alone > 1 + SLACK) & (limits.rate * shared > stock * (1 + SLACK))
            if hopeless.any():
                model.add(boolean == 0)


def _requests(load: Load) -> Floats:
    """Node-seconds per example of requests to one node of each group, shape (G, R)."""
    seconds = np.zeros_like(load.work[ALL])
    seconds[:, CORES] = load.messages.sum(axis=1)
    return seconds


def _count_requests(model: cp_model.CpModel, layout: Layout, variables: _Variables) -> None:
    """``asked`` is the home's nodes where a table's workers and home are these, else nothing."""
    for place, booleans in zip(range(len(layout.places)), variables.picked, strict=True):
        pairs: dict[tuple[int, int], list[cp_model.IntVar]] = {}
        for choice, boolean in zip(layout.places[place].choices, booleans, strict=True):
            if choice.home is not None:
                pairs.setdefault((choice.group, choice.home), []).append(boolean)
        for (group, home), users in pairs.items():
            most = int(layout.stock[home])
            asked = model.new_int_var(0, most, "")
            model.add(asked >= variables.nodes[home] - most + most * sum(users))
            variables.asked[place, group, home] = asked


def _count_crossings(model: cp_model.CpModel, layout: Layout, variables: _Variables) -> None:
    groups = range(len(layout.prices))
    on = [
        {g: [b for c, b in zip(place.choices, booleans, strict=True) if c.group == g] for g in groups}
        for place, booleans in zip(layout.places, variables.picked, strict=True)
    ]
    for index, wire in enumerate(layout.wires):
        for source in groups:
            for target in groups:
                senders, takers = on[wire.source][source], on[wire.target][target]
                if source != target and senders and takers:
                    crossed = model.new_bool_var("")
                    model.add(crossed >= sum(senders) + sum(takers) - 1)
                    variables.crossed[index, source, target] = crossed


def _keep_up(model: cp_model.CpModel, layout: Layout, limits: Limits, variables: _Variables) -> None:
    """Every group keeps up on every resource, and in sync mode within its steps too."""
    sync = layout.scenario.mode == "sync"
    for group in range(len(layout.prices)):
        saved = _stays(model, layout, limits, variables, group, ALL)
        for resource in range(len(RESOURCES)):
            used = _used(layout, limits, variables, group, part=ALL, resources=[resource])
            if resource in NICS and saved is not None:
                used.append(-saved)
            model.add(sum(used) <= UNIT * variables.nodes[group])
        if sync:
            saved = _stays(model, layout, limits, variables, group, STEP)
            used = _used(layout, limits, variables, group, part=STEP, resources=list(range(len(RESOURCES))))
            if saved is not None:
                used.append(-len(NICS) * saved)
            model.add(sum(used) <= _in_step(layout, variables, group))


def _in_step(layout: Layout, variables: _Variables, group: int) -> cp_model.LinearExprT:
    """Nodes over the slowest of them, by the boolean of every size."""
    sizes = np.arange(layout.stock[group] + 1)
    useful = sizes / straggler(sizes, variation=layout.scenario.runtime.variation)
    return sum(_up(value) * size for value, size in zip(useful, variables.is_size[group], strict=True))


def _used(
    layout: Layout, limits: Limits, variables: _Variables, group: int, *, part: int, resources: list[int]
) -> list[cp_model.LinearExprT]:
    """Units of node-seconds per second that a group spends, rows that stay on a node counted as if they travelled."""
    terms: list[cp_model.LinearExprT] = []
    for place, booleans in zip(layout.places, variables.picked, strict=True):
        for choice, boolean in zip(place.choices, booleans, strict=True):
            terms.append(_down(limits.rate * choice.load.work[part, group, resources].sum()) * boolean)
    for (index, source, target), crossed in variables.crossed.items():
        if group in {source, target}:
            work = layout.crossings[index, source, target].work[part, group, resources].sum()
            terms.append(_down(limits.rate * work) * crossed)
    if CORES in resources:
        for (index, worker, home), asked in variables.asked.items():
            terms.append(_down(limits.rate * _message(layout, index, worker, home)[group, home]) * asked)
    return terms


def _message(layout: Layout, place: int, worker: int, home: int) -> Floats:
    """Core node-seconds per example and node asked, (G, G); alike for all tiers of a table."""
    return next(c.load.messages for c in layout.places[place].choices if (c.group, c.home) == (worker, home))


def _stays(
    model: cp_model.CpModel, layout: Layout, limits: Limits, variables: _Variables, group: int, part: int
) -> cp_model.IntVar | None:
    """Units of network traffic that stay on their node: the group's own traffic over its k nodes."""
    terms = [
        (_up(limits.rate * choice.load.inside[part, group]), boolean)
        for place, booleans in zip(layout.places, variables.picked, strict=True)
        for choice, boolean in zip(place.choices, booleans, strict=True)
        if choice.load.inside[part, group] > 0.0
    ]
    if not terms:
        return None
    most = sum(
        max((_up(limits.rate * choice.load.inside[part, group]) for choice in place.choices), default=0)
        for place in layout.places
    )
    own = model.new_int_var(0, most, "")
    model.add(own == sum(weight * boolean for weight, boolean in terms))
    stays = model.new_int_var(0, most, "")
    for k, size in enumerate(variables.is_size[group]):
        if k:
            model.add(k * stays <= own + k - 1).only_enforce_if(size)
    # what the sizes together say of the largest own traffic, for the relaxation, which hardly sees the lines above
    model.add(stays <= sum(-(-(most + k - 1) // k) * size for k, size in enumerate(variables.is_size[group]) if k))
    return stays


def _find_room(model: cp_model.CpModel, layout: Layout, variables: _Variables) -> None:
    """Rows fit into their tiers on all nodes together, copies on each."""
    for group in range(len(layout.prices)):
        for tier in range(layout.capacity.shape[1]):
            stored = _bytes(layout, variables, "stored", group, tier)
            model.add(stored <= math.ceil(layout.capacity[group, tier] / PAGE) * variables.nodes[group])
        for kind in range(layout.own.shape[1]):
            copies = _bytes(layout, variables, "copies", group, kind)
            model.add(copies <= math.ceil(layout.own[group, kind] / PAGE))


def _bytes(
    layout: Layout, variables: _Variables, what: Literal["stored", "copies"], group: int, kind: int
) -> cp_model.LinearExprT:
    return sum(
        math.floor(getattr(choice.load, what)[group, kind] / PAGE) * boolean
        for place, booleans in zip(layout.places, variables.picked, strict=True)
        for choice, boolean in zip(place.choices, booleans, strict=True)
    )


def _stay_fresh(model: cp_model.CpModel, layout: Layout, limits: Limits, variables: _Variables) -> None:
    """As many nodes that look rows up as the staleness allows; it grows with them."""
    if limits.staleness is None:
        return
    scenario = layout.scenario
    for place, booleans in zip(layout.places, variables.picked, strict=True):
        for choice, boolean in zip(place.choices, booleans, strict=True) if place.kind == "table" else ():
            group = scenario.groups[choice.group]
            most = sum(lateness(scenario, group, k) <= limits.staleness for k in range(1, group.nodes + 1))
            model.add(variables.nodes[choice.group] <= most).only_enforce_if(boolean)


def _down(nodes: float) -> int:
    return math.floor(nodes * UNIT)


def _up(nodes: float) -> int:
    return math.ceil(nodes * UNIT)
