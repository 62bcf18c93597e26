"""Why a job got what it got: by what the objective weighs, and by what the others leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from planner.allocation.curves import Placement
from planner.allocation.division import Division
from planner.allocation.options import Option, dollars, pace
from planner.allocation.queue import Goal
from planner.answer.text import format_duration, format_prefixed


def because(division: Division, job: int) -> str:
    """The reason of a job that has placements."""
    asked, option = division.queue.jobs[job], division.of(job)
    if option.point is None:
        return f"{'stops' if asked.running else 'waits'}: {_not_placed(division, job)}"
    reasons = [_among(division, job)]
    if asked.deadline is not None:
        reasons.append(_about_deadline(option, asked.deadline))
    if asked.running is not None and option.lost:
        reasons.append(f"moving loses {format_duration(option.lost)}")
    return "; ".join(reasons)


def _not_placed(division: Division, job: int) -> str:
    """What the others leave is too little, or less to the job than a place after the period."""
    if not len(division.beside(job)):
        fewest = min((division.options[o].point for o in division.mine(job)), key=lambda p: p.at.gpus if p else 0)
        least = f"{fewest.at.gpus:,} GPUs" if fewest else ""
        return f"it needs {least} at least, the others leave {_left(division, job)}{_reckoned(division, job)}"
    waiting = int(division.chosen[job])
    best = min(division.beside(job), key=lambda o: tuple(aim[o] for aim in division.table.aims))
    match division.before(waiting, best):
        case None:
            return _as_good(division)
        case 0:
            return f"on {_where(division, best)}, which are left, it would miss its deadline"
        case _:
            return _later(division, waiting, best)


def _reckoned(division: Division, job: int) -> str:
    """When a job that waits is done, where the objective weighs that."""
    wait = division.of(job)
    if wait.after is None or division.queue.objective != "weighted-finish":
        return ""
    start, finish = format_duration(wait.start), format_duration(wait.finish)
    return f"; reckoned to start on {_at(wait.after)} {start} from now, done in {finish}"


def _later(division: Division, waiting: int, best: int) -> str:
    """Where a job that waits is reckoned to start, and when."""
    wait = division.options[waiting]
    assert wait.after is not None
    after = f"on {_at(wait.after)} {format_duration(wait.start)} from now"
    freed = ", when they are free," if wait.start > division.queue.period else ""
    then, now = (format_duration(division.options[o].finish) for o in (waiting, best))
    return f"if it starts {after}{freed} it is done in {then}, on the {_where(division, best)} that are left in {now}"


def _as_good(division: Division) -> str:
    return "it is as well for the objective" if division.proved else "no better division was found in time"


def _among(division: Division, job: int) -> str:
    """How good a placement is by what the objective weighs, and why the job has not the best of them."""
    value, chosen = division.table.aims[-1], int(division.chosen[job])
    mine, goal = division.mine(job), division.queue.objective
    best = min(mine, key=lambda o: (value[o], o != chosen))
    if best == chosen:
        return f"the {BEST[goal]} of its placements"
    return f"{COMPARED[goal](division, chosen, best)}, {_withheld(division, job, best)}"


def _withheld(division: Division, job: int, best: int) -> str:
    if best not in division.beside(job):
        group = int(division.table.group[best])
        return f"of which the others leave {_gpus(division, job, group)}"
    if division.options[best].late and not division.of(job).late:
        return "where it would miss its deadline"
    return _as_good(division)


def _paces(division: Division, chosen: int, best: int) -> str:
    mine, other = (division.options[o] for o in (chosen, best))
    share = pace(mine, division.queue.period) / pace(other, division.queue.period)
    assert mine.point is not None
    assert other.point is not None
    part = mine.point.at.gpus / other.point.at.gpus
    return f"{share:.0%} of its pace with {part:.0%} of the GPUs of {_where(division, best)}"


def _finishes(division: Division, chosen: int, best: int) -> str:
    mine, other = (format_duration(division.options[o].finish) for o in (chosen, best))
    return f"done in {mine}, in {other} on {_where(division, best)}"


def _costs(division: Division, chosen: int, best: int) -> str:
    mine, other = (format_prefixed(dollars(division.options[o]) or 0.0) for o in (chosen, best))
    return f"costs ${mine}, ${other} on {_where(division, best)}"


BEST: Final[Mapping[Goal, str]] = {
    "throughput": "fastest",
    "weighted-finish": "soonest done",
    "cost": "cheapest",
    "fairness": "fastest",
}
COMPARED: Final[Mapping[Goal, Callable[[Division, int, int], str]]] = {
    "throughput": _paces,
    "weighted-finish": _finishes,
    "cost": _costs,
    "fairness": _paces,
}
"""What the objective weighs, of what a job got and of the best that it could have."""


def _where(division: Division, option: int) -> str:
    point = division.options[option].point
    assert point is not None
    return _at(point.at)


def _at(place: Placement) -> str:
    return f"{place.gpus:,} {place.group}"


def _left(division: Division, job: int) -> str:
    """GPUs of the groups where it has placements."""
    groups = sorted({int(group) for group in division.table.group[division.mine(job)]})
    return ", ".join(f"{_gpus(division, job, g)} {division.queue.cluster.groups[g].name}" for g in groups)


def _gpus(division: Division, job: int, group: int) -> str:
    """GPUs of a group that the others leave."""
    return f"{int(division.left(job)[group]) * division.queue.cluster.groups[group].gpus_per_node:,}"


def _about_deadline(option: Option, deadline: float) -> str:
    apart = abs(option.finish - deadline) / 86400.0
    return f"misses its deadline by {apart:.1f} d" if option.late else f"meets its deadline with {apart:.1f} d to spare"
