"""What a framework can start where it cannot start a plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from planner.answer.load import strategy_from_plan
from planner.answer.plan import Plan, Strategy
from planner.answer.text import name_in
from planner.explain.nearest import without
from planner.frameworks.registry import FRAMEWORKS
from planner.request.pins import parse_pins
from planner.search.question import USUAL_MARGIN

_DEGREES = ("tp", "cp", "pp", "dp", "ep", "etp")


def nearest_expressible(plan: Plan, target: str) -> str:
    """The end of a refusal: the fastest plan that the framework takes, near this one, under its pins if it can.

    Pins that it does not keep are named. Nothing for a launcher, for an answer that cannot be asked again, and where no
    plan is left.
    """
    if target not in FRAMEWORKS or plan.strategy is None:
        return ""
    for several in _ladder(plan.request.get("pins", {}), plan.strategy):
        found = [(pins, one) for pins in several if (one := _found(plan, target, pins))]
        if found:
            return _described(*min(found, key=lambda pair: _seconds(pair[1])), plan, target)
    return f"; no plan of this job is left under --for {target}"


def _ladder(asked: Mapping[str, Any], strategy: Strategy) -> Iterator[list[Mapping[str, Any]]]:
    """Pins to try, the most like the plan first, those next to each other equally like it."""
    same = {name: getattr(strategy, name) for name in _DEGREES}
    yield [{**asked, **same}]
    yield [asked]
    yield [{other: asked[other] for other in asked if other != name} for name in asked]
    yield [same]
    yield [{}]


def _found(plan: Plan, target: str, pins: Mapping[str, Any]) -> Plan | None:
    """The fastest plan that the framework takes under these pins, on its own stack."""
    from planner.api import plan as ask
    from planner.errors import MeshwrightError
    from planner.processes import check_interrupt
    from planner.request.request import PlanRequest

    own = {"stack", "pins"} | ({"memory_margin"} if any(USUAL_MARGIN in said for said in plan.defaults) else set())
    fields = {name: value for name, value in plan.request.items() if name not in own}
    fields |= {"framework": target, "pins": pins, "time_limit": None, "top": 0, "reasons": False}
    try:
        found = ask(PlanRequest(**fields))
    except (MeshwrightError, ValueError) as error:
        check_interrupt(error)
        return None
    return found if found.strategy and found.prediction else None


def _seconds(found: Plan) -> float:
    return found.prediction.iteration_seconds if found.prediction else math.inf


def _described(pins: Mapping[str, Any], found: Plan, plan: Plan, target: str) -> str:
    """The plan, and the question that has it for an answer: other degrees may be faster, but are less near."""
    assert found.strategy is not None
    degrees = _DEGREES if found.request["model"].get("moe") else _DEGREES[:4]
    degrees_shown = " ".join(f"{name} {getattr(found.strategy, name)}" for name in degrees)
    kept = " with these degrees pinned" if set(_DEGREES) <= set(pins) else ""
    at, asked = strategy_from_plan(found.strategy).row(0), parse_pins(plan.request.get("pins", {}))
    gone = [name for name, pin in asked.items() if int(at[name]) not in pin.restrict((int(at[name]),))]
    freed = f", {without(gone)}" if gone else ""
    stack = found.request["stack"]
    on = "" if stack == plan.request.get("stack") else f" on stack {name_in(stack)}"
    return f"; nearest: {degrees_shown} in {_seconds(found):.4g} s{on} (plan --for {target}{kept}{freed})"
