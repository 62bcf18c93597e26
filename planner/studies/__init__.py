"""Studies: many questions at once, in parallel, never the same one twice.

``run(read_study("study.toml"), "runs.sqlite")`` answers every point of a study that the store does not hold yet;
``results(study, "runs.sqlite")`` reads the answers, point by point.

In: a study file. Out: a store of answers (SQLite), and results by point. Imports: api and below; pyarrow and ray where
asked for. Importing this package loads nothing heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.studies.progress import Progress
    from planner.studies.result import Result, results
    from planner.studies.running import run
    from planner.studies.store import Store, merge
    from planner.studies.study import Point, Study, points_of
    from planner.studies.study_file import read_study, study_of

_HOMES = {
    "Point": "planner.studies.study",
    "Progress": "planner.studies.progress",
    "Result": "planner.studies.result",
    "Store": "planner.studies.store",
    "Study": "planner.studies.study",
    "merge": "planner.studies.store",
    "points_of": "planner.studies.study",
    "read_study": "planner.studies.study_file",
    "results": "planner.studies.result",
    "run": "planner.studies.running",
    "study_of": "planner.studies.study_file",
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
        raise AttributeError(f"module 'planner.studies' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
