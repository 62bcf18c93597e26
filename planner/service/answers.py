"""From the body of a request to the body of its answer, inside a worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError

from hardware.errors import flatten, one_line
from hardware.files import unique
from planner.answer.load import no_constant
from planner.errors import BadRequest, MeshwrightError, OutOfTime
from planner.request.fields import QUESTION, no_such_field
from planner.service.guard import names_only

if TYPE_CHECKING:
    from planner.allocation.queue import Queue
    from planner.request.request import PlanRequest

Body = dict[str, Any]
_T = TypeVar("_T", "PlanRequest", "Queue")
_DEEP: Final = 60
"""Levels of tables within tables; no question needs ten."""


def answer(kind: str, raw: bytes, seconds: float) -> tuple[int, bytes]:
    """Status and body: 200 with the document, 422 with one line saying what is wrong and the exit code of `plan`."""
    try:
        return 200, QUESTIONS[kind](_parsed(raw), seconds).encode()
    except OutOfTime as error:
        return 422, failure("out-of-time", str(error), 4)
    except ValidationError as error:
        return 422, failure("bad-request", flatten(error), 2)
    except (MeshwrightError, PermissionError) as error:
        return 422, failure("bad-request", str(error), 2)
    except MemoryError:
        return 422, failure("out-of-memory", "the question needs more memory than the service gives", 4)


def failure(kind: str, message: str, exit_code: int) -> bytes:
    """The document of an error, schema ``error/1``."""
    error = {"kind": kind, "message": one_line(message), "exit_code": exit_code}
    return json.dumps({"schema": "error/1", "error": error}).encode()


def _parsed(raw: bytes) -> Body:
    """The body as a table."""
    try:
        body = json.loads(raw, parse_constant=no_constant, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequest(f"the body: expected an object of fields, got {type(body).__name__}")
    _check_depth(body, _DEEP)
    return body


def _check_depth(value: object, left: int) -> None:
    if not left:
        raise BadRequest(f"the body nests deeper than {_DEEP} levels")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        _check_depth(one, left - 1)


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
    from planner.answer.load import checked
    from planner.answer.plan import Plan

    old: Any = body.get("plan")
    gpus: Any = body.get("gpus")
    if unknown := sorted(set(body) - {"plan", "gpus", "tolerance"}):
        raise BadRequest(f"there is no field {unknown[0]!r:.40}; there are plan, gpus, tolerance")
    if not isinstance(old, dict):
        raise BadRequest(f"plan: expected an answer of /v1/plan, got {old!r:.40}")
    found = Plan.model_validate(old)
    names_only(found.request)
    checked(found, "plan")
    return _json(replan(found, gpus, tolerance=body.get("tolerance", 0.05), time_limit=seconds))


def _list(body: Body, _seconds: float) -> str:
    from planner.render.catalogue import rows

    return json.dumps(rows(body["kind"]))


QUESTIONS: Final[Mapping[str, Callable[[Body, float], str]]] = {
    "plan": partial(_ask, "plan", 1.0),
    "predict": partial(_ask, "predict", 1.0),
    "why-not": partial(_ask, "why_not", 0.5),  # two searches
    "allocate": _allocate,
    "replan": _replan,
    "list": _list,
}
