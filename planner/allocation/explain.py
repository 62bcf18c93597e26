"""Why each job got what it got, and what more would bring it and cost the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from costmodels.strategy import Ints
from planner.allocation.curves import Curves, Placement, Refused, largest
from planner.allocation.document import CurvePoint, JobAnswer, Placed
from planner.allocation.options import Option, dollars, pace
from planner.allocation.queue import Goal, Job, Queue
from planner.allocation.solver import Choice, Options, solve
from planner.answer.text import format_duration, format_prefixed, strategy_in_words
from planner.request.budget import Budget

EXPLAINED: Final = 1e6
"""Effort of the reasons of all jobs together."""
EACH: Final = 2.5e5
"""Effort of what more would bring one job."""
_NAMED: Final = 3
"""Other jobs that a reason names."""


@dataclass(frozen=True, slots=True)
class Division:
    """Who got what: the options of all jobs in order, and the place of each job's."""

    queue: Queue
    table: Options
    options: tuple[Option, ...]
    found: Choice

    @property
    def chosen(self) -> Ints:
        """The option of each job, (J,)."""
        return self.found.options

    def option_of(self, job: int) -> Option:
        """What a job got."""
        return self.options[int(self.chosen[job])]

    def place_of(self, option: int) -> Placement:
        """Where an option that does not wait is."""
        point = self.options[option].point
        assert point is not None
        return point.at

    def placements_of(self, job: int) -> Ints:
        """The options that a job has on some placement."""
        return np.flatnonzero((self.table.job == job) & (self.table.group >= 0))

    def nodes_left(self, job: int) -> Ints:
        """Nodes of every group that the other jobs leave, (G,)."""
        return self.table.capacity - self.table.used(np.delete(self.chosen, job))

    def placeable(self, job: int) -> Ints:
        """Those of a job's placements that what the others leave holds."""
        mine = self.placements_of(job)
        return mine[self.table.nodes[mine] <= self.nodes_left(job)[self.table.group[mine]]]

    def first_better(self, one: int, other: int) -> int | None:
        """The first objective under which one option costs less; None where it costs more first, or as much."""
        for place, objective in enumerate(self.table.objectives):
            if objective[one] != objective[other]:
                return place if objective[one] < objective[other] else None
        return None


def job_answers(division: Division, known: Curves, budget: Budget) -> tuple[JobAnswer, ...]:
    """Every job's answer; what more would do is said of the most important first, as far as the budget goes."""
    budget = budget.part(EXPLAINED, share=1.0)
    jobs = division.queue.jobs
    first = sorted(range(len(jobs)), key=lambda job: -jobs[job].priority)
    more = {job: _with_more(division, job, budget) for job in first}
    return tuple(_job_answer(division, job, known, more[job]) for job in range(len(jobs)))


def _job_answer(division: Division, place: int, known: Curves, more: str | None) -> JobAnswer:
    job, option, points = division.queue.jobs[place], division.option_of(place), known.points[place]
    return JobAnswer(
        name=job.name,
        priority=job.priority,
        placed=_placement(option),
        change=_change(job, option),
        move_seconds=option.lost if option.point else 0.0,
        late=option.late,
        because=placement_reason(division, place) if points else _fits_nowhere(known.refused[place]),
        with_more=more,
        curve=tuple(
            CurvePoint(
                group=p.at.group,
                gpus=p.at.gpus,
                iteration_seconds=p.iteration_seconds,
                tokens_per_second=p.tokens_per_second,
                strategy=strategy_in_words(p.strategy),
            )
            for p in points
        ),
    )


def _placement(option: Option) -> Placed | None:
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


def _change(job: Job, option: Option) -> str:
    if option.point is None:
        return "stops" if job.running else "waits"
    if job.running is None:
        return "starts"
    here = (job.running.group, job.running.gpus) == (option.point.at.group, option.point.at.gpus)
    return "stays" if here else "moves"


def _fits_nowhere(refused: tuple[Refused, ...]) -> str:
    if not refused:
        return "none of its placements was priced in time"
    return f"no strategy fits on any placement that it allows: {largest(refused).in_words()}"


def _with_more(division: Division, place: int, budget: Budget) -> str | None:
    """The best division in which this job is faster, against the one chosen."""
    table, now = division.table, division.option_of(place).point
    rate, every = 0.0 if now is None else now.tokens_per_second, np.flatnonzero(table.job == place)
    points = [division.options[int(option)].point for option in every]
    banned = every[[point is None or point.tokens_per_second <= rate for point in points]]
    if len(banned) == len(every) or budget.spent():
        return None
    part = budget.part(EACH)
    other = solve(table, budget=part, banned=banned, hint=division.chosen)
    budget.spend(EACH - max(part.effort, 0.0))
    if other is None or np.isin(other.options[place], banned):
        return None
    return _gain(division, place, other.options)


def _gain(division: Division, place: int, other: Ints) -> str:
    mine, now = division.options[int(other[place])].point, division.option_of(place).point
    assert mine is not None
    gain = "would run" if now is None else f"{mine.tokens_per_second / now.tokens_per_second:.2f}x"
    gain = f"{gain} on {mine.at}"
    paid = _price_for_others(division, place, other)
    return f"{gain}; then {paid}" if paid else gain


def _price_for_others(division: Division, place: int, other: Ints) -> str:
    """Who would get something else, and what that does to the objective."""
    jobs = division.queue.jobs
    changed = [j for j in range(len(jobs)) if j != place and other[j] != division.chosen[j]]
    points = [(jobs[j].name, division.options[int(other[j])].point) for j in changed[:_NAMED]]
    said = [f"{name} gets {point.at}" if point else f"{name} waits" for name, point in points]
    if len(changed) > _NAMED:
        said.append(f"{len(changed) - _NAMED} more change")
    before, after = (float(division.table.objectives[-1][chosen].sum()) for chosen in (division.chosen, other))
    worse = (after - before) / (abs(before) or 1.0)
    late = [j for j in range(len(other)) if division.options[int(other[j])].late and not division.option_of(j).late]
    if late:
        said.append(f"{', '.join(jobs[j].name for j in late[:_NAMED])} would miss deadlines")
    elif worse > 0.0:
        said.append(f"the objective is {worse:.2%} worse")
    return ", ".join(said)


def placement_reason(division: Division, job: int) -> str:
    """The reason of a job that has placements."""
    asked, option = division.queue.jobs[job], division.option_of(job)
    if option.point is None:
        return f"{'stops' if asked.running else 'waits'}: {_not_placed(division, job)}"
    reasons = [_among(division, job)]
    if asked.deadline is not None:
        apart = f"{abs(option.finish - asked.deadline) / 86400.0:.1f} d"
        reasons.append(
            f"misses its deadline by {apart}" if option.late else f"meets its deadline with {apart} to spare"
        )
    if asked.running is not None and option.lost:
        reasons.append(f"moving loses {format_duration(option.lost)}")
    return "; ".join(reasons)


def _not_placed(division: Division, job: int) -> str:
    """What the others leave is too little, or less to the job than a place after the period."""
    if not len(division.placeable(job)):
        least = min(division.place_of(o).gpus for o in division.placements_of(job))
        left = f"the others leave {_gpus_left(division, job)}{_expected_start(division, job)}"
        return f"it needs {least:,} GPUs at least, {left}"
    waiting = int(division.chosen[job])
    best = min(division.placeable(job), key=lambda o: tuple(objective[o] for objective in division.table.objectives))
    match division.first_better(waiting, best):
        case None:
            return _as_good(division)
        case 0:
            return f"on {division.place_of(best)}, which are left, it would miss its deadline"
        case _:
            return _later(division, waiting, best)


def _expected_start(division: Division, job: int) -> str:
    """When a job that waits is done, where the objective weighs that."""
    wait = division.option_of(job)
    if wait.after is None or division.queue.objective != "weighted-finish":
        return ""
    start, finish = format_duration(wait.start), format_duration(wait.finish)
    return f"; expected to start on {wait.after} {start} from now, done in {finish}"


def _later(division: Division, waiting: int, best: int) -> str:
    """Where a job that waits is expected to start, and when."""
    wait = division.options[waiting]
    assert wait.after is not None
    after = f"on {wait.after} {format_duration(wait.start)} from now"
    freed = ", when they are free," if wait.start > division.queue.period else ""
    then, now = (format_duration(division.options[o].finish) for o in (waiting, best))
    return f"if it starts {after}{freed} it is done in {then}, on the {division.place_of(best)} that are left in {now}"


def _as_good(division: Division) -> str:
    return "it is as well for the objective" if division.found.proved else "no better division was found in time"


def _among(division: Division, job: int) -> str:
    """How good a placement is by what the objective weighs, and why the job has not the best of them."""
    value, chosen = division.table.objectives[-1], int(division.chosen[job])
    mine, goal = division.placements_of(job), division.queue.objective
    best = min(mine, key=lambda o: (value[o], o != chosen))
    word, compared = COMPARED[goal]
    if best == chosen:
        return f"the {word} of its placements"
    return f"{compared(division, chosen, best)}, {_why_not_best(division, job, best)}"


def _why_not_best(division: Division, job: int, best: int) -> str:
    if best not in division.placeable(job):
        group = int(division.table.group[best])
        return f"of which the others leave {_gpus(division, job, group)}"
    if division.options[best].late and not division.option_of(job).late:
        return "where it would miss its deadline"
    return _as_good(division)


def _paces(division: Division, chosen: int, best: int) -> str:
    mine, other = (pace(division.options[o], division.queue.period) for o in (chosen, best))
    share, part = mine / other, division.place_of(chosen).gpus / division.place_of(best).gpus
    fewer = "" if part == 1.0 else f"with {part:.0%} of the GPUs "
    return f"{fewer}{share:.0%} of its pace on {division.place_of(best)}"


def _finishes(division: Division, chosen: int, best: int) -> str:
    mine, other = (format_duration(division.options[o].finish) for o in (chosen, best))
    return f"done in {mine}, in {other} on {division.place_of(best)}"


def _costs(division: Division, chosen: int, best: int) -> str:
    mine, other = (format_prefixed(dollars(division.options[o]) or 0.0) for o in (chosen, best))
    return f"costs ${mine}, ${other} on {division.place_of(best)}"


COMPARED: Final[Mapping[Goal, tuple[str, Callable[[Division, int, int], str]]]] = {
    "throughput": ("fastest", _paces),
    "weighted-finish": ("soonest done", _finishes),
    "cost": ("cheapest", _costs),
    "fairness": ("fastest", _paces),
}
"""What the objective calls the best of a job's placements, and how it weighs what the job got against that."""


def _gpus_left(division: Division, job: int) -> str:
    """GPUs of the groups where it has placements."""
    groups = sorted({int(group) for group in division.table.group[division.placements_of(job)]})
    return ", ".join(f"{_gpus(division, job, g)} {division.queue.cluster.groups[g].name}" for g in groups)


def _gpus(division: Division, job: int, group: int) -> str:
    """GPUs of a group that the others leave."""
    return f"{int(division.nodes_left(job)[group]) * division.queue.cluster.groups[group].gpus_per_node:,}"
