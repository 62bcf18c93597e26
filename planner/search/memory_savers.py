"""Ways to save memory at a price: allowed where the request does not speak of them and nothing fits without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, product
from typing import Final

from costmodels.names import OFFLOADS
from costmodels.node_groups import AnyScenario, Mixed
from costmodels.step.offload import described
from costmodels.strategy import Strategies
from planner.answer.plan import Plan
from planner.answer.text import WITHOUT
from planner.errors import BadRequest, OutOfTime
from planner.frameworks.registry import ANY
from planner.request.budget import Budget
from planner.request.pins import Pin, parse_pins
from planner.request.request import PlanRequest
from planner.request.resolve import MEMORY_MARGIN, Resolved, resolve_search
from planner.search.best_first import search
from planner.search.split import Incumbent
from planner.space.mixed import lay_out

NO_FRAMEWORK: Final = "framework any (nothing fits that the stack's framework can start)"
"""The remark that a plan cannot be started as it is."""
NO_MARGIN: Final = f"memory margin 0% (nothing fits with the usual {MEMORY_MARGIN:.0%})"
"""The remark that a plan goes to the edge of the memory though nobody asked for it."""


def saver_options(pins: Mapping[str, object], question: AnyScenario) -> Iterator[tuple[str, str]]:
    """The axes that save memory, with the values to allow on them, where the pins leave them alone.

    Layers that are recomputed together first, which costs no time beyond full recomputation, then offloading. Neither
    is priced on several node groups.
    """
    if isinstance(question, Mixed):
        return
    supports = question.stack.supports
    if supports.recompute_groups and not pins.get("recompute_num_layers"):
        yield "recompute_num_layers", "2.."
    if supports.offloads and described(question) and not pins.get("offload"):
        yield "offload", "any"


def with_savers(request: PlanRequest, resolved: Resolved, budget: Budget) -> PlanRequest | None:
    """The request with the first way that lets it fit; nothing fits without it.

    The margin of memory that a search leaves alone unless it is told otherwise goes after what saves memory, that its
    stack's framework starts the plan goes last.
    """
    for asked in islice(_wider(request, resolved), 1, None):
        if plain_best(resolve_search(asked).question, parse_pins(asked.pins), budget):
            return asked
    return None


def _wider(request: PlanRequest, resolved: Resolved) -> Iterator[PlanRequest]:
    """The request with ever more of what it leaves open given up: plain memory, its margin, the framework."""
    margins = (request.memory_margin, *((0.0,) if request.memory_margin is None and resolved.margin else ()))
    startable = request.framework is None and resolved.scenario.framework
    pins = [
        request.pins,
        *({**request.pins, axis: few} for axis, few in saver_options(request.pins, resolved.question)),
    ]
    for framework, margin, some in product((request.framework, *((ANY,) if startable else ())), margins, pins):
        yield request.model_copy(update={"framework": framework, "memory_margin": margin, "pins": some})


def best_of(question: AnyScenario, pins: Mapping[str, Pin], budget: Budget) -> Incumbent | None:
    """The fastest that fits, by one of these ways where nothing fits without."""
    best = plain_best(question, pins, budget)
    for axis, values in saver_options(pins, question):
        best = best or plain_best(question, {**pins, **parse_pins({axis: values})}, budget)
    return best


def plain_best(question: AnyScenario, pins: Mapping[str, Pin], budget: Budget) -> Incumbent | None:
    """The fastest that fits as asked; None also where the pins make up no strategy, or the budget is spent."""
    if budget.spent():
        return None
    try:
        space = lay_out(question, dict(pins), one_width=False, budget=budget)
    except (BadRequest, OutOfTime):  # pins that make up no strategy, layers of a prime number, an empty range
        return None
    return search(space, question, budget=budget).best


def note_savers(found: Plan, request: PlanRequest, moved: PlanRequest) -> Plan:
    """The plan of ``moved`` with the remark that its ways to fit were not asked for in ``request``."""
    if found.strategy is None:
        return found
    saves = moved.pins != request.pins
    words = _words(found.strategy.recompute_num_layers, found.strategy.offload)
    said = [f"{words}{WITHOUT}"] if saves else []
    said += [NO_MARGIN] if moved.memory_margin != request.memory_margin else []
    said += [NO_FRAMEWORK] if moved.framework != request.framework else []
    return found.model_copy(update={"defaults": (*found.defaults, *said)})


def describe_savers(row: Strategies) -> str:
    """The memory savers of a strategy, N = 1, in words: "offload optimizer"; empty where it has none."""
    together, offload = int(row.recompute_num_layers[0]), OFFLOADS[int(row.offload[0])]
    return _words(together, offload) if together > 1 or offload != "none" else ""


def _words(together: int, offload: str) -> str:
    return f"offload {offload}" if together == 1 else f"{together} layers recomputed together"
