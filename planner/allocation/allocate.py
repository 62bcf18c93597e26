"""The question of a queue: which job gets how many devices of which group, proved, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from costmodels.strategy import Ints
from planner.allocation.curves import Curves, Placement, curves, largest, question_at
from planner.allocation.document import Allocation, GroupUse, in_words
from planner.allocation.explain import Division, job_answers
from planner.allocation.options import Option, dollars, options_of, pace
from planner.allocation.queue import Goal, Job, Queue
from planner.allocation.solver import Held, Options, solve
from planner.answer.build import catalogue_hashes
from planner.answer.text import plural
from planner.errors import BadRequest, OutOfTime
from planner.explain.infeasible import nearest_in_words
from planner.request.budget import SEARCH, SPLIT, Budget
from planner.request.defaults import rents
from planner.request.progress import Tell
from planner.request.values import expect_type, whole_number
from planner.search.question import resolve_search
from planner.version import VERSION

SHARE_OF_CURVES: Final = 0.8
"""Of the time limit, when the last search for a placement begins."""
MOST_WORKERS: Final = 4096
TRIED: Final = 5
"""Jobs, the least important first, of which it is tried whether the others fit without them."""


def allocate(queue: Queue, *, workers: int = 1, progress: Tell | None = None) -> Allocation:
    """Divide the cluster.

    Deadlines come first: the least priority misses one. Under cost and fairness as much priority as can runs. Then
    the objective decides.

    Args:
        queue: machines and jobs.
        workers: processes that search the jobs' curves.
        progress: called with a `Progress`: placements searched, then the best division so far.

    Raises:
        BadRequest: a job's question contradicts itself, or cost is asked for where a group has no price.
        OutOfTime: the time limit passed before any placement was priced.
    """
    queue = expect_type("the queue", queue, Queue, example="queue_of(...) makes of a table")
    workers = whole_number("workers", workers, MOST_WORKERS)
    budget = Budget(queue.time_limit, progress=progress)
    _priced(queue)
    known = curves(queue, budget=budget.part(SEARCH, share=SHARE_OF_CURVES), workers=workers)
    if known.unpriced and not any(known.points):
        raise OutOfTime(f"no placement {budget.limit}")
    choices = options_of(queue, known.points)
    solving = budget.elapsed
    if not all(choices):
        place = next(place for place, mine in enumerate(choices) if not mine)
        return _infeasible(queue, known, budget, lambda: _fits_nowhere(queue, place, known, budget))
    table = _table(queue, choices)
    budget.go_on("searching the best division among the jobs")
    found = solve(table, budget=budget, report=partial(_tell, queue, budget))
    if found is None:
        return _infeasible(queue, known, budget, lambda: _too_many(queue, known, choices))
    budget.settle("looking for what each job would get with more")
    flat = tuple(option for mine in choices for option in mine)
    return _answer(Division(queue, table, flat, found), known, budget=budget, seconds=budget.elapsed - solving)


def _tell(queue: Queue, budget: Budget, cost: float, bound: float) -> None:
    """Tell the best division so far, and how far from the best it may be where that is a share of something."""
    value, most = _sign(queue) * cost, _sign(queue) * bound
    best, least = (1.0 / value, 1.0 / most) if queue.objective == "throughput" and value > 0.0 else (cost, bound)
    shares = queue.objective != "fairness" and best > 0.0
    said = f"best so far {in_words(queue.objective, value)}"
    budget.found(best if shares else None, least if shares else None, said)


def _sign(queue: Queue) -> float:
    """What makes a cost that is minimised the value of the objective."""
    return -1.0 if queue.objective in ("throughput", "fairness") else 1.0


def _priced(queue: Queue) -> None:
    unknown = [group.name for group in queue.cluster.groups if group.rent is None]
    if queue.objective == "cost" and unknown:
        raise BadRequest(f"objective cost: group {unknown[0]} has no price; give price = '2.50 $/h' in the cluster")


def _throughput(job: Job, mine: list[Option], period: float) -> list[float]:
    return [-job.priority * pace(option, period) for option in mine]


def _weighted_finish(job: Job, mine: list[Option], _period: float) -> list[float]:
    """Jobs that fit nowhere finish never, whatever the others get: they do not count."""
    return [job.priority * option.finish if math.isfinite(option.finish) else 0.0 for option in mine]


def _cost(_job: Job, mine: list[Option], _period: float) -> list[float]:
    """Dollars until a job is trained, devices idle while it moves; one that waits takes its cheapest place later."""
    placed = [dollars(option) or 0.0 for option in mine if option.point]
    return [(dollars(option) or 0.0) if option.point else min(placed, default=0.0) for option in mine]


def _fairness(job: Job, mine: list[Option], period: float) -> list[float]:
    """Proportional fairness [Kelly98]: the sum of priority times the logarithm of each job's share of its best pace."""
    shares = [pace(option, period) for option in mine]
    best = max(shares)
    least = min((share for share in shares if share > 0.0), default=1.0)
    return [-job.priority * math.log(max(share, least) / best) if best else 0.0 for share in shares]


COSTS: Final[Mapping[Goal, Callable[[Job, list[Option], float], list[float]]]] = {
    "throughput": _throughput,
    "weighted-finish": _weighted_finish,
    "cost": _cost,
    "fairness": _fairness,
}
MOST_JOBS_FIRST: Final = ("cost", "fairness")
"""Objectives under which waiting would be cheap, or worth minus infinity: as many as can run, by priority."""


def _table(queue: Queue, choices: list[list[Option]]) -> Options:
    """The options of all jobs as arrays, with what each costs under every objective."""
    jobs = [(place, job, mine) for place, (job, mine) in enumerate(zip(queue.jobs, choices, strict=True))]
    groups = [group.name for group in queue.cluster.groups]
    flat = [(place, job, option) for place, job, mine in jobs for option in mine]
    late = [job.priority * option.late for _, job, option in flat]
    idle = [job.priority * (option.point is None) for _, job, option in flat]
    value = [cost for _, job, mine in jobs for cost in COSTS[queue.objective](job, mine, queue.period)]
    objectives = (late, idle, value) if queue.objective in MOST_JOBS_FIRST else (late, value)

    def places(chosen: Iterable[Placement | None]) -> tuple[Ints, Ints]:
        """Group and nodes of each."""
        found = [(groups.index(at.group), at.nodes) if at else (-1, 0) for at in chosen]
        group, nodes = np.array(found, dtype=np.int64).T
        return group, nodes

    start = np.array([option.start if option.after else 0.0 for _, _, option in flat], dtype=np.float64)
    until = np.array([option.finish for _, _, option in flat], dtype=np.float64)
    return Options(
        np.array([place for place, _, _ in flat], dtype=np.int64),
        *places(option.point.at if option.point else None for _, _, option in flat),
        objectives=tuple(np.array(objective, dtype=np.float64) for objective in objectives),
        capacity=np.array([group.nodes for group in queue.cluster.groups], dtype=np.int64),
        held=Held(*places(o.point.at if o.point else o.after for _, _, o in flat), start, until),
    )


def _fits_nowhere(queue: Queue, place: int, known: Curves, budget: Budget) -> str:
    """What the largest placement of a job that may not wait is short of, and how many devices would do."""
    job, refused = queue.jobs[place], known.refused[place]
    groups = tuple(group.model_copy(update={"nodes": None}) for group in queue.cluster.groups)
    question = question_at(job, queue.cluster.model_copy(update={"groups": groups}), largest(refused).at)
    near = nearest_in_words(resolve_search(question), budget)
    fits = f"{job.name} may not wait and fits on none of its {plural(len(refused), 'placement')}"
    return f"{fits}: {largest(refused).in_words()}{near or '; let it wait'}"


def _too_many(queue: Queue, known: Curves, choices: list[list[Option]]) -> str:
    """Why the jobs that may not wait do not fit together, and which of them could."""
    firm = [(job, mine) for job, mine in zip(queue.jobs, choices, strict=True) if not job.may_wait]
    needed = " + ".join(f"{_least(mine)} for {job.name}" for job, mine in firm)
    there = " + ".join(f"{group.gpus:,} {group.name}" for group in queue.cluster.groups)
    least = sorted((job for job, _ in reversed(firm)), key=lambda job: job.priority)[:TRIED]
    works = (f"nearest that works: {job.name} waits" for job in least if _fits_without(queue, known, job))
    near = next(works, "let several wait or give them smaller counts")
    return f"jobs that may not wait need at least {needed}, of {there} GPUs in whole nodes; {near}"


def _least(mine: Sequence[Option]) -> str:
    """The fewest devices of every group on which a job fits."""
    fewest: dict[str, int] = {}
    for at in (option.point.at for option in mine if option.point):
        fewest[at.group] = min(at.gpus, fewest.get(at.group, at.gpus))
    return " or ".join(f"{gpus:,} {group}" for group, gpus in fewest.items())


def _fits_without(queue: Queue, known: Curves, waiting: Job) -> bool:
    """Whether the others fit where this job waits."""
    jobs = tuple(job.model_copy(update={"may_wait": True}) if job is waiting else job for job in queue.jobs)
    less = queue.model_copy(update={"jobs": jobs})
    return solve(_table(less, options_of(less, known.points)), budget=Budget(effort=SPLIT)) is not None


def _answer(division: Division, known: Curves, *, budget: Budget, seconds: float) -> Allocation:
    queue, found, table = division.queue, division.found, division.table
    proved = found.proved and not known.unpriced and all(p.proved for points in known.points for p in points)
    sign = _sign(queue)
    bound = found.value if found.proved else found.bound
    distance = found.value - bound
    gap = distance if queue.objective == "fairness" else distance / (abs(found.value) or 1.0)
    left = f"; {known.unpriced} placements were not priced in time" if known.unpriced else ""
    said = "no other division of these placements is better" if found.proved else f"proved within {gap:.2%}"
    return Allocation(
        status="optimal" if proved else "feasible",
        value=sign * found.value + 0.0,
        bound=sign * bound + 0.0,
        gap=gap,
        statement=said + left,
        jobs=job_answers(division, known, budget),
        solve_seconds=seconds,
        **_frame(queue, known, table.used(found.options)),
    )


def _infeasible(queue: Queue, known: Curves, budget: Budget, reason: Callable[[], str]) -> Allocation:
    if known.unpriced:  # what was not looked at might fit
        raise OutOfTime(f"{plural(known.unpriced, 'placement')} not priced {budget.limit}")
    nothing = {"value": None, "bound": None, "gap": None, "jobs": (), "solve_seconds": 0.0}
    frame = _frame(queue, known, np.zeros(len(queue.cluster.groups), dtype=np.int64))
    return Allocation(status="infeasible", statement=reason(), **nothing, **frame)


def _frame(queue: Queue, known: Curves, used: Ints) -> dict[str, Any]:
    """What every answer says; ``used`` nodes of each group, (G,)."""
    return {
        "objective": queue.objective,
        "groups": tuple(
            GroupUse(name=group.name, gpus=group.gpus or 0, used=nodes * group.gpus_per_node)
            for group, nodes in zip(queue.cluster.groups, used.tolist(), strict=True)
        ),
        "assumed": _assumed(queue, known),
        "searches": known.searches,
        "unpriced": known.unpriced,
        "curve_seconds": known.seconds,
        "version": VERSION,
        "catalogue_hash": catalogue_hashes(),
    }


def _assumed(queue: Queue, known: Curves) -> tuple[str, ...]:
    """What nobody said."""
    lines = [queue.taken] if queue.taken else []
    if any(job.question.global_batch_size is None for job in queue.jobs):
        lines.append("global batch 4 Mi tokens where a job does not say, on every placement the same")
    if any(job.question.tokens is None for job in queue.jobs):
        few = any(job.question.adapters for job in queue.jobs)
        lines.append(f"tokens left: the model's{', or 100M of a fine-tune,' * few} where a job does not say")
    if any(job.gpus is None for job in queue.jobs):
        lines.append("powers of two of nodes, and all of them, where a job allows any count")
    if any(job.running and job.migration is None for job in queue.jobs):
        lines.append("a move takes a checkpoint, a restart of 5 min and reading back, where a job does not say")
    lines += rents(queue.cluster)
    savings = {
        point.savings: job.name for job, points in zip(queue.jobs, known.points, strict=True) for point in points
    }
    lines += [f"{what} where nothing fits without, as of {job}" for what, job in sorted(savings.items()) if what]
    starts = "who waits starts then"
    if queue.objective == "weighted-finish" or any(job.deadline is not None for job in queue.jobs):
        starts += ", or when jobs have ended and left enough nodes (of very many such moments, at the next of some)"
    lines.append(f"the division holds for {queue.period / 86400:g} d; {starts}")
    return tuple(lines)
