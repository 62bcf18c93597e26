"""A plan without reasons, for answers that hold many plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.answer.plan import Plan
from planner.api.answers import conclude
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.request.request import PlanRequest
from planner.request.resolve import Resolved
from planner.search.best_first import Outcome
from planner.search.memory_savers import answered_instead, note_savers
from planner.search.objective import Search, objective_of, search_question
from planner.search.question import resolve_search
from planner.space.cache import cached_space
from planner.space.lattice import Space

LatticeSearch = Callable[[Resolved, Space, Budget], Outcome]


def _search(resolved: Resolved, space: Space, budget: Budget) -> Outcome:
    return objective_of(resolved).search(space, budget=budget)


def short_plan(request: PlanRequest, budget: Budget, search: LatticeSearch = _search, *, moved: bool = False) -> Plan:
    """The plan of a request, without reasons; where nothing fits as asked, with what saves memory at a price.

    Args:
        request: on machines of one kind, or of several.
        budget: what the answer may take.
        search: of a lattice over one node group, which a caller may remember.
        moved: whether the request has all that saves memory already.

    Raises:
        MeshwrightError: a question that contradicts itself, or whose time ran out.
    """
    resolved, pins = resolve_search(request), parse_pins(request.pins)
    if resolved.mixed:
        found = search_question(resolved, budget, pins)
        edge = None if moved else answered_instead(request, resolved, found.space, found.outcome, budget)
        if edge:
            return note_savers(short_plan(edge.request, budget, moved=True), request, edge)
        return conclude(found, budget)
    space = cached_space(resolved.scenario, pins, budget)
    outcome = search(resolved, space, budget)
    wider = None if moved else answered_instead(request, resolved, space, outcome, budget)
    if wider:
        return note_savers(short_plan(wider.request, budget, search, moved=True), request, wider)
    return conclude(Search(replace(resolved, request=request), pins, space, outcome), budget)
