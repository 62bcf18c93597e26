"""The verdicts on many runs, in as many processes as may be used."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from multiprocessing import get_context
from typing import Final, TypeVar

from planner.runs.schema import Run

Told = TypeVar("Told")

TOGETHER: Final = 50
"""Runs that a process takes at a time, which is some tenths of a second; neighbours share models and machines."""
WORTH: Final = 500
"""Runs from which on further processes, which first have to start, end earlier than one."""


def of_each(runs: Sequence[Run], tell: Callable[[Run], Told], *, workers: int = 1) -> list[Told]:
    """What ``tell`` says of every run, in order.

    With several workers it must be something that another process can be sent, and the main module of the program
    must be one that another process can import.
    """
    if workers == 1 or len(runs) < WORTH:
        return [tell(run) for run in runs]
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_deaf)
    try:
        return list(chain.from_iterable(pool.map(partial(_told, tell), _parts(runs))))
    finally:
        pool.shutdown(cancel_futures=True)


def _parts(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    return (runs[first : first + TOGETHER] for first in range(0, len(runs), TOGETHER))


def _told(tell: Callable[[Run], Told], runs: Sequence[Run]) -> list[Told]:
    return [tell(run) for run in runs]


def _deaf() -> None:
    """An interrupt of the terminal reaches every process; the one that asks ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
