"""Uploaded files of a job: what they are read as, what that costs, and how far it is from the best plan.

They are text in a question. None of them is run, and what they name is looked for among them alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from planner.analyses.examine_run import Examined
from planner.answer.plan import Plan, Record
from planner.errors import BadRequest, MeshwrightError
from planner.request.document import question_fields
from planner.request.fields import DEFAULT_CLUSTER, GIVEN_SPLIT, as_document
from planner.service.guard import names_only
from planner.service.machines import machines_in, tells_machines

if TYPE_CHECKING:
    from planner.jobs.assemble import FilesOfJob
    from planner.jobs.reader import JobFile

MOST_FILES: Final = 16
_LONGEST_NAME: Final = 200
_OWN: Final = ("files", "environment", "arguments", "launch")
_SEARCHES: Final = 12
"""That a reading takes at most, of the job and of a log's changes: the time is divided among them."""
_NOT_SAID: Final = f"nothing names the machines; {DEFAULT_CLUSTER} is priced"


class ReadFile(Record):
    """One uploaded file, or one that another brought along, and what it is."""

    name: str
    title: str


class Reading(Record):
    """What uploaded files are read as, schema ``reading/1``."""

    schema_: Literal["reading/1"] = Field("reading/1", alias="schema")
    files: tuple[ReadFile, ...]
    request: dict[str, Any]
    """The question that they ask, as /v1/predict takes it; incomplete where something is missing."""
    origins: dict[str, str]
    """Which file said each field, and each pin as ``pins.tp``."""
    framework: str | None
    measured: dict[str, Any]
    """Of a log: seconds of an iteration, peak memory."""
    missing: tuple[str, ...]
    """What must be said before there is a price."""
    assumed: tuple[str, ...]
    unpriced: tuple[str, ...]
    """What was read and is not priced, with its likely effect."""
    remarks: tuple[str, ...]
    refused: str = ""
    """Why there is no price, where nothing is missing."""
    answer: Plan | None = None
    """The price of what they ask for, with the best plan for the same job as its alternative."""
    examined: Examined | None = None
    """Of a log: measured against predicted, and what to change first."""


def read_uploaded(body: Mapping[str, Any], seconds: float) -> Reading:
    """What the uploaded files hold.

    Args:
        body: ``files``, text by name; fields of a question, which win over them; ``environment``, ``arguments`` and
            ``launch`` of a script.
        seconds: that the answer may take.

    Raises:
        BadRequest: they are no files of a job, or contradict each other or a field.
    """
    from planner.jobs.question import question_of, still_missing

    files, form = _files_in(body), _given(body)
    of_machines = [one for one in files if tells_machines(one.text)]
    machines = _of_machines(of_machines)
    given = {**machines, **form}
    if len(files) == len(of_machines):
        return _machines_alone(of_machines[0], given)
    found = _job_of([one for one in files if one not in of_machines], body, given)
    asked = question_of(found.job, given) | _joined_changes(found, given)
    asked = {**asked, **{name: value for name, value in given.items() if name != "changes"}}
    request = as_document(asked)
    names_only(request)
    job, lacking = found.job, still_missing(found.job, asked)
    said = () if "cluster" in asked or any("--cluster" in line for line in lacking) else (_NOT_SAID,)
    files_of_job = (ReadFile(name=str(part.file.path), title=part.title) for part in found.parts)
    reading = Reading(
        files=(*files_of_job, *map(_of_cluster, of_machines)),
        request=request,
        origins={name: _origin(name, job.origins, form, of_machines if name in machines else ()) for name in asked},
        framework=job.framework,
        measured=dict((found.run or {}).get("measured") or {}),
        missing=tuple(lacking),
        assumed=(*job.assumed, *said),
        unpriced=job.unpriced,
        remarks=job.remarks,
    )
    return reading if lacking else _priced(reading, found, seconds)


def _of_cluster(file: JobFile) -> ReadFile:
    return ReadFile(name=str(file.path), title=f"machines: {machines_in(file.text, file.path).words}")


def _origin(name: str, said: Mapping[str, str], form: Collection[str], machines: Sequence[JobFile]) -> str:
    """What said a field: a file of the job, a cluster file, the form, or all of these together."""
    usual = "form" if name in form else str(machines[0].path) if machines else "follows"
    return usual if machines else said.get(name, usual)


def _of_machines(files: Sequence[JobFile]) -> dict[str, Any]:
    """Fields of a question that a cluster file among the uploads says.

    Raises:
        BadRequest: there are several.
    """
    if len(files) > 1:
        raise BadRequest(f"files: {files[0].path} and {files[1].path} both tell of machines; give one")
    found = [machines_in(one.text, one.path) for one in files]
    fields = [{"cluster": one.cluster} | ({"stack": one.stack} if one.stack else {}) for one in found]
    return fields[0] if fields else {}


def _machines_alone(file: JobFile, given: Mapping[str, Any]) -> Reading:
    """A cluster file without a job: the machines of the next question."""
    return Reading(
        files=(_of_cluster(file),),
        request=as_document(given),
        origins=dict.fromkeys(given, str(file.path)),
        framework=None,
        measured={},
        missing=("what is to be trained: --model, or a script with the cluster file",),
        assumed=(),
        unpriced=(),
        remarks=(),
    )


def _files_in(body: Mapping[str, Any]) -> list[JobFile]:
    from planner.jobs.reader import JobFile

    texts = body.get("files")
    if not isinstance(texts, Mapping) or not texts or not all(isinstance(one, str) for one in texts.values()):
        raise BadRequest('files: expected names and what they hold as text, such as {"run.sh": "torchrun ..."}')
    if len(texts) > MOST_FILES:
        raise BadRequest(f"files: {len(texts)} are more than the {MOST_FILES} that are read at once")
    files = [JobFile(Path(_plain(name)), text) for name, text in texts.items()]
    if binary := next((one for one in files if "\0" in one.text), None):
        raise BadRequest(f"files: {binary.path} is not a text file")
    if len({one.path for one in files}) < len(files):
        raise BadRequest("files: two of them have the same name; rename one")
    return files


def _job_of(files: list[JobFile], body: Mapping[str, Any], given: Collection[str]) -> FilesOfJob:
    from planner.jobs.reader import Context
    from planner.jobs.readers import read_job

    environment, arguments, launch = (body.get(name) for name in ("environment", "arguments", "launch"))
    if not isinstance(environment or {}, Mapping) or not isinstance(arguments or [], list):
        raise BadRequest("environment is a table of variables, arguments a list of words")
    if launch is not None and (not isinstance(launch, int) or isinstance(launch, bool)):
        raise BadRequest(f"launch: expected a whole number, got {launch!r:.40}")
    return read_job(
        files,
        Context(
            known=frozenset(given),
            environment={str(name): str(value) for name, value in (environment or {}).items()},
            arguments=tuple(map(str, arguments or ())),
            launch=launch,
            disk=False,
        ),
    )


def _plain(name: str) -> str:
    """The last part of a name, as browsers give it."""
    last = Path(name.replace("\\", "/")).name
    if not last or len(last) > _LONGEST_NAME or not last.isprintable():
        raise BadRequest(f"files: {name!r:.60} is no name of a file")
    return last


def _given(body: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a question and pins that came with the files."""
    if "profile" in body:
        raise BadRequest("profile: the service reads no files; give its cluster and stack as tables")
    return question_fields({name: value for name, value in body.items() if name not in _OWN}, "the body")


def _joined_changes(found: FilesOfJob, given: Mapping[str, Any]) -> dict[str, Any]:
    changes = {**(found.job.fields.get("changes") or {}), **(given.get("changes") or {})}
    return {"changes": changes} if changes else {}


def _priced(reading: Reading, found: FilesOfJob, seconds: float) -> Reading:
    """The same with its price and the best plan, and of a log with what was measured; or why there is none."""
    from planner.analyses.compare_with_best import compare_with_best
    from planner.analyses.examine_run import examine_run
    from planner.api import predict
    from planner.request.request import request_from
    from planner.runs.schema import run_of

    try:
        request = request_from(reading.request | {"time_limit": seconds / _SEARCHES})
        answer = predict(request, chunked=False)
        searched = request.model_copy(update=dict.fromkeys(GIVEN_SPLIT))
        answer = compare_with_best(answer, searched, found.job.framework)
        examined = None
        if found.run is not None and reading.measured:
            asked = {**reading.request, "time_limit": seconds / _SEARCHES}
            examined = examine_run(run_of({**found.run, "request": asked}), found.job.framework)
    except MeshwrightError as error:
        return reading.model_copy(update={"refused": str(error)})
    return reading.model_copy(update={"answer": answer, "examined": examined})
