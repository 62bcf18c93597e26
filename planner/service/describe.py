"""The service in the words of OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from planner.allocation.document import Allocation
from planner.analyses.replan_document import Replan
from planner.answer.plan import Plan
from planner.explain.why_not import WhyNot
from planner.request.request import PlanRequest


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One question."""

    name: str
    summary: str
    body: Mapping[str, Any]
    """JSON Schema of what goes in."""
    answer: type[BaseModel]


CATALOGUES: Final = (
    "models", "clusters", "accelerators", "links", "servers", "stacks", "rules", "schedules", "exporters",
)  # fmt: skip
ERROR: Final = {
    "type": "object",
    "required": ["schema", "error"],
    "properties": {
        "schema": {"const": "error/1"},
        "error": {
            "type": "object",
            "required": ["kind", "message", "exit_code"],
            "properties": {
                "kind": {"type": "string"},
                "message": {"type": "string", "description": "One line for people."},
                "exit_code": {"type": "integer", "description": "What `plan` would end with."},
            },
        },
    },
}
_STATUSES: Final = {
    "400": "The host asked for is none of the service's.",
    "408": "The body did not come in time.",
    "413": "The body is too long.",
    "415": "The body is not declared to be JSON, or packed.",
    "422": "A bad request, or one that takes more time or memory than the service gives.",
    "429": "Too many questions wait; try again.",
}


def _request_schema() -> dict[str, Any]:
    schema = PlanRequest.model_json_schema(ref_template=_REF)
    schema["required"] = ["model", "gpus"]
    return schema


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


_REF: Final = "#/components/schemas/{model}"


ENDPOINTS: Final = (
    Endpoint("plan", "The best plan, proved, with reasons.", _request_schema(), Plan),
    Endpoint("predict", "The price of one given strategy.", _request_schema(), Plan),
    Endpoint("why-not", "Why not what the pins ask for.", _request_schema(), WhyNot),
    Endpoint("allocate", "A cluster divided among jobs.", _queue_schema(), Allocation),
    Endpoint("replan", "The plan for another number of accelerators.", _replan_schema(), Replan),
)


@cache
def openapi_of(version: str) -> dict[str, Any]:
    """The whole description; schemas that several documents share stand once."""
    components: dict[str, Any] = {"Error": ERROR}
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        body = _moved(dict(endpoint.body), components)
        answer = endpoint.answer.model_json_schema(mode="serialization", ref_template=_REF)
        responses = {"200": _content("The answer.", _plain(_moved(answer, components)))} | _errors()
        paths[f"/v1/{endpoint.name}"] = {
            "post": {
                "operationId": endpoint.name,
                "summary": endpoint.summary,
                "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
                "responses": responses,
            }
        }
    for kind in CATALOGUES:
        rows = {"type": "array", "items": {"type": "object"}}
        paths[f"/v1/{kind}"] = _get(kind, f"The catalogue's {kind}.", rows)
    paths["/v1/health"] = _get("health", "Whether it answers, and how busy it is.", {"type": "object"})
    components = _plain(components)
    info = {"title": "meshwright", "version": version, "license": {"name": "Apache-2.0"}}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": components}}


def _get(name: str, summary: str, schema: dict[str, Any]) -> dict[str, Any]:
    responses = {"200": _content("The answer.", schema)} | {status: _errors()[status] for status in ("400", "429")}
    return {"get": {"operationId": name, "summary": summary, "responses": responses}}


def _errors() -> dict[str, Any]:
    reference = {"$ref": "#/components/schemas/Error"}
    return {status: _content(text, reference) for status, text in _STATUSES.items()}


def _content(description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


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


def _moved(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """The schema without its definitions, which go to the components."""
    components.update(schema.pop("$defs", {}))
    return schema
