"""What is short where nothing fits: every refusal of a search, and one line for answers that have no room for more."""

from __future__ import annotations

from costmodels.scenario import Scenario
from planner.answer.plan import Rejection
from planner.explain.decisive import decisive
from planner.explain.nearest_request import nearest
from planner.explain.reasons import telling
from planner.explain.verdict import memory_example
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.request.request import Resolved
from planner.rules.core import binding
from planner.search.best_first import Outcome
from planner.space.lattice import Space


def rejections(space: Space, outcome: Outcome, scenario: Scenario) -> tuple[Rejection, ...]:
    """What the rules and memory refused, in the order in which they spoke."""
    rows = [Rejection(rule=r.rule, count=r.count, example=r.example) for r in space.refusals]
    if outcome.memory_refused:
        example = memory_example(outcome, scenario)
        rows.append(Rejection(rule="memory", count=outcome.memory_refused, example=example))
    return tuple(rows)


def why_nothing(resolved: Resolved, space: Space, outcome: Outcome) -> tuple[Rejection, ...]:
    """The refusals that say why nothing is left, memory first."""
    scenario, rules = resolved.scenario, binding(resolved.scenario)
    found = rejections(space, outcome, scenario)
    if outcome.memory_refused:
        return telling(found, resolved, rules)
    due = decisive(found, scenario, parse_pins(resolved.request.pins), rules)
    first = telling(due, resolved, rules)
    return (*first, *(one for one in due if one not in first)) if len(due) < len(found) else first


def shortage(resolved: Resolved, space: Space, outcome: Outcome) -> str:
    """The first of them in words, with its numbers."""
    found = why_nothing(resolved, space, outcome)
    return found[0].example if found else "no strategy is left"


def and_nearest(resolved: Resolved, budget: Budget) -> str:
    """The end of a sentence that says what is short: the nearest request that works, "" where none was found."""
    near = nearest(resolved, budget).advice
    return f"; nearest that works: {near.subject}" if near else ""
