"""What one job can get: a point of its curve, or waiting, and what either means for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np

from planner.allocation.curves import Placement, Point
from planner.allocation.queue import Job, Queue

MOST_WAYS_TO_WAIT: Final = 4_000
"""Of all jobs together; in a queue that has more, starts are looked for at fewer of the moments when jobs end."""
LEAST_STARTS: Final = 8


@dataclass(frozen=True, slots=True)
class Option:
    """What one job can get: a point of its curve, or None where it waits."""

    point: Point | None
    lost: float
    """Seconds without training because it moves, or stops and has to come back."""
    finish: float
    """Seconds from now until it is trained."""
    late: bool
    after: Placement | None = None
    """Where a job that waits is expected to start; None where that does not matter, it fits nowhere, or has a point."""
    start: float = 0.0
    """When, in seconds from now."""

    def ends_by(self, last: float) -> bool:
        """Whether it starts at the last moment or has ended by then, halfway to which all else has to have ended."""
        return self.start == last or self.finish <= last / 2.0


def options_of(queue: Queue, points: Sequence[tuple[Point, ...]]) -> list[list[Option]]:
    """Every option of every job, waiting first where it may.

    When a job that waits is done matters to the objective of finishes and to deadlines: it then has an option for each
    placement and each moment at which that may be free. Others have one, after the period where they are fastest.
    """
    placed = [[_option(job, point) for point in mine] for job, mine in zip(queue.jobs, points, strict=True)]
    moments = _moments(queue, placed)
    return [
        [*(_waiting(job, curve, moments, queue) if job.may_wait else ()), *mine]
        for job, curve, mine in zip(queue.jobs, points, placed, strict=True)
    ]


def _moments(queue: Queue, placed: Sequence[Sequence[Option]]) -> dict[str, list[float]]:
    """When a job that waits may start on each group, in seconds from now: where others end, and after everything.

    The last is twice as late as all jobs one after the other need behind the longest.
    """
    most = max(MOST_WAYS_TO_WAIT // max(sum(map(len, placed)), 1), LEAST_STARTS)
    longest = max((option.finish for mine in placed for option in mine), default=0.0)
    end = max(longest, queue.period) + sum(min((option.finish for option in mine), default=0.0) for mine in placed)
    held: dict[str, set[float]] = {group.name: set() for group in queue.cluster.groups}
    for option in chain.from_iterable(placed):
        if option.point:
            held[option.point.at.group].add(option.finish)
    return {name: [*_ends(sorted(times), queue.period, end, most), 2.0 * end] for name, times in held.items()}


def _ends(times: Sequence[float], period: float, end: float, most: int) -> list[float]:
    """The end of the period, when those who start now or then may end after it, those who follow them, and so on.

    Of too many some at equal ranks are kept, and some between them and ``end``: who waits starts at the next one, never
    too early.
    """
    first = {time for time in times if time > period} | {period + time for time in times if period + time < end}
    kept, fresh = [period], sorted(first)
    while fresh and len(kept) < most // 2:
        some = _some(fresh, most // 2 - len(kept))
        kept += some
        fresh = sorted({start + time for start in some for time in times if start + time < end} - set(kept))
    rest = np.geomspace(max(kept), end, max(most - len(kept), 1))[1:-1] if fresh else ()
    return sorted({*kept, *map(float, rest)})


def _some(times: Sequence[float], most: int) -> list[float]:
    """The first, the last, and others at equal ranks."""
    ranks = np.unique(np.linspace(0, len(times) - 1, min(len(times), most)).round().astype(int))
    return [times[rank] for rank in ranks]


def _waiting(job: Job, points: Sequence[Point], moments: Mapping[str, list[float]], queue: Queue) -> list[Option]:
    """The ways in which a job can wait."""
    if not points:
        return [Option(None, 0.0, math.inf, late=job.deadline is not None)]
    if queue.objective == "weighted-finish" or job.deadline is not None:
        starts = [(point, start) for point in points for start in moments[point.at.group]]
        ways = [(_option(job, point, start), moments[point.at.group][-1]) for point, start in starts]
        return [way for way, last in ways if way.ends_by(last)]
    soonest = min(points, key=lambda point: _option(job, point).finish)
    return [replace(_option(job, soonest, queue.period), after=None)]


def _option(job: Job, point: Point, start: float | None = None) -> Option:
    """A point of a job's curve, now or where the job waits for it until ``start``."""
    here = job.running is None
    if job.running is not None and start is None:
        here = (job.running.group, job.running.gpus) == (point.at.group, point.at.gpus)
    lost = 0.0 if here else point.move_seconds if job.migration is None else job.migration
    finish = (start or 0.0) + point.seconds + lost
    late = job.deadline is not None and finish > job.deadline
    if start is None:
        return Option(point, lost, finish, late)
    return Option(None, lost, finish, late, after=point.at, start=start)


def pace(option: Option, period: float) -> float:
    """Useful FLOP/s, what moving loses of the period taken off.

    A job that ends within the period counts as if it went on: to count its end would leave devices idle that could
    bring it forward.
    """
    return option.point.flops * max(1.0 - option.lost / period, 0.0) if option.point else 0.0


def dollars(option: Option) -> float | None:
    """Rent until the job is trained, devices idle while it moves; None where nobody says what they cost."""
    point = option.point
    return None if point is None or point.dollars is None else point.dollars * (1.0 + option.lost / point.seconds)
