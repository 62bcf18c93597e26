"""One point answered: the document that the store keeps, or the error that stands in its place.

A search does not see prices: within a process it serves all points that differ in money and power alone. Lattices serve
more points still (``planner.space.cache``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from costmodels.scenario import Scenario
from hardware.records import Accelerator
from planner.answer.plan import Plan
from planner.api import predict
from planner.api.short import short_plan
from planner.errors import MeshwrightError
from planner.processes import check_interrupt
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.request.resolve import Resolved
from planner.search.best_first import Outcome
from planner.search.choice import only_tied
from planner.search.objective import Objective, objective_of
from planner.space.lattice import Space
from planner.studies.question import request_of
from planner.studies.study import Mode

ATTEMPTS: Final = 3
"""How many workers may die on a point before it is given up."""
OUTCOMES: Final = 64
"""Searches that a process keeps; each is a row and a few numbers."""
RUNNERS_UP_WITHIN: Final = 1.0 + 1e-6
"""With the width of a tie: the only runners-up kept are those that may be taken."""

_DEFECTS: Final = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
)
"""What a mistake of the planner's own raises."""
_BLANK_MONEY: Final[dict[str, Any]] = {"power_limit": None, "host_power": 0.0, "kernel_power": None, "price": None}


@dataclass(frozen=True, slots=True)
class Task:
    """A point to answer, under the key that its answer is kept by."""

    key: str
    mode: Mode
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finished:
    """An answered point, as the store keeps it under its key: a document in JSON, or an error."""

    key: str
    status: str
    document: str | None
    error: str | None
    seconds: float = field(compare=False)
    defect: bool = False
    """Whether the error is the planner's own, not the question's."""


def given_up(task: Task, reason: str) -> Finished:
    """The end of a point on which workers die."""
    return Finished(
        task.key, "failed", None, f"{ATTEMPTS} workers died on it{reason}; out of memory?", 0.0, defect=True
    )


def answered(task: Task, shared: Shared) -> Finished:
    """The answer to one point; errors of whatever kind become part of it, and the next point goes on."""
    started = time.perf_counter()
    status, document, error, defect = "failed", None, None, False
    try:
        plan = plan_point(task, shared)
        status, document = plan.status, json.dumps(kept_document(plan), separators=(",", ":"))
        check_interrupt()
    except MeshwrightError as reason:
        error = str(reason)
    except _DEFECTS as reason:
        check_interrupt(reason)
        error, defect = f"internal error: {type(reason).__name__}: {reason}", True
    except MemoryError:
        error = "out of memory; fewer workers (--workers) leave each of them more"
    return Finished(task.key, status, document, error, time.perf_counter() - started, defect)


def plan_point(task: Task, shared: Shared) -> Plan:
    """The plan of a point, without reasons.

    Raises:
        MeshwrightError: a question that contradicts itself, or whose time ran out.
    """
    request = request_of(task.fields)
    if task.mode == "predict":
        return predict(request, near=False)
    return short_plan(request, Budget(request.time_limit), shared.found)


def kept_document(plan: Plan) -> dict[str, Any]:
    """What is kept of a plan: nothing that the next run would say differently."""
    kept = plan.model_dump(mode="json", by_alias=True, include=_KEPT)
    if kept["proof"]:
        del kept["proof"]["wall_seconds"]
    kept["peak_memory_bytes"] = max((stage.total for stage in plan.memory_bytes), default=None)
    kept["warnings"] = [*plan.warnings, *(line for line in plan.defaults if line.startswith("offload "))]
    if plan.status == "infeasible":
        kept["rejected"] = [one.model_dump(mode="json") for one in plan.rejected]
    return kept


_KEPT: Final = {"status", "request", "strategy", "prediction", "goodput", "breakdown_seconds", "proof", "provenance"}


@dataclass
class Shared:
    """A process's memory of searches, the oldest forgotten first."""

    outcomes: list[tuple[Any, Outcome]] = field(default_factory=list)

    def found(self, resolved: Resolved, space: Space, budget: Budget) -> Outcome:
        """The search of a scenario, without the rows that it saw on the way."""
        objective = objective_of(resolved)
        question = (
            _without_money(objective.scenario),
            parse_pins(resolved.request.pins),
            objective.by_memory,
            objective.tie_width,
            resolved.request.time_limit,
        )
        for place, (other, known) in enumerate(self.outcomes):
            if other == question:
                self.outcomes.append(self.outcomes.pop(place))
                return known
        self.outcomes.append((question, _search(objective, space, budget)))
        del self.outcomes[:-OUTCOMES]
        return self.outcomes[-1][1]


def _search(objective: Objective, space: Space, budget: Budget) -> Outcome:
    outcome = objective.search(space, budget=budget, margin=RUNNERS_UP_WITHIN + objective.tie_width)
    if outcome.best is not None:  # the rest of what was seen tells only why a point is infeasible
        outcome.pool = only_tied(outcome, objective.tie_width)
    return outcome


def _without_money(scenario: Scenario) -> Scenario:
    group = scenario.group
    whole: Accelerator = group.accelerator
    device = whole.model_copy(update=_BLANK_MONEY | {"power": whole.clock("bf16")})  # all that a search sees of power
    changes = {"accelerator": device, "price": None, "node_power_overhead": None}
    return replace(scenario, group=group.model_copy(update=changes))
