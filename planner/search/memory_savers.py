"""Ways to save memory at a price: allowed where the request does not speak of them and nothing fits without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from costmodels.names import OFFLOADS
from costmodels.node_groups import AnyScenario, Mixed
from costmodels.step.offload import described
from costmodels.strategy import Strategies
from planner.answer.plan import Plan
from planner.answer.text import WITHOUT
from planner.errors import BadRequest, OutOfTime
from planner.request.budget import Budget
from planner.request.pins import Pin, parse_pins
from planner.request.request import PlanRequest
from planner.request.resolve import Resolved
from planner.search.best_first import search
from planner.search.split import Incumbent
from planner.space.mixed import lay_out


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
    """The request with the first way that lets it fit; nothing fits without it."""
    for axis, values in saver_options(request.pins, resolved.question):
        pins = {**request.pins, axis: values}
        if plain_best(resolved.question, parse_pins(pins), budget):
            return request.model_copy(update={"pins": pins})
    return None


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


def note_savers(found: Plan) -> Plan:
    """The plan with the remark that what saves memory was not asked for."""
    if found.strategy is None:
        return found
    remark = f"{_words(found.strategy.recompute_num_layers, found.strategy.offload)}{WITHOUT}"
    return found.model_copy(update={"defaults": (*found.defaults, remark)})


def describe_savers(row: Strategies) -> str:
    """The memory savers of a strategy, N = 1, in words: "offload optimizer"; empty where it has none."""
    together, offload = int(row.recompute_num_layers[0]), OFFLOADS[int(row.offload[0])]
    return _words(together, offload) if together > 1 or offload != "none" else ""


def _words(together: int, offload: str) -> str:
    return f"offload {offload}" if together == 1 else f"{together} layers recomputed together"
