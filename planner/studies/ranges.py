"""Values of an axis: a list, or a range from, to, step or times, of numbers or quantities, as a request takes them."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from planner.errors import BadRequest
from planner.request.fields import FIELDS, Kind
from planner.request.values import READERS

LARGEST_AXIS: Final = 100_000
"""Values of one axis."""

_CONVERTED: Final[frozenset[Kind]] = frozenset({"tokens", "time", "counts"})
"""Kinds of fields whose values are numbers, however they are written, where points are compared and shown."""
_KEYS: Final = {"from", "to", "step", "times"}
_QUANTITY: Final = re.compile(r"\s*(\$?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(\S.*?)\s*")


def is_range(value: object) -> bool:
    """Whether a table is a range rather than a model, a cluster or a path."""
    return isinstance(value, dict) and bool(value.keys() & {"from", "to"}) and value.keys() <= _KEYS


def axis_values(name: str, given: Any) -> tuple[Any, ...]:
    """The values of one axis, in order; one value is an axis of one.

    Raises:
        BadRequest: no values, a value twice, or a range that holds nothing or never ends.
    """
    if is_range(given):
        return _range(name, given)
    if isinstance(given, dict) and "from" in given:
        raise BadRequest(f"{name}: a range has from, to and step or times, got {', '.join(given)}")
    if not isinstance(given, list | tuple):
        return (given,)
    if not given:
        raise BadRequest(f"{name}: the axis is empty; give one value or more, or leave it out")
    if len(given) > LARGEST_AXIS:
        raise BadRequest(f"{name}: {len(given):,} values, at most {LARGEST_AXIS:,}")
    seen: set[str] = set()
    for value in given:
        text = json.dumps(value, sort_keys=True, default=str)
        if text in seen:
            raise BadRequest(f"{name}: {value!r:.60} is given twice")
        seen.add(text)
    return tuple(given)


def _range(name: str, table: dict[str, Any]) -> tuple[Any, ...]:
    if {"from", "to"} - table.keys() or len(table.keys() & {"step", "times"}) != 1:
        raise BadRequest(f"{name}: a range needs from, to and one of step and times, got {', '.join(table)}")
    (low, unit), (high, other) = (_number(name, table[end]) for end in ("from", "to"))
    if unit != other:
        raise BadRequest(f"{name}: the range goes from {unit or 'a number'} to {other or 'a number'}; use one unit")
    if low > high:
        raise BadRequest(f"{name}: the range from {table['from']} to {table['to']} is empty; write the smaller first")
    values = _stepped(name, table, low, high, unit) if "step" in table else _multiplied(name, table["times"], low, high)
    if not unit:
        return tuple(values)
    return tuple(f"{value:g} {unit}" for value in values)


def _stepped(name: str, table: dict[str, Any], low: float, high: float, unit: str) -> list[float]:
    step, of = _number(name, table["step"])
    if step <= 0 or of not in ("", unit):
        raise BadRequest(f"{name}: step {table['step']} never gets from {table['from']} to {table['to']}")
    count = (high - low) / step + 1e-9
    if count >= LARGEST_AXIS:
        raise BadRequest(f"{name}: the range holds about {count:.3g} values, at most {LARGEST_AXIS:,}")
    return [low + place * step for place in range(math.floor(count) + 1)]


def _multiplied(name: str, times: Any, low: float, high: float) -> list[float]:
    factor, unit = _number(name, times)
    if factor <= 1 or unit or low <= 0:
        raise BadRequest(f"{name}: times {times} never gets from {low:g} to {high:g}; give more than 1, from above 0")
    count = math.log(high / low) / math.log(factor) + 1e-9
    if count >= LARGEST_AXIS:
        raise BadRequest(f"{name}: the range holds about {count:.3g} values, at most {LARGEST_AXIS:,}")
    return [low * factor**place for place in range(math.floor(count) + 1)]


def _number(name: str, value: Any) -> tuple[float, str]:
    """A number, whole where it was written so, and its unit."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value, ""
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise BadRequest(f"{name}: a range has numbers or quantities such as '100 GB/s', got {value!r:.40}")
    return float(found[1].lstrip("$")), found[2]


def read_value(field: str, value: Any) -> Any:
    """A value as the request takes it: counts and times, however they are written, become numbers.

    Raises:
        BadRequest: text that is no quantity, a list or a table where one value belongs.
    """
    if field.startswith("pins."):
        return _pin(field, value)
    kind = FIELDS[field].kind if field in FIELDS else "text"
    if kind in _CONVERTED and isinstance(value, str | list):
        try:
            return READERS[kind](value)
        except ValueError as error:
            raise BadRequest(f"{field}: {error}") from None
    if isinstance(value, dict) and kind not in {"record", "pairs", "changes"}:
        raise BadRequest(f"{field}: expected one value, got a table")
    if isinstance(value, list) and field.startswith("cluster."):
        raise BadRequest(f"{field}: expected one value for each point, got the list {value!r:.40}")
    return value


def _pin(field: str, value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise BadRequest(f'{field}: expected a value such as 8, several allowed as "4,8" or a range as "..8"')
    return value
