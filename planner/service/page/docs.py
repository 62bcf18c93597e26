"""The description of the endpoints as HTML: what goes in, what comes out, and a line to try each with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

_EXAMPLES: Final[Mapping[str, Any]] = {
    "plan": {"model": "llama3-8b", "gpus": 64},
    "predict": {"model": "llama3-8b", "gpus": 64, "pins": {"tp": 2, "pp": 2}},
    "why-not": {"model": "llama3-8b", "gpus": 64, "pins": {"tp": 8}},
    "allocate": {"cluster": "dgx-h100", "gpus": 64, "jobs": [{"name": "a", "model": "llama3-8b"}]},
    "read": {"files": {"run.sh": "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 ..."}},
}
_PLAIN: Final = {"object": "table", "array": "list", "null": "nothing", "string": "text"}
_REF: Final = "#/components/schemas/"


def docs_body(description: Mapping[str, Any]) -> str:
    """All endpoints, then the record of a question."""
    schemas = description["components"]["schemas"]
    parts = [
        _endpoint(path, method, one, schemas)
        for path, methods in description["paths"].items()
        for method, one in methods.items()
    ]
    fields = _fields(schemas["PlanRequest"], schemas)
    question = f'<section id="question-fields"><h2>Fields of a question</h2>{fields}</section>'
    return "".join(parts) + question


def _endpoint(path: str, method: str, one: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    rows = "".join(
        f"<tr><th scope=row>{escape(code)}</th><td>{escape(said['description'])}</td></tr>"
        for code, said in sorted(one["responses"].items())
    )
    inside = (
        ""
        if body is None
        else '<p>A question, see <a href="#question-fields">its fields</a>.</p>'
        if body.get("$ref", "").endswith("/PlanRequest")
        else _fields(body, schemas)
    )
    return (
        f'<section id="{escape(one["operationId"])}"><h2><code>{method.upper()} {escape(path)}</code></h2>'
        f"<p>{escape(one.get('summary', ''))}</p>{_example(path, one['operationId'])}{inside}"
        f"<details><summary>Statuses</summary><table><tbody>{rows}</tbody></table></details></section>"
    )


def _example(path: str, name: str) -> str:
    """A line of shell for what one can ask without an answer of before."""
    if name not in _EXAMPLES:
        return ""
    line = f"curl -s localhost:8642{path} -H 'content-type: application/json' -d '{json.dumps(_EXAMPLES[name])}'"
    return f"<pre tabindex=0>{escape(line)}</pre>"


def _fields(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """The fields of a record as a table."""
    required = schema.get("required", ())
    rows = "".join(
        f"<tr><th scope=row><code>{escape(name)}</code>{' (required)' if name in required else ''}</th>"
        f"<td>{escape(', '.join(dict.fromkeys(_kinds(one, schemas))))}</td>"
        f"<td>{escape(str(one.get('description', '')))}</td></tr>"
        for name, one in schema.get("properties", {}).items()
    )
    head = "<tr><th scope=col>field</th><th scope=col>takes</th><th scope=col>meaning</th></tr>"
    return f'<div class="scroll" tabindex=0><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def _kinds(one: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    """What a field takes, in words."""
    if "$ref" in one:
        yield from _kinds(schemas[one["$ref"].removeprefix(_REF)], schemas)
    elif "enum" in one:
        yield " | ".join(str(value) for value in one["enum"])
    elif "anyOf" in one:
        for inner in one["anyOf"]:
            yield from _kinds(inner, schemas)
    else:
        kinds = one.get("type", "anything")
        yield from (_PLAIN.get(str(kind), str(kind)) for kind in (kinds if isinstance(kinds, list) else [kinds]))
