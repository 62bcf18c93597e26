"""Many runs at once: in groups, as cases, or in as many processes as may be used."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from hardware.errors import MeshwrightError
from planner.processes import check_interrupt, map_in_processes
from planner.request.fields import GIVEN_SPLIT
from planner.request.fine_tune import fine_tune_stack
from planner.request.progress import Progress, Tell
from planner.runs.case import Case, case_in, case_of, price_cases, resolved_run
from planner.runs.files import read_runs
from planner.runs.schema import Run

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

CHUNK: Final = 100
"""Runs that a process takes at a time, which is some tenths of a second."""
SIZES: Final = ("gpus", "global_batch_size", "tokens")
"""What is asked of a job that changes no price of a micro-batch."""
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
        if run.scored and not run.unpriced and isinstance(case := case_or_reason(run), Case):
            yield run, case


def case_or_reason(run: Run, **parts: Any) -> Case | str:
    """The run as it is priced, or why it cannot be; ``parts`` as ``case_of`` takes them."""
    return _or_reason(case_of, run, **parts)


def _or_reason(function: Callable[..., Result], *args: Any, **parts: Any) -> Result | str:
    """What a function returns, or why a run cannot be priced."""
    try:
        return function(*args, **parts)
    except (MeshwrightError, ValueError, ArithmeticError) as error:
        check_interrupt(error)
        return str(error)


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


def map_cases(
    runs: Sequence[Run],
    function: Callable[[Sequence[Run], Sequence[Case | str]], Sequence[Result]],
    *,
    workers: int = 1,
    report: Callable[[list[Result]], None] | None = None,
    **parts: Any,
) -> list[Result]:
    """What ``function`` makes of every run and its ``case_or_reason``, in order, as of `map_in_processes`.

    It is given several at a time. Runs of one job go to one process, whatever lies between them, as do jobs that differ
    in their sizes alone: their prices have most in common.
    """
    jobs = grouped(range(len(runs)), lambda place: _job(runs[place]))
    alike = grouped(jobs, lambda job: tuple(said for said in job if said[0] not in SIZES))
    order = [place for some in alike.values() for job in some for place in jobs[job]]
    chunks = [[runs[place] for place in order[first : first + CHUNK]] for first in range(0, len(order), CHUNK)]
    several = len(runs) >= FEWEST
    found = map_in_processes(
        partial(_of_chunk, function, parts),
        chunks,
        workers=workers if several else 1,
        report=None if report is None else lambda done: report(list(chain(*done))),
    )
    by_place = dict(zip(order, chain(*found), strict=True))
    return [by_place[place] for place in range(len(runs))]


def _job(run: Run) -> tuple[tuple[str, Hashable], ...]:
    """What is asked of a run but for its strategy, and the stack that follows from it where none is named.

    Of records, which equal tables share, it has the identity. What cannot be priced has its reason in place of a job.
    """
    if (asked := run.request) is None:
        return (("unpriced", run.unpriced),)
    names = asked.model_fields_set.difference(GIVEN_SPLIT, ("pins",))
    said = ((name, getattr(asked, name)) for name in sorted(names))
    job = ((name, id(value) if isinstance(value, BaseModel) else repr(value)) for name, value in said)
    return (("usual stack", fine_tune_stack(asked)), *job)


def _of_chunk(
    function: Callable[[Sequence[Run], Sequence[Case | str]], Sequence[Result]],
    parts: Mapping[str, Any],
    runs: Sequence[Run],
) -> list[Result]:
    """``map_cases`` of some runs, here."""
    cases = list(_cases(runs, parts))
    _price_together(cases)
    return list(function(runs, cases))


def _cases(runs: Iterable[Run], parts: Mapping[str, Any]) -> Iterator[Case | str]:
    """``case_or_reason`` of every run; neighbours of one job are resolved once."""
    for _, same in groupby(runs, key=_job):
        first = next(same)
        resolved = _or_reason(resolved_run, first, **parts)
        for run in chain((first,), same):
            yield resolved if isinstance(resolved, str) else _or_reason(case_in, run, resolved)


def _price_together(cases: Iterable[Case | str]) -> None:
    """Have cases know their prices, worked out with those of neighbours whose scenarios differ in their sizes alone."""
    for _, alike in groupby(
        (case for case in cases if isinstance(case, Case)), key=lambda case: case.scenario.of_any_size
    ):
        with suppress(MeshwrightError, ValueError, ArithmeticError):  # the one that has it is priced once more
            price_cases(list(alike))
