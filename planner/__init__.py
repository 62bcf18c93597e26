"""Which strategy to take, with a proof and the reasons.

``plan(PlanRequest(model="175b", gpus=12288))`` returns a `Plan`. It holds no formula of a cost. Imports: costmodels,
hardware. Importing this package loads nothing heavy;
names are resolved on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.allocation.allocate import allocate
    from planner.allocation.document import Allocation
    from planner.allocation.queue import Queue, queue_of
    from planner.analyses.replan import replan
    from planner.analyses.replan_document import Replan
    from planner.answer.plan import Plan
    from planner.api import plan, predict, why_not
    from planner.errors import BadFile, BadQuantity, BadRequest, MeshwrightError, OutOfTime, UnknownName
    from planner.explain.why_not import WhyNot
    from planner.request.request import PlanRequest
    from planner.runs.calibrate.calibrate import calibrate
    from planner.runs.calibrate.document import Calibration
    from planner.sparse.document import SparsePlan
    from planner.sparse.plan import plan_sparse

_HOMES = {
    "Allocation": "planner.allocation.document",
    "BadFile": "planner.errors",
    "BadQuantity": "planner.errors",
    "BadRequest": "planner.errors",
    "Calibration": "planner.runs.calibrate.document",
    "MeshwrightError": "planner.errors",
    "OutOfTime": "planner.errors",
    "Plan": "planner.answer.plan",
    "PlanRequest": "planner.request.request",
    "Queue": "planner.allocation.queue",
    "Replan": "planner.analyses.replan_document",
    "SparsePlan": "planner.sparse.document",
    "UnknownName": "planner.errors",
    "WhyNot": "planner.explain.why_not",
    "allocate": "planner.allocation.allocate",
    "calibrate": "planner.runs.calibrate.calibrate",
    "plan": "planner.api",
    "plan_sparse": "planner.sparse.plan",
    "predict": "planner.api",
    "queue_of": "planner.allocation.queue",
    "replan": "planner.analyses.replan",
    "why_not": "planner.api",
}

__all__ = [
    "Allocation",
    "BadFile",
    "BadQuantity",
    "BadRequest",
    "Calibration",
    "MeshwrightError",
    "OutOfTime",
    "Plan",
    "PlanRequest",
    "Queue",
    "Replan",
    "SparsePlan",
    "UnknownName",
    "WhyNot",
    "allocate",
    "calibrate",
    "plan",
    "plan_sparse",
    "predict",
    "queue_of",
    "replan",
    "why_not",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'planner' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
