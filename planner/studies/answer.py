"""One point answered: the document that the store keeps, or the error that stands in its place."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from planner.answer.plan import Plan
from planner.api import conclude, predict
from planner.api.several_groups import plan_mixed
from planner.errors import MeshwrightError
from planner.request.budget import Budget
from planner.request.fields import LAYERS
from planner.request.pins import parse_pins
from planner.request.request import PlanRequest, resolve
from planner.search.memory_savers import note_savers, with_savers
from planner.space.cache import cached_space
from planner.studies.question import request_of
from planner.studies.sharing import Shared
from planner.studies.study import Mode

Status = Literal["optimal", "feasible", "infeasible", "failed"]


@dataclass(frozen=True, slots=True)
class Task:
    """A point to answer, under the key that its answer is kept by."""

    index: int
    key: str
    mode: Mode
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finished:
    """An answered point: a document in JSON, or an error and its kind."""

    index: int
    key: str
    status: Status
    document: str | None
    error: str | None
    seconds: float = field(compare=False)
    defect: bool = False
    """Whether the error is the planner's own, not the question's."""


def answered(task: Task, shared: Shared) -> Finished:
    """The answer to one point; errors of whatever kind become part of it, and the next point goes on."""
    started = time.perf_counter()
    status: Status = "failed"
    document = error = None
    defect = False
    try:
        plan = plan_of(task, shared)
        status, document = plan.status, json.dumps(document_of(plan), separators=(",", ":"))
    except MeshwrightError as reason:
        error = str(reason)
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as reason:
        error, defect = f"internal error: {type(reason).__name__}: {reason}", True
    except MemoryError:
        error = "out of memory; fewer workers (--workers) leave each of them more"
    return Finished(task.index, task.key, status, document, error, time.perf_counter() - started, defect)


def plan_of(task: Task, shared: Shared) -> Plan:
    """The plan of a point, without reasons.

    Raises:
        MeshwrightError: a question that contradicts itself, or whose time ran out.
    """
    request = request_of(task.fields)
    if task.mode == "predict":
        return predict(request, task.fields.get(LAYERS), near=False)
    return searched(request, shared)


def searched(request: PlanRequest, shared: Shared, budget: Budget | None = None) -> Plan:
    """The plan of a request, without reasons; lattices and searches that are known are not made again.

    ``budget`` is that of a whole answer that has several plans; each has its own unless given.

    Raises:
        MeshwrightError: a question that contradicts itself, or whose time ran out.
    """
    budget = Budget(request.time_limit) if budget is None else budget
    resolved = resolve(request)
    if resolved.mixed:
        return plan_mixed(resolved, resolved.mixed, budget, reasons=False)
    pins = parse_pins(request.pins)
    space = cached_space(resolved.scenario, pins)
    outcome = shared.found(resolved, space, pins, budget)
    if outcome.best is None and outcome.proved and (wider := with_savers(request, resolved, budget)):
        return note_savers(searched(wider, shared, budget))
    return conclude(replace(resolved, request=request), space, outcome, budget)


def document_of(plan: Plan) -> dict[str, Any]:
    """What is kept of a plan: nothing that the next run would say differently."""
    kept = plan.model_dump(mode="json", by_alias=True, include=_KEPT)
    if kept["proof"]:
        del kept["proof"]["wall_seconds"]
    kept["peak_memory_bytes"] = max((stage.total for stage in plan.memory_bytes), default=None)
    kept["warnings"] = [*plan.warnings, *(line for line in plan.defaults if line.startswith("offload "))]
    if plan.status == "infeasible":
        kept["rejected"] = [one.model_dump(mode="json") for one in plan.rejected]
    return kept


_KEPT = {"status", "request", "strategy", "prediction", "goodput", "breakdown_seconds", "proof", "provenance"}
