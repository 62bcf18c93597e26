"""What each job does with each placement: its best strategy there, found once for equal questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from costmodels.stability import Stability
from costmodels.training.goodput import move_seconds
from costmodels.training.training import iterations
from hardware.records import Cluster, NodeGroup
from planner.allocation.queue import Job, Queue, named_errors
from planner.answer.plan import Strategy
from planner.answer.text import WITHOUT
from planner.api.short import short_plan
from planner.errors import BadRequest, OutOfTime
from planner.processes import map_in_processes
from planner.request.batches import default_batch, near_batch
from planner.request.budget import Budget
from planner.request.request import PlanRequest
from planner.request.resolve import resolve
from planner.rules.divisors import around


@dataclass(frozen=True, slots=True)
class Placement:
    """Whole nodes of one group."""

    group: str
    gpus: int
    nodes: int

    def __str__(self) -> str:
        return f"{self.gpus:,} {self.group}"


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
    by_pins: bool = False
    """So many GPUs cannot make up the job's pins; more may."""

    def in_words(self) -> str:
        """Where, and what is short."""
        return f"on {self.at} {self.why}"


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
    scenario = resolve(job.question.model_copy(update={"cluster": alone})).scenario
    of_any = 1, scenario.seq_length
    batch = near_batch(scenario.model, *of_any) or default_batch(*of_any)
    return question.model_copy(update={"global_batch_size": batch})


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
    asked = [[_checked(job, queue.cluster, at) for at in placements(job, queue.cluster)] for job in queue.jobs]
    distinct = {_key(question): question for questions in asked for question in questions}
    quiet, done = budget.part(budget.effort), 0
    quiet.watch = None  # of a placement among many nobody wants to know how far it is

    def count(found: list[Point | Refused | None]) -> None:
        nonlocal done
        done += len(found)
        budget.go_on("searching a plan for every job on every placement", done, len(distinct))

    search, questions = partial(best_point, budget=quiet), tuple(distinct.values())
    several = map_in_processes(search, questions, workers=workers, fewest=2 * workers, report=count)
    found = dict(zip(distinct, several, strict=True))
    answers = [[(question, found[_key(question)]) for question in questions] for questions in asked]
    refused = tuple(tuple(one for _, one in mine if isinstance(one, Refused)) for mine in answers)
    for job, mine, why in zip(queue.jobs, answers, refused, strict=True):
        if len(why) == len(mine) and all(one.by_pins for one in why):
            raise BadRequest(f"job {job.name}: {why[-1].why}")
    points = tuple(tuple(_for_job(one, asks) for asks, one in mine if isinstance(one, Point)) for mine in answers)
    late = sum(1 for answer in found.values() if answer is None)
    return Curves(points, refused, late, len(distinct) - late, budget.elapsed - before)


def _checked(job: Job, cluster: Cluster, at: Placement) -> PlanRequest:
    """The question of a placement; what is wrong with it names the job."""
    with named_errors(f"job {job.name}"):
        question = question_at(job, cluster, at)
        resolve(question)
    return question


def _key(question: PlanRequest) -> str:
    """Equal for questions that have one best strategy: how long to train does not matter to it."""
    return question.model_dump_json(exclude={"tokens", "time_limit"})


def best_point(question: PlanRequest, budget: Budget) -> Point | Refused | None:
    """What the strategy that `plan` would take comes to, or why there is none; None where the budget ran out before.

    The budget is as large for every placement, wherever it is searched: what one takes, another does not lack.
    """
    if budget.spent():
        return None
    scenario = resolve(question).scenario
    at = Placement(scenario.group.name, scenario.gpus, scenario.group.nodes or 1)
    try:
        plan = short_plan(question, budget.part(budget.effort))
    except OutOfTime:
        return None
    except BadRequest as error:
        return Refused(at, str(error), by_pins=True)
    if plan.strategy is None or plan.prediction is None:
        return Refused(at, plan.rejected[0].example if plan.rejected else "no strategy is left")
    return Point(
        at=at,
        iteration_seconds=plan.prediction.iteration_seconds,
        tokens_per_second=plan.prediction.tokens_per_second,
        flops=plan.prediction.model_tflops_per_gpu * 1e12 * at.gpus,
        seconds=0.0,
        dollars=None,
        move_seconds=move_seconds(scenario, Stability()),
        proved=plan.status == "optimal",
        strategy=plan.strategy,
        savings=next((line.removesuffix(WITHOUT) for line in plan.defaults if line.endswith(WITHOUT)), ""),
    )


def _for_job(point: Point, question: PlanRequest) -> Point:
    """The point with what depends on the tokens of one job."""
    resolved = resolve(question)
    steps = iterations(tokens=resolved.tokens, tokens_per_iteration=resolved.scenario.tokens)
    seconds, price = steps * point.iteration_seconds, resolved.scenario.group.rent
    return replace(point, seconds=seconds, dollars=None if price is None else price * point.at.gpus * seconds)
