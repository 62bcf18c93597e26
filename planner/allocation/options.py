"""What one job can get: a point of its curve, or waiting, and what either means for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.allocation.curves import Point
from planner.allocation.queue import Job


@dataclass(frozen=True, slots=True)
class Option:
    """What one job can get: a point of its curve, or None where it waits."""

    point: Point | None
    lost: float
    """Seconds without training because it moves, or stops and has to come back."""
    finish: float
    """Seconds from now until it is trained; one that waits starts after the period, where it is fastest."""
    late: bool


def options_of(job: Job, points: tuple[Point, ...], period: float) -> list[Option]:
    """Every option of a job, waiting first where it may."""
    placed = [_placed(job, point) for point in points]
    if not job.may_wait:
        return placed
    fastest = min((option for option in placed), key=lambda option: option.finish, default=None)
    if fastest is None:
        return [Option(None, 0.0, math.inf, late=job.deadline is not None)]
    assert fastest.point is not None
    back = _moving(job, fastest.point) if job.running else 0.0
    finish = period + fastest.point.seconds + back
    return [Option(None, back, finish, late=job.deadline is not None and finish > job.deadline), *placed]


def _moving(job: Job, point: Point) -> float:
    return point.move_seconds if job.migration is None else job.migration


def _placed(job: Job, point: Point) -> Option:
    here = job.running is None or (job.running.group, job.running.gpus) == (point.at.group, point.at.gpus)
    lost = 0.0 if here else _moving(job, point)
    finish = point.seconds + lost
    return Option(point, lost, finish, late=job.deadline is not None and finish > job.deadline)


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
