"""TOML of tables of scalars and lists, without a package: what the exporters write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def toml_text(document: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables with their values, a blank line between two tables, ending with a newline."""
    return "\n".join(_table(name, values) for name, values in document.items())


def _table(name: str, values: Mapping[str, Any]) -> str:
    return "".join([f"[{name}]\n", *(f"{key} = {_value(value)}\n" for key, value in values.items())])


def _value(value: Any) -> str:
    """Strings, numbers, booleans and lists are written as JSON writes them; the outer list a row a line."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "[\n" + "".join(f"  {json.dumps(row)},\n" for row in value) + "]"
    return json.dumps(value)
