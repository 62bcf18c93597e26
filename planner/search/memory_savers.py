"""What saves memory at a price: allowed where the request does not speak of it and nothing fits without it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from costmodels.scenario import Scenario
from costmodels.step.offload import described
from costmodels.strategy import OFFLOADS, Strategies
from planner.answer.plan import Plan
from planner.errors import BadRequest
from planner.explain.verdict import WITHOUT
from planner.request.pins import Pin, parse_pins
from planner.request.request import PlanRequest, Resolved
from planner.search.best_first import search
from planner.search.split import Incumbent
from planner.space.lattice import build


def ways(pins: Mapping[str, object], scenario: Scenario) -> Iterator[tuple[str, str]]:
    """The axes that save memory, with the values to allow on them, where the pins leave them alone.

    Layers that are recomputed together first, which costs no time beyond full recomputation, then offloading.
    """
    stack = scenario.stack
    if stack.supports.recompute_groups and not pins.get("recompute_num_layers"):
        yield "recompute_num_layers", "2.."
    if stack.supports.offloads and described(scenario) and not pins.get("offload"):
        yield "offload", "any"


def offloaded(request: PlanRequest, resolved: Resolved) -> PlanRequest | None:
    """The request with the first way that lets it fit; nothing fits without it."""
    for axis, values in ways(request.pins, resolved.scenario):
        pins = {**request.pins, axis: values}
        deadline = time.perf_counter() + request.time_limit
        if plain_best(resolved.scenario, parse_pins(pins), deadline):
            return request.model_copy(update={"pins": pins})
    return None


def best_of(scenario: Scenario, pins: Mapping[str, Pin], deadline: float) -> Incumbent | None:
    """The fastest that fits, by one of these ways where nothing fits without."""
    best = plain_best(scenario, pins, deadline)
    for axis, values in ways(pins, scenario):
        best = best or plain_best(scenario, {**pins, **parse_pins({axis: values})}, deadline)
    return best


def plain_best(scenario: Scenario, pins: Mapping[str, Pin], deadline: float) -> Incumbent | None:
    """The fastest that fits as asked; None also where the pins make up no strategy."""
    try:
        space = build(scenario, dict(pins))
    except BadRequest:  # pins that make up no strategy, layers of a prime number, a range that leaves nothing
        return None
    return search(space, scenario, deadline=deadline).best


def said_so(found: Plan) -> Plan:
    """The plan with the remark that what saves memory was not asked for."""
    if found.strategy is None:
        return found
    remark = f"{_words(found.strategy.recompute_num_layers, found.strategy.offload)}{WITHOUT}"
    return found.model_copy(update={"defaults": (*found.defaults, remark)})


def spared(row: Strategies) -> str:
    """What a strategy, N = 1, does to save memory: "offload optimizer"; nothing where it does none of it."""
    together, offload = int(row.recompute_num_layers[0]), OFFLOADS[int(row.offload[0])]
    return _words(together, offload) if together > 1 or offload != "none" else ""


def _words(together: int, offload: str) -> str:
    return f"offload {offload}" if together == 1 else f"{together} layers recomputed together"
