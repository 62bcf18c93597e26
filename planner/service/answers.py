"""From the body of a request to the body of its answer, inside a worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from hardware.errors import flatten, meant
from hardware.files import unique
from planner.answer.load import no_constant
from planner.errors import BadRequest, MeshwrightError, OutOfTime
from planner.request.fields import PIN_AXES
from planner.request.overrides import flat, known_path, numeric
from planner.request.values import is_multiple, seconds_written
from planner.service.guard import names_only

Body = dict[str, Any]
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
    except MeshwrightError as error:
        return 422, failure("bad-request", str(error), 2)
    except MemoryError:
        return 422, failure("out-of-memory", "the question needs more memory than the service gives", 4)
    except PermissionError as error:
        return 422, failure("bad-request", str(error), 2)


def failure(kind: str, message: str, exit_code: int) -> bytes:
    """The document of an error, schema ``error/1``."""
    line = " ".join(message.split())[:2000]
    said = "".join(char if char.isprintable() else "?" for char in line)
    error = {"kind": kind, "message": said, "exit_code": exit_code}
    return json.dumps({"schema": "error/1", "error": error}).encode()


def _parsed(raw: bytes) -> Body:
    """The body as a table.

    Raises:
        BadRequest: it is not JSON, or no table.
    """
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


def _fields(body: Mapping[str, Any], seconds: float) -> Body:
    """The fields of a question, its time limit cut to what the service gives."""
    names_only(body)
    _known_fields(body)
    _typed_changes(body.get("changes"))
    return {"top": 5, **body, "time_limit": _cut(body.get("time_limit"), seconds)}


def _cut(limit: object, seconds: float) -> object:
    """A time limit, in seconds or written with a unit, of at most so many seconds; what is no time as it is."""
    if limit is None:
        return seconds
    try:
        limit = seconds_written(limit)
    except ValueError:
        return limit
    return min(limit, seconds) if isinstance(limit, int | float) and not isinstance(limit, bool) else limit


def _known_fields(body: Mapping[str, Any]) -> None:
    """Refuse fields that a request has not, with the one that may be meant: an axis, or what a study calls it."""
    from planner.request.fields import field_of
    from planner.request.request import PlanRequest

    unknown = sorted(set(body) - set(PlanRequest.model_fields))
    if not unknown:
        return
    name = unknown[0]
    field = field_of(name) or ""
    if field.startswith("pins."):
        axis = field.removeprefix("pins.")
        raise BadRequest(f'there is no field {name!r}; it belongs under pins: "pins": {{"{axis}": ...}}')
    if field in PlanRequest.model_fields:
        raise BadRequest(f"there is no field {name!r}; did you mean {field}?")
    every = f"there are {', '.join(PlanRequest.model_fields)}"
    near = meant(name, (*PlanRequest.model_fields, *PIN_AXES), most=2, otherwise=every)
    raise BadRequest(f"there is no field {name!r:.60}; {near}")


def _typed_changes(changes: object) -> None:
    """Refuse numbers that are written as text there too; multiples such as "2x" are."""
    for path, value in flat(changes) if isinstance(changes, Mapping) else ():
        if isinstance(value, str) and numeric(known_path(path)) and not is_multiple(value):
            raise BadRequest(f'changes: {path}: expected a number or a multiple such as "2x", got {value!r:.40}')


def _plan(body: Body, seconds: float) -> str:
    from planner.api import plan
    from planner.request.request import PlanRequest

    return plan(PlanRequest(**_fields(body, seconds))).to_json(indent=None)


def _predict(body: Body, seconds: float) -> str:
    from planner.api import predict
    from planner.request.request import PlanRequest

    return predict(PlanRequest(**_fields(body, seconds))).to_json(indent=None)


def _why_not(body: Body, seconds: float) -> str:
    from planner.api import why_not
    from planner.request.request import PlanRequest

    return why_not(PlanRequest(**_fields(body, seconds / 2.0))).model_dump_json(by_alias=True)


def _allocate(body: Body, seconds: float) -> str:
    from planner.allocation.allocate import allocate
    from planner.allocation.queue import queue_of

    names_only(body)
    jobs = body.get("jobs")
    for job in jobs if isinstance(jobs, list) else ():
        if isinstance(job, dict):
            names_only(job)
    queue = queue_of(body)
    return allocate(queue.model_copy(update={"time_limit": min(queue.time_limit or seconds, seconds)})).to_json(
        indent=None
    )


def _replan(body: Body, seconds: float) -> str:
    from planner.analyses.replan import replan
    from planner.answer.load import checked
    from planner.answer.plan import Plan

    old, gpus, share = body.get("plan"), body.get("gpus"), body.get("tolerance", 0.05)
    if unknown := sorted(set(body) - {"plan", "gpus", "tolerance"}):
        raise BadRequest(f"there is no field {unknown[0]!r:.40}; there are plan, gpus, tolerance")
    if isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 < gpus <= 2**24:
        raise BadRequest(f"gpus: expected a whole number such as 64, got {gpus!r:.40}")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise BadRequest(f"tolerance: expected a share such as 0.05, got {share!r:.40}")
    if not isinstance(old, dict):
        raise BadRequest(f"plan: expected an answer of /v1/plan, got {old!r:.40}")
    found = Plan.model_validate(old)
    names_only(found.request)
    checked(found, "plan")
    return replan(found, gpus, tolerance=float(share), time_limit=seconds).to_json(indent=None)


def _list(body: Body, _seconds: float) -> str:
    from planner.render.catalogue import rows

    return json.dumps(rows(body["kind"]))


QUESTIONS: Final[Mapping[str, Callable[[Body, float], str]]] = {
    "plan": _plan,
    "predict": _predict,
    "why-not": _why_not,
    "allocate": _allocate,
    "replan": _replan,
    "list": _list,
}
