"""The best plan of one layout: the cheapest that reaches a throughput, or the fastest that a budget buys."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from costmodels.sparse.load import ALL, node_seconds
from costmodels.strategy import Floats
from planner.request.budget import Budget
from planner.sparse.layout import SLACK, Layout, Nodes
from planner.sparse.solver import Found, Limits, holds, solve

RESOLUTION = 1e-4
"""Relative distance of the throughput found and the one proved out of reach."""
FASTEST = 1e12
"""Examples per second that nobody asks for."""
_GROWTH = 10.0
"""Of the step after one that succeeded."""
_FIRST = 1.0
"""Examples per second at which a search for the most begins: what holds the tables at all."""


Report = Callable[[float, float, float], None]
"""What is given examples per second, dollars per second, and a bound on what is looked for."""


@dataclass(frozen=True, slots=True)
class Best:
    """A plan, and how far from the best it can be.

    Attributes:
        status: "optimal", "feasible", "infeasible", "unknown"; the last two have no plan.
        layout: what there was to choose.
        chosen: a choice for every place.
        nodes: nodes of every group.
        rate: examples per second.
        cost: dollars per second.
        bound: no plan is cheaper (dollars per second), or none is faster (examples per second).
        gap: relative distance between the plan and the bound.
    """

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    layout: Layout
    chosen: tuple[int, ...]
    nodes: Nodes
    rate: float
    cost: float
    bound: float
    gap: float


def cheapest(layout: Layout, limits: Limits, *, budget: Budget, report: Report | None = None) -> Best:
    """The least dollars per second within the limits; among equally dear plans a fast one."""
    best = _within(layout, limits, budget=budget, dear=False)
    if report and best.chosen:
        report(best.rate, best.cost, best.bound)
    return best


def _within(layout: Layout, limits: Limits, *, budget: Budget, dear: bool) -> Best:
    """A plan within the limits, the cheapest unless it may be dear.

    The solver's whole numbers round in favour of a plan. Where a plan turns out too slow for that, the solver is
    asked for a little more, and the first answer's bound stands.
    """
    found = solve(layout, limits, budget=budget, dear=dear)
    bound, aim, step = found.bound, limits, SLACK
    chosen: tuple[int, ...] = ()
    while found.chosen:
        chosen = polished(layout, aim, found, budget=budget)
        if holds(layout, limits, chosen, found.nodes):
            break
        aim, step = aim._replace(rate=aim.rate * (1 + step)), 2 * step
        found = solve(layout, aim, budget=budget, dear=dear)
    if not found.chosen:
        return Best(found.status, layout, (), found.nodes, 0.0, math.inf, found.bound, math.inf)
    cost = float(layout.prices @ found.nodes)
    gap = max(0.0, 1.0 - bound / cost)
    status: Literal["optimal", "feasible"] = "optimal" if found.status == "optimal" and gap <= SLACK else "feasible"
    return Best(status, layout, chosen, found.nodes, _rate(layout, chosen, found.nodes), cost, bound, gap)


def fastest(
    layout: Layout, limits: Limits, *, budget: Budget, known: float = 0.0, report: Report | None = None
) -> Best:
    """The most examples per second that a budget buys; among plans as fast as that the cheapest.

    A throughput is in reach or proved out of it by the solver; doubling brackets the most, and every plan on the way
    counts with the throughput that it really has. Polished plans are often the best already, so the next to be asked
    for is a relative 1e-4 more, then steps that grow as long as they succeed, up to half-way to what is out of reach.
    ``known`` examples per second are in reach, as a smaller question has found. ``report`` is given throughput and cost
    of every plan, and what is out of reach.
    """
    first = max(limits.rate, known * (1 - 2 * SLACK), _FIRST)
    best = _within(layout, limits._replace(rate=first), budget=budget, dear=True)
    if not best.chosen:
        return best
    beyond, step = math.inf, RESOLUTION
    while beyond > best.rate * (1 + RESOLUTION) and not budget.spent():
        half = best.rate * 2.0 if math.isinf(beyond) else math.sqrt(best.rate * beyond)
        aim = half if math.isinf(beyond) else max(min(half, best.rate * (1 + step)), best.rate * (1 + RESOLUTION))
        if aim > FASTEST:
            break
        if report:
            report(best.rate, best.cost, beyond)
        tried = _within(layout, limits._replace(rate=aim), budget=budget, dear=True)
        if tried.chosen:
            best, step = max(best, tried, key=lambda one: one.rate), _GROWTH * step
            assert best.rate <= beyond * (1 + RESOLUTION), "the solver ruled out a plan that exists"
        elif tried.status == "infeasible":
            beyond, step = aim, RESOLUTION
        else:
            break
    cheaper = cheapest(layout, limits._replace(rate=best.rate * (1 - SLACK)), budget=budget)
    if cheaper.chosen and cheaper.cost < best.cost * (1 - SLACK):
        best = cheaper
    gap = max(0.0, 1.0 - best.rate / beyond)
    status: Literal["optimal", "feasible"] = "optimal" if gap <= 1.01 * RESOLUTION else "feasible"
    return replace(best, status=status, bound=beyond, gap=gap)


def _rate(layout: Layout, chosen: tuple[int, ...], nodes: Nodes) -> float:
    return float(layout.rates(layout.load(chosen), nodes).min())


def polished(layout: Layout, limits: Limits, found: Found, *, budget: Budget) -> tuple[int, ...]:
    """The same nodes with choices changed one by one as long as that makes the plan faster, then upper tiers filled."""
    chosen, nodes = found.chosen, found.nodes
    best, better = _rate(layout, chosen, nodes), True
    while better and not budget.spent():
        better = False
        for place, one in enumerate(layout.places):
            load = layout.load(chosen)
            for index in found.worth[place] if found.worth else range(len(one.choices)):
                tried, changed = layout.changed(load, chosen, place, index)
                if float(layout.rates(changed, nodes).min()) > best * (1 + SLACK) and layout.fits(changed, nodes):
                    rate = _rate(layout, tried, nodes)
                    if holds(layout, limits._replace(rate=rate), tried, nodes):
                        chosen, load, best, better = tried, changed, rate, True
    return _filled(layout, limits._replace(rate=best), chosen, nodes)


def _filled(layout: Layout, limits: Limits, chosen: tuple[int, ...], nodes: Nodes) -> tuple[int, ...]:
    """As many rows in memory as there is room for, where that slows nothing down."""
    for place, one in enumerate(layout.places):
        now = one.choices[chosen[place]]
        alike = [c for c in one.choices if (c.group, c.home) == (now.group, now.home) and c.dram >= now.dram]
        for choice in sorted(alike, key=lambda c: (c.dram, c.hbm), reverse=True):
            tried = (*chosen[:place], one.choices.index(choice), *chosen[place + 1 :])
            if holds(layout, limits, tried, nodes):
                chosen = tried
                break
    return chosen


def usage(best: Best) -> Floats:
    """Share of every resource that a plan uses, at its throughput, shape (G, R)."""
    seconds = node_seconds(best.layout.load(best.chosen), best.nodes)[ALL]
    return best.rate * seconds / np.maximum(best.nodes, 1)[:, None]
