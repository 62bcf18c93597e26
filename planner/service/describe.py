"""The service in the words of OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from planner.allocation.document import Allocation
from planner.analyses.replan_document import Replan
from planner.answer.plan import Plan, Record
from planner.explain.why_not import WhyNot
from planner.render.catalogue import KINDS
from planner.request.request import PlanRequest
from planner.service.machines import Machines
from planner.service.reading import Reading


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One question."""

    name: str
    summary: str
    body: Mapping[str, Any]
    """JSON Schema of what goes in."""
    answer: Any
    """The record of what comes out."""


CATALOGUES: Final = tuple(KINDS)


class Refusal(Record):
    """What was wrong with a request."""

    kind: str
    message: Annotated[str, Field(description="One line for people.")]
    exit_code: Annotated[int, Field(description="What `plan` would end with.")]
    field: Annotated[str | None, Field(description="The field or the pin that it is about, where one is.")] = None


class Error(Record):
    """Schema ``error/1``."""

    schema_: Literal["error/1"] = Field("error/1", alias="schema")
    error: Refusal


_STATUSES: Final = {
    "400": "The request names a host that is not the service's.",
    "408": "The body did not come in time.",
    "413": "The body is too long.",
    "415": "The body is not declared to be JSON, or packed.",
    "422": "A bad request, or one that takes more time or memory than the service gives.",
    "429": "Too many questions wait; try again.",
}


def _queue_schema() -> dict[str, Any]:
    job = {"type": "object", "required": ["name", "model"], "properties": {"name": {"type": "string"}}}
    return {
        "type": "object",
        "required": ["cluster", "jobs"],
        "properties": {
            "cluster": {"description": "A name, or a table of a cluster file.", "type": ["string", "object"]},
            "gpus": {"type": "integer", "minimum": 1},
            "objective": {"enum": ["throughput", "weighted-finish", "cost", "fairness"]},
            "period": {"type": "string", "examples": ["1 d"]},
            "time_limit": {"type": "string", "examples": ["20 s"]},
            "jobs": {"type": "array", "minItems": 1, "items": job},
        },
    }


def _replan_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["plan", "gpus"],
        "additionalProperties": False,
        "properties": {
            "plan": {"type": "object", "description": "An answer of /v1/plan."},
            "gpus": {"type": "integer", "minimum": 1},
            "tolerance": {"type": "number", "minimum": 0, "maximum": 1},
        },
    }


def _of_plan(**more: Any) -> dict[str, Any]:
    """A body that holds an answer, and what else it says."""
    plan = {"type": "object", "description": "An answer of /v1/plan or /v1/predict."}
    required = ["plan", *(name for name, one in more.items() if "default" not in one)]
    properties = {"plan": plan, **more}
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


def _files_schema() -> dict[str, Any]:
    texts = {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1, "maxProperties": 16}
    return {
        "type": "object",
        "required": ["files"],
        "description": "Fields of a question may be given with the files, and win over them.",
        "properties": {
            "files": {**texts, "description": "Scripts, configurations, logs: what each holds, by its name."},
            "environment": {"type": "object", "additionalProperties": {"type": "string"}},
            "arguments": {"type": "array", "items": {"type": "string"}},
            "launch": {"type": "integer", "minimum": 1, "description": "Which of several launches is meant."},
        },
    }


def _text_schema() -> dict[str, Any]:
    text = {"type": "string", "description": "A cluster file or a profile, TOML or JSON, as `plan init` writes it."}
    return {"type": "object", "required": ["text"], "additionalProperties": False, "properties": {"text": text}}


class Exported(Record):
    """Schema ``export/1``."""

    schema_: Literal["export/1"] = Field("export/1", alias="schema")
    to: str
    files: dict[str, str]
    program: tuple[str, ...]
    """What every rank runs, as words."""
    environment: dict[str, str]
    remarks: tuple[str, ...]
    """What the reader has to add or to know."""


_REF: Final = "#/components/schemas/{model}"
_QUESTION: Final = {"$ref": _REF.format(model="PlanRequest")}
ENDPOINTS: Final = (
    Endpoint("plan", "The best plan, proved, with reasons.", _QUESTION, Plan),
    Endpoint("predict", "The price of one given strategy.", _QUESTION, Plan),
    Endpoint("why-not", "Why not what the pins ask for.", _QUESTION, WhyNot),
    Endpoint("allocate", "A cluster divided among jobs.", _queue_schema(), Allocation),
    Endpoint("replan", "The plan for another number of accelerators.", _replan_schema(), Replan),
    Endpoint("export", "The files that start a plan.", _of_plan(
        to={"type": ["string", "null"], "default": None, "description": "Of /v1/exporters; one that can, unless said."},
        version={"type": ["string", "null"], "default": None, "description": "Of it; the usual one unless said."},
    ), Exported),
    Endpoint("machines", "What a cluster file tells, as a question takes it.", _text_schema(), Machines),
    Endpoint("read", "What a job's files are read as, their price and the best plan.", _files_schema(), Reading),
    Endpoint("drawn", "What the page draws of an answer.", _of_plan(), dict[str, Any]),
)  # fmt: skip


def responses(answer: Any, *statuses: str) -> dict[int | str, dict[str, Any]]:
    """What an endpoint may answer: a record, or an error of some statuses, of all unless they are named."""
    errors = {status: text for status, text in _STATUSES.items() if status in (statuses or _STATUSES)}
    found: dict[int | str, dict[str, Any]] = {"200": {"model": answer, "description": "The answer."}}
    return found | {status: {"model": Error, "description": text} for status, text in errors.items()}


def with_questions(document: dict[str, Any]) -> dict[str, Any]:
    """The description of the endpoints with the records of their questions."""
    question = PlanRequest.model_json_schema(ref_template=_REF)
    document["components"]["schemas"] |= question.pop("$defs") | {"PlanRequest": question}
    plain: dict[str, Any] = _plain(document)
    return plain


def _plain(schema: Any) -> Any:
    """The schema with pairs of equal kind as arrays of that kind, which readers of older dialects understand too."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _plain(one) for name, one in schema.items()}
    places = plain.get("prefixItems")
    if isinstance(places, list) and all(one == places[0] for one in places):
        plain["items"] = plain.pop("prefixItems")[0]
    return plain
