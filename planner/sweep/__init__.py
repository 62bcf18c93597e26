"""Studies: many questions at once, in parallel, never the same one twice.

``run(read_study("study.toml"), "runs.sqlite")`` answers every point of a study that the store does not hold yet;
``results(study, "runs.sqlite")`` reads the answers, point by point. Importing this package loads nothing heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.sweep.answers import Result, results
    from planner.sweep.points import Point, points_of
    from planner.sweep.progress import Progress
    from planner.sweep.running import run
    from planner.sweep.store import Store, merge
    from planner.sweep.study import Study
    from planner.sweep.study_file import read_study, study_of

_HOMES = {
    "Point": "planner.sweep.points",
    "Progress": "planner.sweep.progress",
    "Result": "planner.sweep.answers",
    "Store": "planner.sweep.store",
    "Study": "planner.sweep.study",
    "merge": "planner.sweep.store",
    "points_of": "planner.sweep.points",
    "read_study": "planner.sweep.study_file",
    "results": "planner.sweep.answers",
    "run": "planner.sweep.running",
    "study_of": "planner.sweep.study_file",
}

__all__ = [
    "Point",
    "Progress",
    "Result",
    "Store",
    "Study",
    "merge",
    "points_of",
    "read_study",
    "results",
    "run",
    "study_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'planner.sweep' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
