"""Many runs at once: in groups, as cases, or in as many processes as may be used."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from hardware.errors import MeshwrightError
from planner.processes import map_in_processes
from planner.request.progress import Progress, Tell
from planner.runs.case import Case, case_of
from planner.runs.files import read_runs
from planner.runs.schema import Run

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

CHUNK: Final = 50
"""Runs that a process takes at a time, which is some tenths of a second; neighbours share models and machines."""
FEWEST: Final = 500
"""Runs from which on further processes, which first have to start, end earlier than one."""


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Items by their key, in order of first appearance."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def scored_cases(paths: Iterable[Path], wanted: Callable[[Run], object]) -> Iterator[tuple[Run, Case]]:
    """The scored runs of some files that are wanted and can be priced, each with its case."""
    for run in (run for path in paths for run in read_runs(path) if wanted(run)):
        if (case := scored_case(run)) is not None:
            yield run, case


def scored_case(run: Run) -> Case | None:
    """The run as it is priced; None where it is not scored or cannot be."""
    try:
        return case_of(run) if run.scored and not run.unpriced else None
    except MeshwrightError:
        return None


def counting(total: int, progress: Tell | None) -> Callable[[list[Any]], None] | None:
    """What tells how many of so many runs are priced, as results come; None where nobody asked."""
    if progress is None:
        return None
    done = 0

    def report(found: list[Any]) -> None:
        nonlocal done
        done += len(found)
        progress(Progress("pricing measured runs", done=done, total=total))

    return report


def map_runs(
    runs: Sequence[Run],
    function: Callable[[Run], Result],
    *,
    workers: int = 1,
    report: Callable[[list[Result]], None] | None = None,
) -> list[Result]:
    """What ``function`` gives for every run, as of `map_in_processes`."""
    return map_in_processes(function, runs, workers=workers, chunk=CHUNK, fewest=FEWEST, report=report)
