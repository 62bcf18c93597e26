"""What a page shows of one plan alone: its memory by stage, its runners-up in full, its timeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from costmodels.pricing import price_strategy
from planner.answer.load import stages_from_plan, strategy_from_plan
from planner.answer.plan import Plan
from planner.errors import MeshwrightError
from planner.render.trace import trace
from planner.request.request import PlanRequest
from planner.request.resolve import resolve

PASSES: Final = 2500
"""Passes that the timeline of a page draws: about 200 kB."""
_PARTS: Final = ("weights", "gradients", "optimizer", "activations", "logits", "slack", "reserved")


def memory_of(plan: Plan) -> list[dict[str, Any]]:
    """Every stage's memory in GiB, part by part, with its limit."""
    return [
        {
            "stage": stage.stage,
            "parts": {name: round(getattr(stage, name) / 2**30, 3) for name in _PARTS},
            "limit": round(stage.limit / 2**30, 2),
        }
        for stage in plan.memory_bytes
    ]


def runners_up(plan: Plan, kept: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Axes, status and document of every alternative; days and dollars follow from its seconds."""
    assert plan.prediction is not None
    said = plan.prediction.model_dump()
    for number, other in enumerate(plan.alternatives, start=2):
        longer = other.iteration_seconds / plan.prediction.iteration_seconds
        prediction: dict[str, Any] = {
            "iteration_seconds": other.iteration_seconds,
            "mfu": other.mfu,
            "training_days": said["training_days"] * longer,
            "cost_dollars": None if said["cost_dollars"] is None else said["cost_dollars"] * longer,
            "tokens_per_second": said["tokens_per_second"] / longer,
        }
        note = ["tied with the best: " + other.differs if other.tied else other.differs]
        document: dict[str, Any] = {"prediction": prediction, "strategy": other.strategy.model_dump(), "warnings": note}
        document |= {"request": kept["request"], "peak_memory_bytes": other.peak_memory_bytes}
        yield {"plan": f"{number}{'=' if other.tied else ''}"}, "alternative", document


def breakdowns(plan: Plan) -> list[dict[str, float]]:
    """Seconds by term of every alternative, priced again; none where this version prices another way."""
    try:
        resolved = resolve(PlanRequest(**plan.request))
    except MeshwrightError:
        return []
    if resolved.mixed:
        return []
    found = []
    for other in plan.alternatives:
        priced = price_strategy(strategy_from_plan(other.strategy), resolved.scenario, stages_from_plan(other.strategy))
        if abs(priced.iteration - other.iteration_seconds) > 1e-6 * other.iteration_seconds:
            return []
        found.append({name: seconds for name, seconds in priced.breakdown.items() if seconds > 0})
    return found


def timeline_of(plan: Plan) -> tuple[dict[str, Any] | None, str]:
    """One iteration as [stage, stream, start, length, name] in seconds, and a remark; None where it cannot be drawn."""
    try:
        drawn = trace(plan, largest=PASSES)
    except MeshwrightError as reason:
        return None, f"no timeline: {reason}"
    events = [event for event in drawn.document["traceEvents"] if event["ph"] == "X"]
    streams = sorted({event["cat"] for event in events})
    names = sorted({event["name"] for event in events})
    places = {name: i for i, name in enumerate(names)}
    rows = [
        [event["pid"], streams.index(event["cat"]), round(event["ts"]), round(event["dur"]), places[event["name"]]]
        for event in events
    ]
    remark = f"{drawn.drawn} of {drawn.planned} micro-batches" if drawn.drawn < drawn.planned else "the whole iteration"
    return {"streams": streams, "names": names, "events": rows, "span": drawn.span}, remark
