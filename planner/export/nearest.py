"""What a framework can start where it cannot start a plan."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from planner.document import Plan, Strategy
from planner.frameworks.table import FRAMEWORKS
from planner.pins import parse_pins
from planner.reread import row_of

SECONDS = 10.0
"""How long it is looked for, all in all."""
_DEGREES = ("tp", "cp", "pp", "dp", "ep", "etp")


def nearest_expressible(plan: Plan, target: str) -> str:
    """The end of a refusal: the fastest plan that the framework takes, near this one, under its pins if it can.

    Pins that it does not keep are named. Nothing for a launcher, for an answer that cannot be asked again, and where no
    plan is left.
    """
    if target not in FRAMEWORKS or plan.strategy is None:
        return ""
    deadline = time.perf_counter() + SECONDS
    for several in _ladder(plan.request.get("pins", {}), plan.strategy):
        found = [one for pins in several if (one := _found(plan, target, pins, deadline))]
        if found:
            return _told(min(found, key=lambda one: one[1]), plan, target)
    return f"; no plan of this job is left under --for {target}" if time.perf_counter() < deadline else ""


def _ladder(asked: Mapping[str, Any], strategy: Strategy) -> Iterator[list[Mapping[str, Any]]]:
    """Pins to try, the most like the plan first, those beside each other equally like it."""
    same = {name: getattr(strategy, name) for name in _DEGREES}
    yield [{**asked, **same}]
    yield [asked]
    yield [{other: asked[other] for other in asked if other != name} for name in asked]
    yield [same]
    yield [{}]


def _found(plan: Plan, target: str, pins: Mapping[str, Any], deadline: float) -> tuple[Strategy, float] | None:
    """The fastest plan that the framework takes under these pins, and its seconds."""
    from planner.api import plan as ask
    from planner.errors import MeshwrightError
    from planner.request import PlanRequest

    fields = {name: value for name, value in plan.request.items() if name not in {"stack", "pins"}}
    limit = deadline - time.perf_counter()
    if limit <= 0.0:
        return None
    fields |= {"framework": target, "pins": pins, "time_limit": limit, "top": 0, "reasons": False}
    try:
        found = ask(PlanRequest(**fields))
    except (MeshwrightError, ValueError):
        return None
    return (found.strategy, found.prediction.iteration_seconds) if found.strategy and found.prediction else None


def _told(found: tuple[Strategy, float], plan: Plan, target: str) -> str:
    strategy, seconds = found
    said = " ".join(f"{name} {getattr(strategy, name)}" for name in _DEGREES[:4])
    gone = _given_up(plan.request.get("pins", {}), strategy)
    without = f", without the pinned {', '.join(gone)}" if gone else ""
    return f"; nearest: {said} in {seconds:.4g} s (plan --for {target}{without})"


def _given_up(pins: Mapping[str, Any], strategy: Strategy) -> list[str]:
    """The pins that a strategy does not keep."""
    at = row_of(strategy).row(0)
    return [name for name, pin in parse_pins(pins).items() if int(at[name]) not in pin.restrict((int(at[name]),))]
