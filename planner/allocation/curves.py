"""What each job does with each placement: its best strategy there, found once for equal questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Final

from costmodels.stability import Stability
from costmodels.training.goodput import move_seconds
from costmodels.training.training import iterations
from hardware.records import Cluster, NodeGroup
from planner.allocation.queue import Job, Queue
from planner.answer.build import counted_flops, strategy_record
from planner.answer.plan import Strategy
from planner.errors import BadRequest, MeshwrightError
from planner.explain.infeasible import refusal_summary
from planner.request.budget import SEARCH, Budget
from planner.request.defaults import default_batch
from planner.request.pins import parse_pins
from planner.request.request import PlanRequest
from planner.request.resolve import Resolved, resolve
from planner.search.best_first import Outcome
from planner.search.memory_savers import describe_savers, saver_options
from planner.search.objective import Objective, objective_of
from planner.space.divisors import around
from planner.space.lattice import build

LONGEST_SEARCH: Final = SEARCH
"""Effort that the search for one placement may take."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Whole nodes of one group."""

    group: str
    gpus: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Point:
    """A job on a placement under its best strategy there."""

    at: Placement
    iteration_seconds: float
    tokens_per_second: float
    flops: float
    """Useful FLOP/s: model FLOP, without recomputation."""
    seconds: float
    """Until the tokens that are left are trained."""
    dollars: float | None
    move_seconds: float
    """Lost if the job comes here from elsewhere, where it does not say."""
    proved: bool
    strategy: Strategy
    savings: str = ""
    """What it does to save memory though nobody asked, as nothing fits without."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A placement that no strategy of a job fits, and what is short there."""

    at: Placement
    why: str

    def in_words(self) -> str:
        """Where, and what is short."""
        return f"on {self.at.gpus:,} {self.at.group} {self.why}"


def largest(refused: Sequence[Refused]) -> Refused:
    """The placement that comes nearest to holding a job."""
    return max(refused, key=lambda one: one.at.gpus)


@dataclass(frozen=True, slots=True)
class Curves:
    """The points of every job, in the order of the queue, and what was not looked at in time."""

    points: tuple[tuple[Point, ...], ...]
    refused: tuple[tuple[Refused, ...], ...]
    """Placements of every job that none of its strategies fits."""
    unpriced: int
    searches: int
    seconds: float


def placements(job: Job, cluster: Cluster) -> tuple[Placement, ...]:
    """Where a job may go: whole nodes; the counts that it allows, else powers of two of nodes, and all of them.

    Where it runs now is one of them, if the group still has that many.

    Raises:
        BadRequest: no count that it allows fills whole nodes of a group that it allows.
    """
    found = [at for group in _allowed(job, cluster) for at in _counts(job, group)]
    if found:
        return tuple(found)
    sizes = ", ".join(f"{g.gpus} {g.name} in nodes of {g.gpus_per_node}" for g in _allowed(job, cluster))
    wanted = ", ".join(map(str, job.gpus)) if job.gpus else f"{job.min_gpus} to {job.max_gpus}"
    said = f"job {job.name}: {wanted} GPUs are no whole nodes of what there is: {sizes}"
    raise BadRequest(f"{said}; {_whole_nodes(job, cluster)}")


def _whole_nodes(job: Job, cluster: Cluster) -> str:
    """The counts of whole nodes on either side of what a job wants, as the end of a sentence."""
    sizes = [(g.gpus_per_node, g.nodes or 0) for g in _allowed(job, cluster)]
    whole = sorted({size * nodes for size, most in sizes for nodes in range(1, most + 1)})
    return around(whole, job.gpus[0] if job.gpus else job.max_gpus)


def _allowed(job: Job, cluster: Cluster) -> list[NodeGroup]:
    return [group for group in cluster.groups if job.groups is None or group.name in job.groups]


def _counts(job: Job, group: NodeGroup) -> list[Placement]:
    size, nodes = group.gpus_per_node, group.nodes or 0
    usual = {2**k for k in range(nodes.bit_length()) if 2**k <= nodes} | {nodes}
    wanted = usual if job.gpus is None else {gpus // size for gpus in job.gpus if gpus % size == 0}
    if job.running is not None and job.running.group == group.name and job.running.gpus % size == 0:
        wanted = wanted | {job.running.gpus // size}
    fitting = [n for n in sorted(wanted) if 0 < n <= nodes and job.min_gpus <= n * size <= job.max_gpus]
    return [Placement(group.name, n * size, n) for n in fitting]


def question_at(job: Job, cluster: Cluster, at: Placement) -> PlanRequest:
    """The job's question on one placement; its batch is the same on all of them."""
    group = next(group for group in cluster.groups if group.name == at.group)
    alone = Cluster(name=cluster.name, title=cluster.title, groups=(group,), sources=cluster.sources)
    question = job.question.model_copy(update={"gpus": at.gpus, "cluster": alone, "top": 0})
    if question.global_batch_size is not None:
        return question
    sequence = resolve(job.question.model_copy(update={"cluster": alone})).scenario.seq_length
    return question.model_copy(update={"global_batch_size": default_batch(1, sequence)})


def curves(queue: Queue, *, budget: Budget, workers: int = 1) -> Curves:
    """The best strategy of every job on every placement.

    Equal questions are searched once. What no strategy fits is left out; what was not searched to its end is counted.

    Args:
        queue: machines and jobs.
        budget: of each of them; no further search begins after the end of its time, if it has one.
        workers: processes that search.

    Raises:
        BadRequest: a job whose question contradicts itself, by the job's name.
    """
    before = budget.elapsed
    asked = [[checked_question(job, queue.cluster, at) for at in placements(job, queue.cluster)] for job in queue.jobs]
    distinct = {_key(question): question for questions in asked for _, question in questions}
    found = dict(zip(distinct, _searched(tuple(distinct.values()), budget, workers), strict=True))
    points = [
        tuple(
            _for_job(point, at, question)
            for at, question in questions
            if not isinstance(point := found[_key(question)], str)
        )
        for questions in asked
    ]
    for job, questions in zip(queue.jobs, asked, strict=True):
        _check_pins(job, [found[_key(question)] for _, question in questions])
    late = sum(1 for answer in found.values() if answer == LATE)
    refused = [tuple(_refused([(at, found[_key(question)]) for at, question in questions])) for questions in asked]
    return Curves(tuple(points), tuple(refused), late, len(distinct) - late, budget.elapsed - before)


def checked_question(job: Job, cluster: Cluster, at: Placement) -> tuple[Placement, PlanRequest]:
    """A placement with its question; what is wrong with it names the job."""
    try:
        question = question_at(job, cluster, at)
        resolve(question)
    except MeshwrightError as error:
        raise BadRequest(f"job {job.name}: {error}") from None
    return at, question


def _refused(answers: Iterable[tuple[Placement, Point | str]]) -> Iterator[Refused]:
    for at, answer in answers:
        if isinstance(answer, str) and answer != LATE:
            yield Refused(at, answer.removeprefix(NOTHING).removeprefix(REFUSED))


def _check_pins(job: Job, answers: Sequence[Point | str]) -> None:
    """Refuse pins that go with no placement at all."""
    refused = [one.removeprefix(REFUSED) for one in answers if isinstance(one, str) and one.startswith(REFUSED)]
    if len(refused) == len(answers):
        raise BadRequest(f"job {job.name}: {refused[-1]}")


def _key(question: PlanRequest) -> str:
    """Equal for questions that have one best strategy: how long to train does not matter to it."""
    return question.model_dump_json(exclude={"tokens", "time_limit"})


LATE: Final = "late"
NOTHING: Final = "nothing fits: "
"""Begins what a placement answers that no strategy fits."""
REFUSED: Final = "refused: "
"""Begins what a placement answers that the job's pins do not go with."""


def _searched(questions: Sequence[PlanRequest], budget: Budget, workers: int) -> Iterable[Point | str]:
    if workers == 1 or len(questions) < 2 * workers:
        return [best_point(question, budget) for question in questions]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(best_point, questions, [budget] * len(questions)))


def best_point(question: PlanRequest, budget: Budget) -> Point | str:
    """The strategy that `plan` would take, without its reasons: a search, and the price of what it found.

    The budget is as large for every placement, wherever it is searched: what one takes, another does not lack.
    """
    if budget.spent():
        return LATE
    budget = budget.part(budget.effort)
    resolved = resolve(question)
    scenario = resolved.scenario
    try:
        space = build(scenario, parse_pins(question.pins))
    except BadRequest as error:  # pins that so many GPUs cannot make up; more may
        return f"{REFUSED}{error}"
    objective = objective_of(resolved)
    outcome = objective.search(space, budget=budget)
    saved = _with_savers(question, objective, budget) if outcome.best is None and outcome.proved else None
    outcome = saved or outcome
    if outcome.best is None:
        return f"{NOTHING}{refusal_summary(resolved, space, outcome)}" if outcome.proved else LATE
    best, group = objective.choice(outcome).taken, scenario.group
    return Point(
        at=Placement(group.name, scenario.gpus, group.nodes or 1),
        iteration_seconds=best.iteration,
        tokens_per_second=scenario.tokens / best.iteration,
        flops=counted_flops(scenario) * scenario.tokens / best.iteration,
        seconds=0.0,
        dollars=None,
        move_seconds=move_seconds(scenario, Stability()),
        proved=outcome.proved,
        strategy=strategy_record(best.row, best.assignment, scenario),
        savings=describe_savers(best.row) if saved else "",
    )


def _with_savers(question: PlanRequest, objective: Objective, budget: Budget) -> Outcome | None:
    """What a search finds with what saves memory at a price, where nothing fits without, as `plan` takes it."""
    for axis, values in saver_options(question.pins, objective.scenario):
        try:
            space = build(objective.scenario, parse_pins({**question.pins, axis: values}))
        except BadRequest:  # layers of a prime number, or a range that leaves nothing
            continue
        found = objective.search(space, budget=budget)
        if found.best is not None:
            return found
    return None


def _for_job(point: Point, at: Placement, question: PlanRequest) -> Point:
    """The point with what depends on the tokens of one job."""
    resolved = resolve(question)
    seconds = _seconds(point, resolved)
    price = resolved.scenario.group.rent
    dollars = None if price is None else price * at.gpus * seconds
    known: dict[str, Any] = {name: getattr(point, name) for name in Point.__slots__}
    return Point(**known | {"at": at, "seconds": seconds, "dollars": dollars})


def _seconds(point: Point, resolved: Resolved) -> float:
    steps = iterations(tokens=resolved.tokens, tokens_per_iteration=resolved.scenario.tokens)
    return steps * point.iteration_seconds
