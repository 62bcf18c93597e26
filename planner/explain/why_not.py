"""The third question: why not another strategy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from planner.answer.plan import Advice, Plan, Rejection, Strategy
from planner.explain import verdict as explain
from planner.explain.challenges import MEMORY
from planner.request.pins import Pin, shown_value
from planner.request.request import PlanRequest
from planner.rules.core import GROUP_RULES
from planner.space.mixed import WIDTH


class WhyNot(BaseModel):
    """The answer to "why not this", schema ``why-not/1``: broken rules, or the price beside the best plan's.

    Both where launchers start no such plan.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["why-not/1"] = Field("why-not/1", alias="schema")
    strategy: Strategy | None
    pins: dict[str, str]
    rules: tuple[Rejection, ...]
    iteration_seconds: float | None
    best_iteration_seconds: float | None
    terms: dict[str, tuple[float, float]]
    """Seconds of each term: this strategy's, the best plan's."""
    objective: str = "time"
    """What the best plan is best by."""
    memory_terms: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """Bytes on the fullest device, this strategy's and the best plan's, where the least memory is wanted."""
    verdict: str
    nearest: Advice | None = None
    """For what cannot run: the nearest request that works."""
    nothing_near: str = ""
    """What was tried where none was found."""


def compared(request: PlanRequest, pins: Mapping[str, Pin], pinned: Plan, best: Plan) -> WhyNot:
    """The best plan under a request's pins beside the best of all."""
    mine = pinned.prediction.iteration_seconds if pinned.prediction else None
    theirs = best.prediction.iteration_seconds if best.prediction else None
    both = bool(pinned.prediction and best.prediction)
    terms = _beside(pinned.breakdown_seconds, best.breakdown_seconds) if both else {}
    telling = telling_terms(pinned, best) if both else {}
    return WhyNot(
        strategy=pinned.strategy,
        pins={name: _shown(name, value) for name, value in pins.items()},
        rules=pinned.rejected if pinned.status == "infeasible" else _unlike(pinned),
        iteration_seconds=mine,
        best_iteration_seconds=theirs,
        terms=terms,
        objective=request.objective,
        memory_terms=telling if request.objective == "memory" else {},
        verdict=explain.verdict(pinned, best, telling),
        nearest=pinned.nearest,
        nothing_near=pinned.nothing_near,
    )


def _unlike(pinned: Plan) -> tuple[Rejection, ...]:
    """The rule of launchers that a plan breaks which has stages of several widths."""
    found = explain.widths(pinned.strategy)
    if len(found) < 2:
        return ()
    words = {rule.name: rule.sentence for rule in GROUP_RULES}[WIDTH].format(ranks=found[0], widest=found[-1])
    return (Rejection(rule=WIDTH, count=1, example=words),)


def telling_terms(this: Plan, best: Plan) -> dict[str, tuple[float, float]]:
    """What adds up to what the request wants least of, this strategy's and the best plan's: bytes or seconds."""
    parts = _held if best.request.get("objective") == "memory" else _spent
    return _beside(parts(this), parts(best))


def _beside(this: Mapping[str, float], best: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    return {name: (this[name], best[name]) for name in best}


def _held(found: Plan) -> dict[str, float]:
    """Bytes that the device which allocates most needs, by what they are for."""
    fullest = max(found.memory_bytes, key=lambda stage: stage.total - stage.slack - stage.reserved)
    return {name: getattr(fullest, name) for name in MEMORY}


def _spent(found: Plan) -> dict[str, float]:
    """Seconds of an iteration by cause, and with goodput what of the wall time goes beside them."""
    beside = found.value - found.prediction.iteration_seconds if found.prediction else 0.0
    return found.breakdown_seconds | ({"interruptions and checkpoints": beside} if found.goodput else {})


def _shown(name: str, pin: Pin) -> str:
    if not pin.values:
        return pin.span()
    return ",".join(shown_value(name, v) for v in pin.each or pin.values)
