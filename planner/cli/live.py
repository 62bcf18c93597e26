"""What a command is doing, on stderr: a moving line for people, for a sweep a plain one now and then for logs too."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from planner.cli.ending import say

if TYPE_CHECKING:
    from planner.request.progress import Progress as Standing
    from planner.studies.progress import Progress

EVERY: Final = 10.0
"""Seconds between plain lines."""
QUICK: Final = 0.1
"""Seconds between changes of the moving line."""
LATE: Final = 1.0
"""Seconds from which on a command says what it is doing."""
State = TypeVar("State")


@contextmanager
def working(text: str, params: Mapping[str, Any], *, in_bytes: bool = False) -> Iterator[dict[str, Any]]:
    """What is being done, the best so far and its gap, where it takes longer than a second and a person looks.

    Args:
        text: what is done at first.
        params: of the command.
        in_bytes: whether what is looked for is little memory, not little time.

    Yields:
        What a question is given so that it tells how far it has come: nothing where nobody looks.
    """
    if params.get("quiet") or not sys.stderr.isatty():
        yield {}
        return
    from threading import Timer

    from rich.console import Console

    status = Console(stderr=True).status(_plain(text))
    timer = Timer(LATE, status.start)
    timer.start()
    try:
        yield {"progress": _throttled(lambda at: status.update(_plain(standing(at, in_bytes=in_bytes))), QUICK)}
    finally:
        timer.cancel()
        status.stop()


def standing(at: Standing, *, in_bytes: bool = False) -> str:
    """Where a question stands: "searching, best so far 2.43 s, at most 3.1 % from the best possible"."""
    parts = [at.doing]
    if at.done or at.total:
        parts.append(f"{at.done:,}{f' of {at.total:,}' if at.total else ''} done")
    from planner.answer.text import NOTABLE, format_bytes, format_percent, short_seconds

    if at.so_far:
        parts.append(at.so_far)
    elif at.best is not None:
        parts.append(f"best so far {(format_bytes if in_bytes else short_seconds)(at.best)}")
    # what is found is proved before other things are looked for
    if at.gap and at.gap >= NOTABLE and at.doing.startswith("searching"):
        parts.append(f"at most {format_percent(at.gap)} from the best possible")
    return ", ".join(parts)


@contextmanager
def watching(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A watcher of a sweep that suits stderr; None where silence is asked for."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield _throttled(lambda progress: status.update(_plain(line(progress))), QUICK)
    else:
        yield _throttled(lambda progress: say(line(progress)), EVERY)


def _plain(text: str) -> str:
    """Text that is no markup."""
    return text.replace("[", r"\[")


def _throttled(report: Callable[[State], None], every: float) -> Callable[[State], None]:
    last = time.monotonic()

    def watch(state: State) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            report(state)

    return watch


def line(progress: Progress) -> str:
    """Where a run stands: done, rate, time left, failures, the best so far."""
    parts = [f"{progress.done:,} of {progress.total:,} points", f"{progress.rate:.3g}/s"]
    if progress.left is not None and progress.done < progress.total:
        from planner.answer.text import format_duration

        parts.append(f"{format_duration(progress.left)} left")
    if progress.failed:
        parts.append(f"{progress.failed:,} failed")
    if progress.best:
        parts.append(f"best {progress.best[1]}")
    return ", ".join(parts)
