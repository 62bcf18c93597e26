"""The queue: machines, jobs and what is wanted of them, read strictly.

A queue file is TOML or JSON. ::

    cluster = "dgx-h100"          # a name, a file, or a [cluster] table as in a cluster file
    gpus = 512                    # where the cluster leaves the number of nodes open
    objective = "throughput"      # throughput, weighted-finish, cost or fairness
    period = "1 d"                # how long the division will hold, at least

    [[jobs]]
    name = "chat"
    model = "llama3-8b"           # and every further field of a question: stack, tokens, precision, [jobs.pins] ...,
                                  # also as an option calls it (global_batch)
    tokens = "200B"               # what is left to train
    priority = 2.0
    gpus = [64, 128]              # allowed counts; without it powers of two of nodes, and all of them
    min_gpus = 16
    max_gpus = 256
    groups = ["new"]              # allowed node groups
    deadline = "14 d"             # from now
    may_wait = false              # it must run
    running = {group = "new", gpus = 64}
    migration = "20 min"          # what moving it loses; without it checkpoint, restart and reading back
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator

from hardware.catalogue import cluster as find_cluster
from hardware.errors import MeshwrightError, flatten, meant, no_such
from hardware.files import expanded, read
from hardware.records import Cluster
from hardware.units import TimeQuantity, within
from planner.answer.plan import Record
from planner.errors import BadFile, BadRequest
from planner.request.fields import GIVEN_SPLIT, PIN_AXES, by_own_name, own_name
from planner.request.files import with_relative_files
from planner.request.request import LARGEST_GPUS, PlanRequest
from planner.request.resolve import describe_subset
from planner.request.tables import cluster_of, name_or_record
from planner.request.values import whole_number

_R = TypeVar("_R", bound=BaseModel)

Goal = Literal["throughput", "weighted-finish", "cost", "fairness"]
Count = Annotated[int, Field(strict=True, gt=0, le=LARGEST_GPUS)]
Wait = Annotated[TimeQuantity, within("1 s", "3650 d", "time")]
MOST_JOBS: Final = 1000

NOT_A_JOBS: Final = ("gpus", "cluster", "objective", "stability", "top", "time_limit", *GIVEN_SPLIT)
"""Fields of a question that the queue settles."""
QUESTION: Final = tuple(name for name in PlanRequest.model_fields if name not in NOT_A_JOBS)


class Running(Record):
    """Where a job runs now."""

    group: str
    gpus: Count


class Job(Record):
    """One job of the queue: what it may get, and the question of what it would do with it."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    question: PlanRequest
    """With one device of the whole cluster; both are replaced by each placement."""
    priority: Annotated[float, Field(strict=True, gt=0, le=1e6, allow_inf_nan=False)] = 1.0
    gpus: tuple[Count, ...] | None = None
    min_gpus: Count = 1
    max_gpus: Count = LARGEST_GPUS
    groups: tuple[str, ...] | None = None
    deadline: Wait | None = None
    may_wait: Annotated[bool, Field(strict=True)] = True
    running: Running | None = None
    migration: Annotated[TimeQuantity, within("0 s", "365 d", "time")] | None = None

    @field_validator("gpus", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, int) and not isinstance(value, bool) else value


class Queue(Record):
    """Machines and jobs."""

    cluster: Cluster
    jobs: Annotated[tuple[Job, ...], Field(min_length=1, max_length=MOST_JOBS)]
    objective: Goal = "throughput"
    period: Wait = 86400.0
    time_limit: Wait | None = None
    """Seconds that the answer may take; without it effort is counted."""
    taken: str = ""
    """Which GPUs of several node groups there are, where fewer are asked for than these have."""


OWN: Final = tuple(name for name in Job.model_fields if name != "question")
TOP: Final = ("cluster", "gpus", "objective", "period", "time_limit", "jobs")


def queue_in(path: str, over: Mapping[str, Any] | None = None) -> Queue:
    """The queue of a file, with some of its fields changed.

    Raises:
        BadFile: it cannot be read.
        BadRequest: what it says is wrong, with the nearest that works.
    """
    document = with_relative_files(read(expanded(path)), expanded(path))
    try:
        return queue_of(document | dict(over or {}))
    except BadRequest as error:
        raise BadFile(path, str(error)) from None


def queue_of(document: Mapping[str, Any]) -> Queue:
    """The queue that a table describes.

    Raises:
        BadRequest: an unknown field, a wrong value, or values that contradict each other.
    """
    if not isinstance(document, Mapping):
        raise BadRequest(f"the queue: expected a table with a cluster and jobs, got {document!r:.60}")
    document = by_own_name(document, TOP)
    _known(document, TOP)
    cluster, taken = _cluster(document)
    tables = document.get("jobs", ())
    if not isinstance(tables, list | tuple) or not tables:
        raise BadRequest("jobs: expected at least one [[jobs]] table with a name and a model")
    jobs = [_job(table, place) for place, table in enumerate(tables)]
    rest: dict[str, Any] = {name: document[name] for name in ("objective", "period", "time_limit") if name in document}
    queue = _checked(Queue, {"cluster": cluster, "taken": taken, "jobs": jobs, **rest})
    _agree(queue)
    return queue


def _cluster(document: Mapping[str, Any]) -> tuple[Cluster, str]:
    """The machines, every group with its number of nodes, and which of several groups' were taken."""
    if "cluster" not in document:
        raise BadRequest("cluster: required, but missing; a name such as 'dgx-h100' with gpus = 512, or a table")
    count = document.get("gpus")
    if count is not None:
        count = whole_number("gpus", count, LARGEST_GPUS)
    try:
        given = name_or_record(Cluster, document["cluster"], cluster_of)
        base = find_cluster(given) if isinstance(given, str) else given
        found = base if count is None else base.with_gpus(count)
    except (MeshwrightError, ValueError) as error:
        raise BadRequest(f"cluster: {error}") from None
    if found.gpus is None:
        raise BadRequest(f"gpus: {found.name} leaves the number of nodes open; say how many, such as gpus = 512")
    return found, describe_subset(found, base) if len(base.groups) > 1 and found.gpus != base.gpus else ""


@contextmanager
def named_errors(where: str) -> Iterator[None]:
    """Begin what is wrong here with where it is.

    Raises:
        BadRequest: any error of the question.
    """
    try:
        yield
    except MeshwrightError as error:
        raise BadRequest(f"{where}: {error}") from None


def _job(table: object, place: int) -> Job:
    """One job from its table, with fields and axes under their own names, each where it belongs."""
    name = table.get("name") if isinstance(table, Mapping) else None
    with named_errors(f"job {name}" if isinstance(name, str) and name else f"jobs[{place}]"):
        if not isinstance(table, Mapping):
            raise BadRequest(f"expected a table of fields, got {table!r:.40}")
        found = by_own_name(table, (*OWN, *QUESTION))
        if isinstance(pins := found.get("pins"), Mapping):
            found["pins"] = by_own_name(pins, PIN_AXES)
        for field in found:
            if (axis := own_name(str(field))) in PIN_AXES:
                raise BadRequest(f"there is no field {field!r}; it belongs under [jobs.pins]: {axis} = ...")
            if field in TOP and field not in OWN:
                raise BadRequest(f"there is no field {field!r}; it belongs to the whole queue, above [[jobs]]")
        _known(found, (*OWN, *QUESTION))
        if "model" not in found:
            raise BadRequest("model is missing, such as model = 'llama3-8b'")
        asked, own = ({key: value for key, value in found.items() if key in names} for names in (QUESTION, OWN))
        return _checked(Job, own | {"question": _checked(PlanRequest, asked | {"gpus": 1})})


def _known(table: Mapping[str, Any], fields: Sequence[str]) -> None:
    """Every field is known; the nearest is offered for one that is not."""
    for name in table:
        if name not in fields:
            raise BadRequest(no_such(str(name), fields, "field"))


def _checked(record: type[_R], fields: Mapping[str, Any]) -> _R:
    try:
        return record.model_validate(fields)
    except ValidationError as error:
        raise BadRequest(flatten(error)) from None


def _agree(queue: Queue) -> None:
    """Names are used once and mean something; counts fit."""
    seen, groups = set[str](), [group.name for group in queue.cluster.groups]
    for job in queue.jobs:
        with named_errors(f"job {job.name}"):
            _check_job(job, groups, seen)
        seen.add(job.name)


def _check_job(job: Job, groups: list[str], seen: set[str]) -> None:
    """A job goes with the cluster's groups, with the names that others have, and with itself."""
    least, most = job.min_gpus, job.max_gpus
    if job.name in seen:
        raise BadRequest("two jobs have this name; give each a name of its own")
    for name in (*(job.groups or ()), *([job.running.group] if job.running else [])):
        if name not in groups:
            raise BadRequest(f"the cluster has no group {name!r}; {meant(name, groups)}")
    if least > most:
        raise BadRequest(f"min_gpus {least} exceeds max_gpus {most}")
    if job.gpus and not any(least <= count <= most for count in job.gpus):
        reach = f"min_gpus {least}" if most == LARGEST_GPUS else f"min_gpus {least} and max_gpus {most}"
        raise BadRequest(f"gpus {', '.join(map(str, job.gpus))}: none is within {reach}")
    if job.migration is not None and job.running is None:
        raise BadRequest("migration says what moving loses; say where it runs: running = {...}")
