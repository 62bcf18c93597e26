"""The fields that a study may vary, under every name that people give them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from hardware.errors import meant
from planner.errors import BadRequest
from planner.request.axes import PIN_AXES
from planner.request.overrides import ROOTS, SWITCHES
from planner.request.request import PlanRequest
from planner.request.spelling import ALIASES

FIELDS: Final = tuple(name for name in PlanRequest.model_fields if name not in {"pins", "top"})
"""Fields of a request that bear on its answer."""

LAYERS: Final = "layers_per_stage"
"""Layers of every stage of a fixed strategy, written "12,12,11,13"."""

_KNOWN: Final = (*FIELDS, *PIN_AXES, LAYERS)


def field_of(name: str) -> str | None:
    """The field behind a name as a study writes it, plural or singular; None where there is none.

    Pins are called ``pins.tp``, fields of the machines, the stack and the model ``cluster.``, ``stack.`` or ``model.``
    and a path; a stack's switch goes by its name alone too.
    """
    short = name.removeprefix("pins.").replace("-", "_")
    for spelling in (short, ALIASES.get(short, ""), short.removesuffix("s"), ALIASES.get(short.removesuffix("s"), "")):
        if spelling in PIN_AXES:
            return f"pins.{spelling}"
        if spelling in _KNOWN and not name.startswith("pins."):
            return spelling
    if short in SWITCHES:
        return f"stack.{short}"
    return name if name.startswith(("cluster.", *(f"{root}." for root in ROOTS))) else None


def unknown_field(name: str, also: Iterable[str] = ()) -> str:
    """What to say about a name that means nothing."""
    plurals = {f"{field}s" for field in ("model", "cluster", "stack")}
    known = {*_KNOWN, *ALIASES, *plurals, *also}
    every = f"there are {', '.join((*FIELDS, *also))} and the pins {', '.join(PIN_AXES)}"
    return f"there is no field {name!r}; {meant(name.removeprefix('pins.'), known, most=2, otherwise=every)}"


def read_value(field: str, value: Any) -> Any:
    """A value as the request takes it: counts and times written with their unit become numbers.

    Raises:
        BadRequest: text that is no quantity, a list or a table where one value belongs.
    """
    if field == LAYERS:
        return _layers(value)
    if field in {"tokens", "time_limit"} and isinstance(value, str):
        return _quantity(field, value)
    if field.startswith("pins."):
        return _pin(field, value)
    if isinstance(value, dict) and field not in {"model", "cluster", "stack", "stability", "changes"}:
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


def _layers(value: Any) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(str(part).strip().isdecimal() for part in parts):
        raise BadRequest(f'{LAYERS}: expected counts such as "12,12,11,13", got {value!r:.40}')
    return tuple(int(part) for part in parts)


def _quantity(field: str, text: str) -> float | int:
    from hardware.units import counted, parse_quantity

    try:
        return int(counted(text)) if field == "tokens" else parse_quantity(text, "time")
    except ValueError as error:
        raise BadRequest(f"{field}: {error}") from None
