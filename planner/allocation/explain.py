"""Why each job got what it got, and what more would bring it and cost the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from costmodels.strategy import Ints
from planner.allocation.because import because
from planner.allocation.curves import Curves, Refused, largest
from planner.allocation.division import Division
from planner.allocation.document import CurvePoint, JobAnswer, Placed
from planner.allocation.options import Option, dollars
from planner.allocation.queue import Job
from planner.allocation.solver import solve
from planner.answer.plan import Strategy
from planner.request.budget import Budget
from planner.request.written import savings

EXPLAINED: Final = 1e6
"""Effort of the reasons of all jobs together."""
EACH: Final = 2.5e5
"""Effort of what more would bring one job."""
_NAMED: Final = 3
"""Other jobs that a reason names."""


def job_answers(division: Division, known: Curves, budget: Budget) -> tuple[JobAnswer, ...]:
    """Every job's answer; what more would do is told of the most important first, as far as the budget goes."""
    budget = budget.part(EXPLAINED, share=1.0)
    jobs = division.queue.jobs
    more = {job: _with_more(division, job, budget) for job in sorted(range(len(jobs)), key=_by_priority(jobs))}
    return tuple(_job_answer(division, job, known, more[job]) for job in range(len(jobs)))


def _by_priority(jobs: tuple[Job, ...]) -> Callable[[int], float]:
    return lambda job: -jobs[job].priority


def _job_answer(division: Division, place: int, known: Curves, more: str | None) -> JobAnswer:
    job, option, points = division.queue.jobs[place], division.of(place), known.points[place]
    return JobAnswer(
        name=job.name,
        priority=job.priority,
        placed=_placed(option),
        change=_change(job, option),
        move_seconds=option.lost if option.point else 0.0,
        late=option.late,
        because=because(division, place) if points else _nowhere(known.refused[place]),
        with_more=more,
        curve=tuple(
            CurvePoint(
                group=p.at.group,
                gpus=p.at.gpus,
                iteration_seconds=p.iteration_seconds,
                tokens_per_second=p.tokens_per_second,
                strategy=in_words(p.strategy),
            )
            for p in points
        ),
    )


def _placed(option: Option) -> Placed | None:
    point = option.point
    if point is None:
        return None
    return Placed(
        group=point.at.group,
        gpus=point.at.gpus,
        nodes=point.at.nodes,
        iteration_seconds=point.iteration_seconds,
        tokens_per_second=point.tokens_per_second,
        model_flops_per_second=point.flops,
        finish_seconds=option.finish,
        cost_dollars=dollars(option),
        strategy=point.strategy,
    )


def in_words(strategy: Strategy) -> str:
    """The degrees of a strategy that are not 1, and what it does for memory."""
    names = ("tp", "cp", "pp", "vpp", "dp", "ep")
    said = [f"{name.upper()} {getattr(strategy, name)}" for name in names if getattr(strategy, name) > 1]
    return ", ".join([*(said or ["one GPU"]), *savings(strategy)])


def _change(job: Job, option: Option) -> str:
    if option.point is None:
        return "stops" if job.running else "waits"
    if job.running is None:
        return "starts"
    here = (job.running.group, job.running.gpus) == (option.point.at.group, option.point.at.gpus)
    return "stays" if here else "moves"


def _nowhere(refused: tuple[Refused, ...]) -> str:
    if not refused:
        return "none of its placements was priced in time"
    return f"no strategy fits on any placement that it allows: {largest(refused).in_words()}"


def _with_more(division: Division, place: int, budget: Budget) -> str | None:
    """The best division in which this job is faster, against the one chosen."""
    faster = _faster(division, place)
    if not len(faster) or budget.spent():
        return None
    table = division.table
    banned = np.setdiff1d(np.flatnonzero(table.job == place), faster)
    part = budget.part(EACH)
    other = solve(table, budget=part, banned=banned, hint=division.chosen)
    budget.spend(EACH - max(part.effort, 0.0))
    if other is None or np.isin(other.options[place], banned):
        return None
    return _told(division, place, other.options)


def _faster(division: Division, place: int) -> Ints:
    """The job's options that are faster than what it got."""
    mine = np.flatnonzero(division.table.job == place)
    now = division.of(place).point
    rate = 0.0 if now is None else now.tokens_per_second
    kept = [o for o in mine if (p := division.options[int(o)].point) is not None and p.tokens_per_second > rate]
    return np.array(kept, dtype=np.int64)


def _told(division: Division, place: int, other: Ints) -> str:
    mine, now = division.options[int(other[place])].point, division.of(place).point
    assert mine is not None
    what = f"{mine.at.gpus:,} {mine.at.group}"
    gain = f"would run on {what}" if now is None else f"{mine.tokens_per_second / now.tokens_per_second:.2f}x on {what}"
    paid = _paid(division, place, other)
    return f"{gain}; then {paid}" if paid else gain


def _paid(division: Division, place: int, other: Ints) -> str:
    """Who would get something else, and what that does to the objective."""
    jobs = division.queue.jobs
    changed = [j for j in range(len(jobs)) if j != place and other[j] != division.chosen[j]]
    said = [_instead(jobs[j].name, division.options[int(other[j])]) for j in changed[:_NAMED]]
    if len(changed) > _NAMED:
        said.append(f"{len(changed) - _NAMED} more change")
    before, after = (float(division.table.aims[-1][chosen].sum()) for chosen in (division.chosen, other))
    worse = (after - before) / (abs(before) or 1.0)
    missed = _missed(division, other)
    if missed:
        said.append(f"{missed} would miss deadlines")
    elif worse > 0.0:
        said.append(f"the objective is {worse:.2%} worse")
    return ", ".join(said)


def _missed(division: Division, other: Ints) -> str:
    """Jobs that are late there and not here."""
    late = [j for j in range(len(other)) if division.options[int(other[j])].late and not division.of(j).late]
    return ", ".join(division.queue.jobs[j].name for j in late[:_NAMED])


def _instead(name: str, option: Option) -> str:
    return f"{name} waits" if option.point is None else f"{name} gets {option.point.at.gpus:,} {option.point.at.group}"
