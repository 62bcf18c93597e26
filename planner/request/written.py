"""Values of a record's fields as people write them: quantities with their unit, multiples of what is there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError

from hardware.errors import flatten
from planner.errors import BadRequest

if TYPE_CHECKING:
    from planner.answer.plan import Strategy

_MULTIPLE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*x|x\s*(\d+(?:\.\d+)?)")


def many(count: int, thing: str) -> str:
    """So many things: "1 layer", "12,288 GPUs"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def percentage(text: str) -> float:
    """A share as people write it: "10%", "0.1".

    Raises:
        ValueError: it is no number.
    """
    said = text.strip()
    return float(said[:-1]) / 100.0 if said.endswith("%") else float(said)


def named(given: object) -> str:
    """What a request calls its model, its cluster or its stack, whether by name or in a table."""
    return str(given.get("name", "custom")) if isinstance(given, Mapping) else str(given or "custom")


def savings(strategy: Strategy) -> list[str]:
    """What a strategy does for memory that only a lack of it explains, in words."""
    together = strategy.recompute_num_layers
    return [
        *([f"{together} layers recomputed together"] if together > 1 else []),
        *([f"offload {strategy.offload}"] if strategy.offload != "none" else []),
    ]


def multiple(before: Any, value: Any, dimension: str | None, path: str = "") -> Any:
    """A multiple of what is there, written as a quantity again; anything else as it is.

    Raises:
        BadRequest: a multiple of nothing.
    """
    found = _MULTIPLE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return value
    if before is None:
        raise BadRequest(f"{path}: {value} of what the catalogue does not say; give a quantity")
    if isinstance(before, bool) or not isinstance(before, int | float):
        raise BadRequest(f"{path}: {value} of {before!r:.40}, which is no number; give the value itself")
    from hardware.units import exact_quantity

    number = before * float(found[1] or found[2])
    return exact_quantity(number, dimension) if dimension else number  # type: ignore[arg-type]  # one of the units'


def is_multiple(text: str) -> bool:
    """Whether it reads as one: "2x", "x0.5"."""
    return _MULTIPLE.fullmatch(text.strip()) is not None


def dimension_of(record: type[BaseModel], field: str) -> str | None:
    """The dimension of a field that is written with a unit; None for a plain number."""
    return next((str(kind["format"]) for kind in kinds(record, field) if "format" in kind), None)


@cache
def kinds(record: type[BaseModel], field: str) -> list[dict[str, Any]]:
    """The JSON Schema of a field and of what it may be instead."""
    schema = adapter(record, field).json_schema()
    return [schema, *schema.get("anyOf", ())]


def checked_value(known: TypeAdapter[Any], value: Any, path: str) -> Any:
    """The value as its field has it: in SI units, within its bounds.

    Raises:
        BadRequest: it does not belong there.
    """
    try:
        return known.validate_python(value)
    except ValidationError as error:
        raise BadRequest(f"{path}: {flatten(error).removeprefix('the file: ')}") from None


@cache
def adapter(record: type[BaseModel], field: str) -> TypeAdapter[Any]:
    """What reads one field of a kind of record."""
    info = record.model_fields[field]
    kind: Any = info.annotation
    return TypeAdapter(Annotated[kind, *info.metadata] if info.metadata else kind)


def plain_number(value: object, *, expected: str) -> object:
    """What a field that is a number was given, as it is.

    Args:
        value: a number, or what is none.
        expected: which kind; "" where text such as "2T" is read further.

    Raises:
        ValueError: a switch, or text where it is not read; pydantic would make numbers of both.
    """
    if isinstance(value, bool):
        raise ValueError(f"expected a number such as 64, got {str(value).lower()}")  # noqa: TRY004 - pydantic's
    if isinstance(value, str) and expected:
        raise ValueError(f"expected {expected}, got {value!r:.40}")
    return value


def plain_switch(value: object) -> object:
    """What a field that is true or false was given, as it is.

    Raises:
        ValueError: text or a number, of which pydantic would make one.
    """
    if value is None or isinstance(value, bool):
        return value
    raise ValueError(f"expected true or false, got {value!r:.40}")
