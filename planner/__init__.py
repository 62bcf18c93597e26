"""Which strategy to take, with a proof and the reasons.

``plan(PlanRequest(model="175b", gpus=12288))`` returns a `Plan`. Every question of the command line is a function here,
and every answer shows itself: three lines at a prompt, a card in a notebook, ``summary()``, ``to_frame()``, ``plot()``.
It holds no formula of a cost. Imports: costmodels, hardware. Importing this package loads nothing heavy; names are
resolved on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.allocation.allocate import allocate as allocate
    from planner.allocation.document import Allocation as Allocation
    from planner.allocation.queue import Queue as Queue
    from planner.allocation.queue import queue_of as queue_of
    from planner.analyses.compare import Comparison as Comparison
    from planner.analyses.compare import compare as compare
    from planner.analyses.examine_run import Examined as Examined
    from planner.analyses.examine_run import examine_run as examine_run
    from planner.analyses.read_job import JobRead as JobRead
    from planner.analyses.read_job import read_job as read_job
    from planner.analyses.replan import replan as replan
    from planner.analyses.replan_document import Replan as Replan
    from planner.analyses.robust import Robust as Robust
    from planner.analyses.robust import robust as robust
    from planner.analyses.size import size as size
    from planner.analyses.size_search import Size as Size
    from planner.analyses.validation import Validation as Validation
    from planner.analyses.validation import validate as validate
    from planner.analyses.what_if import Sensitivity as Sensitivity
    from planner.analyses.what_if import what_if as what_if
    from planner.answer.plan import Plan as Plan
    from planner.api import plan as plan
    from planner.api import predict as predict
    from planner.api import why_not as why_not
    from planner.errors import BadFile as BadFile
    from planner.errors import BadQuantity as BadQuantity
    from planner.errors import BadRequest as BadRequest
    from planner.errors import MeshwrightError as MeshwrightError
    from planner.errors import OutOfTime as OutOfTime
    from planner.errors import UnknownName as UnknownName
    from planner.explain.why_not import WhyNot as WhyNot
    from planner.request.progress import Progress as Progress
    from planner.request.request import PlanRequest as PlanRequest
    from planner.runs.calibrate.calibrate import calibrate as calibrate
    from planner.runs.calibrate.document import Calibration as Calibration
    from planner.sparse.document import SparsePlan as SparsePlan
    from planner.sparse.plan import plan_sparse as plan_sparse
    from planner.studies.sweep import Sweep as Sweep
    from planner.studies.sweep import sweep as sweep

_NAMES = {
    "planner.allocation.allocate": ("allocate",),
    "planner.allocation.document": ("Allocation",),
    "planner.allocation.queue": ("Queue", "queue_of"),
    "planner.analyses.compare": ("Comparison", "compare"),
    "planner.analyses.examine_run": ("Examined", "examine_run"),
    "planner.analyses.read_job": ("JobRead", "read_job"),
    "planner.analyses.replan": ("replan",),
    "planner.analyses.replan_document": ("Replan",),
    "planner.analyses.robust": ("Robust", "robust"),
    "planner.analyses.size": ("size",),
    "planner.analyses.size_search": ("Size",),
    "planner.analyses.validation": ("Validation", "validate"),
    "planner.analyses.what_if": ("Sensitivity", "what_if"),
    "planner.answer.plan": ("Plan",),
    "planner.api": ("plan", "predict", "why_not"),
    "planner.errors": ("BadFile", "BadQuantity", "BadRequest", "MeshwrightError", "OutOfTime", "UnknownName"),
    "planner.explain.why_not": ("WhyNot",),
    "planner.request.progress": ("Progress",),
    "planner.request.request": ("PlanRequest",),
    "planner.runs.calibrate.calibrate": ("calibrate",),
    "planner.runs.calibrate.document": ("Calibration",),
    "planner.sparse.document": ("SparsePlan",),
    "planner.sparse.plan": ("plan_sparse",),
    "planner.studies.sweep": ("Sweep", "sweep"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'planner' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
