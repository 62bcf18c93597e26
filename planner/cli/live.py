"""Live progress of a sweep on stderr: one moving line for people, a plain line now and then for logs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from planner.cli.ending import say

if TYPE_CHECKING:
    from planner.studies.progress import Progress

EVERY: Final = 10.0
"""Seconds between plain lines."""
QUICK: Final = 0.1
"""Seconds between changes of the moving line."""


@contextmanager
def watching(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A watcher of progress that suits stderr; None where silence is asked for."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield _throttled(lambda progress: status.update(line(progress).replace("[", r"\[")), QUICK)
    else:
        yield _throttled(lambda progress: say(line(progress)), EVERY)


def _throttled(report: Callable[[Progress], None], every: float) -> Callable[[Progress], None]:
    last = time.monotonic()

    def watch(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            report(progress)

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
