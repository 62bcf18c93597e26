"""From the body of a request to the body of its answer, inside a worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError

from hardware.errors import flatten, not_parsed, one_line
from hardware.files import check_depth, unique
from planner.answer.load import no_constant
from planner.errors import BadRequest, MeshwrightError, OutOfTime
from planner.request.fields import QUESTION, no_such_field
from planner.service.errors import field_of_error
from planner.service.guard import names_only

if TYPE_CHECKING:
    from planner.allocation.queue import Queue
    from planner.answer.plan import Plan
    from planner.request.request import PlanRequest

Body = dict[str, Any]
_T = TypeVar("_T", "PlanRequest", "Queue")


def answer(kind: str, raw: bytes, seconds: float) -> tuple[int, bytes]:
    """Status and body: 200 with the document, 422 with one line saying what is wrong and the exit code of `plan`."""
    try:
        return 200, QUESTIONS[kind](_parsed(raw), seconds).encode()
    except OutOfTime as error:
        return 422, failure("out-of-time", str(error), 4)
    except ValidationError as error:
        return 422, failure("bad-request", flatten(error), 2, field_of_error(error))
    except (MeshwrightError, PermissionError) as error:
        return 422, failure("bad-request", str(error), 2, field_of_error(error))
    except MemoryError:
        return 422, failure("out-of-memory", "the question needs more memory than the service gives", 4)


def failure(kind: str, message: str, exit_code: int, field: str | None = None) -> bytes:
    """The document of an error, schema ``error/1``, with the field of the question that it is about, where one is."""
    error: Body = {"kind": kind, "message": one_line(message), "exit_code": exit_code}
    error |= {"field": field} if field else {}
    return json.dumps({"schema": "error/1", "error": error}).encode()


def _parsed(raw: bytes) -> Body:
    """The body as a table."""
    try:
        body = json.loads(raw, parse_constant=no_constant, object_pairs_hook=unique)
        check_depth(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is {not_parsed('JSON', error)}") from None
    if not isinstance(body, dict):
        raise BadRequest(f"the body: expected an object of fields, got {type(body).__name__}")
    return body


def _ask(name: str, share: float, body: Body, seconds: float) -> str:
    """The answer to one of the public questions, in a share of the time."""
    from planner import api
    from planner.request.request import PlanRequest

    names_only(body)
    if unknown := sorted(set(body) - {*QUESTION, "pins"}):
        raise BadRequest(no_such_field(unknown[0], "pins"))
    return _json(getattr(api, name)(_in_time(PlanRequest(**body), share * seconds)))


def _in_time(asked: _T, seconds: float) -> _T:
    """A question with the time that it asks for, or what the service gives if less."""
    return asked.model_copy(update={"time_limit": min(asked.time_limit or seconds, seconds)})


def _only(body: Body, *fields: str) -> None:
    if unknown := sorted(set(body) - {*fields}):
        raise BadRequest(f"there is no field {unknown[0]!r:.40}; a body has {', '.join(fields)}")


def _json(answer: Any) -> str:
    text: str = answer.to_json(indent=None) if hasattr(answer, "to_json") else answer.model_dump_json(by_alias=True)
    return text


def _allocate(body: Body, seconds: float) -> str:
    from planner.allocation.allocate import allocate
    from planner.allocation.queue import queue_of

    names_only(body)
    jobs = body.get("jobs")
    for job in jobs if isinstance(jobs, list) else ():
        if isinstance(job, dict):
            names_only(job)
    return _json(allocate(_in_time(queue_of(body), seconds)))


def _replan(body: Body, seconds: float) -> str:
    from planner.analyses.replan import replan

    gpus: Any = body.get("gpus")
    _only(body, "plan", "gpus", "tolerance")
    return _json(replan(_plan_in(body), gpus, tolerance=body.get("tolerance", 0.05), time_limit=seconds))


def _export(body: Body, _seconds: float) -> str:
    from planner.jobs.job import Inexpressible
    from planner.jobs.nearest import nearest_expressible
    from planner.jobs.registry import export

    _only(body, "plan", "to", "version")
    found, to, version = _plan_in(body), body.get("to"), body.get("version")
    if not isinstance(to, str | None) or not isinstance(version, str | None):
        raise BadRequest(f"to: expected the name of an exporter, got {to!r:.40}")
    chosen = to or _exporter_of(found)
    try:
        made = export(found, chosen, version=version)
    except Inexpressible as error:
        raise BadRequest(f"{error}{nearest_expressible(found, chosen)}") from None
    exported = {
        "to": chosen,
        "files": made.files,
        "program": made.program,
        "environment": made.environment,
        "remarks": made.remarks,
    }
    return json.dumps({"schema": "export/1", **exported})


def _exporter_of(found: Plan) -> str:
    """The exporter that a plan asks for, or the first that can write it, its stack's own before others."""
    from planner.frameworks.registry import FRAMEWORKS, goes_with
    from planner.jobs.job import Inexpressible
    from planner.jobs.registry import TARGETS, export

    stack = found.request["stack"]
    own = [name for name in FRAMEWORKS if goes_with(name, stack if isinstance(stack, str) else stack["name"])]
    likely = [str(found.request.get("framework")), *own, *(name for name, one in TARGETS.items() if one.write)]
    known = [name for name in dict.fromkeys(likely) if name in TARGETS]
    for name in known:
        try:
            export(found, name)
        except Inexpressible:
            continue
        return name
    return known[0]


def _drawn(body: Body, _seconds: float) -> str:
    """What the drawings of a page show of an answer."""
    from planner.render.page import shown_plan

    _only(body, "plan")
    plan = _plan_in(body)
    try:
        return json.dumps({"schema": "drawn/1", **shown_plan(plan).data()}, allow_nan=False)
    except (ValueError, OverflowError):
        raise BadRequest("plan: its numbers are so large that they cannot be drawn") from None


def _read(body: Body, seconds: float) -> str:
    from planner.service.reading import read_uploaded

    return _json(read_uploaded(body, seconds))


def _machines(body: Body, _seconds: float) -> str:
    from planner.service.machines import machines_in

    _only(body, "text")
    return _json(machines_in(body.get("text")))


def _plan_in(body: Body) -> Plan:
    """The answer of a search or of a priced strategy that a body holds, checked."""
    from planner.answer.load import checked
    from planner.answer.plan import Plan

    old: Any = body.get("plan")
    if not isinstance(old, dict):
        raise BadRequest(f"plan: expected an answer of /v1/plan, got {old!r:.40}")
    found = Plan.model_validate(old)
    names_only(found.request)
    checked(found, "plan")
    return found


def _list(body: Body, _seconds: float) -> str:
    from planner.render.catalogue import rows

    return json.dumps(rows(body["kind"]))


def _choices(_body: Body, _seconds: float) -> str:
    from planner.service.choices import choices

    return json.dumps(choices())


QUESTIONS: Final[Mapping[str, Callable[[Body, float], str]]] = {
    "plan": partial(_ask, "plan", 1.0),
    "predict": partial(_ask, "predict", 1.0),
    "why-not": partial(_ask, "why_not", 0.5),  # two searches
    "allocate": _allocate,
    "replan": _replan,
    "export": _export,
    "read": _read,
    "machines": _machines,
    "drawn": _drawn,
    "list": _list,
    "choices": _choices,
}
