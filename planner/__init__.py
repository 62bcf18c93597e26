"""Which strategy to take, with a proof and the reasons.

``plan(PlanRequest(model="175b", gpus=12288))`` returns a `Plan`. Importing this package loads nothing heavy;
names are resolved on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.allocation.allocate import allocate
    from planner.allocation.document import Allocation
    from planner.allocation.queue import Queue, queue_of
    from planner.api import plan, predict
    from planner.calibration.calibrate import calibrate
    from planner.calibration.document import Calibration
    from planner.document import Plan
    from planner.errors import BadFile, BadQuantity, BadRequest, MeshwrightError, OutOfTime, UnknownName
    from planner.objection import WhyNot, why_not
    from planner.replan_document import Replan
    from planner.replanning import replan
    from planner.request import PlanRequest
    from planner.sparse import plan_sparse
    from planner.sparse_document import SparsePlan

_HOMES = {
    "Allocation": "planner.allocation.document",
    "BadFile": "planner.errors",
    "BadQuantity": "planner.errors",
    "BadRequest": "planner.errors",
    "Calibration": "planner.calibration.document",
    "MeshwrightError": "planner.errors",
    "OutOfTime": "planner.errors",
    "Plan": "planner.document",
    "PlanRequest": "planner.request",
    "Queue": "planner.allocation.queue",
    "Replan": "planner.replan_document",
    "SparsePlan": "planner.sparse_document",
    "UnknownName": "planner.errors",
    "WhyNot": "planner.objection",
    "allocate": "planner.allocation.allocate",
    "calibrate": "planner.calibration.calibrate",
    "plan": "planner.api",
    "plan_sparse": "planner.sparse",
    "predict": "planner.api",
    "queue_of": "planner.allocation.queue",
    "replan": "planner.replanning",
    "why_not": "planner.objection",
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
