"""Values as people write them: numbers, quantities, shares, multiples of what is there, and arguments of functions."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from hardware.errors import flatten
from hardware.files import expanded, read
from hardware.units import Dimension, counted, exact_quantity, parse_quantity
from planner.errors import BadQuantity, BadRequest
from planner.request.fields import LENGTH_UNITS, Kind

_T = TypeVar("_T")

LONGEST: Final = 1e9
"""Seconds that nobody waits for."""
MOST_TOKENS: Final = 10**18
_SMALL: Final = re.compile(r"[0-9]{1,7}")
_PLAIN_SECONDS: Final = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_LENGTH: Final = re.compile(r"([0-9]{1,9})([km]?)", re.IGNORECASE | re.ASCII)
_PRICE: Final = re.compile(
    r"\$?\s*([0-9]{1,6}(?:\.[0-9]{0,6})?)\s*(?:\$?(?:/h|/hour|/gpu-hour)?)?", re.IGNORECASE | re.ASCII
)
_MULTIPLE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*x|x\s*(\d+(?:\.\d+)?)")


def percentage(text: str) -> float:
    """A share as people write it: "10%", "0.1".

    Raises:
        ValueError: it is no number.
    """
    said = text.strip()
    return float(said[:-1]) / 100.0 if said.endswith("%") else float(said)


# Fields of a request. Each takes what pydantic was given and raises ValueError with one line.


def plain_number(value: object, *, expected: str = "") -> object:
    """The value, unless pydantic would make a number of what is none: a switch, or text where it is not read.

    Args:
        value: what was given.
        expected: what text is refused for; "" where text such as "2T" is read.
    """
    if isinstance(value, bool):
        raise ValueError(f"expected a number such as 64, got {str(value).lower()}")  # noqa: TRY004 - pydantic's
    if isinstance(value, str) and expected:
        raise ValueError(f"expected {expected}, got {value!r:.40}")
    return value


def plain_switch(value: object) -> object:
    """True, false or None; nothing that pydantic would make one of."""
    if value is None or isinstance(value, bool):
        return value
    raise ValueError(f"expected true or false, got {value!r:.40}")


def seconds_written(value: Any) -> Any:
    """Seconds out of text such as "30s" or "2 min", or plain ones; all else as it is."""
    if not isinstance(value, str):
        return value
    _plain_digits(value)
    try:
        seconds = float(value) if _PLAIN_SECONDS.fullmatch(value) else parse_quantity(value, "time")
    except BadQuantity:
        seconds = 0.0
    if not 0.0 < seconds < LONGEST:
        raise ValueError(f"expected a time such as 30s or 2min, got {value!r:.40}")
    return seconds


def tokens_written(value: Any) -> Any:
    """A whole number out of text such as "300B"; all else as it is."""
    if not isinstance(value, str):
        return counted(value)
    _plain_digits(value)
    found = counted(value)
    if not 1 <= found < MOST_TOKENS:
        raise ValueError(f"expected a count between 1 and 1e18 such as 300B, got {value!r:.40}")
    return found


def length_written(value: Any) -> Any:
    """Tokens of a sequence out of text such as "8k" or "1M" (`LENGTH_UNITS`); all else as it is."""
    if not isinstance(value, str):
        return value
    short = _LENGTH.fullmatch(value.strip())
    if short is None:
        raise ValueError(f"expected tokens such as 8192, 8k or 1M, got {value!r:.40}")
    return int(short[1]) * LENGTH_UNITS[short[2].lower()]


def price_written(value: Any) -> Any:
    """Dollars an hour out of text such as "2.5", "$2.50" or "2.50 $/h"; all else as it is."""
    if not isinstance(value, str):
        return value
    found = _PRICE.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"expected dollars a GPU-hour such as 2.50, got {value!r:.40}")
    return float(found[1])


def _plain_digits(text: str) -> None:
    if not text.isascii():
        raise ValueError(f"expected plain digits and a unit, got {text!r:.40}")


def counts_written(value: Any) -> tuple[int, ...] | None:
    """Whole numbers, one a stage, of a list, an array or text such as "12,12,11,13"; None as it is."""
    if value is None:
        return None
    found = value
    if isinstance(value, str):
        found = [int(part) if _SMALL.fullmatch(part.strip()) else part for part in value.split(",")]
    listed = isinstance(found, Sequence) and not isinstance(found, str | bytes)
    found = list(found) if listed or hasattr(found, "tolist") else []
    if not found or any(isinstance(one, bool) or not isinstance(one, Integral) for one in found):
        raise ValueError(f"expected counts such as [12, 12, 11, 13], got {value!r:.60}")
    return tuple(int(one) for one in found)


def share_written(value: Any) -> float | None:
    """A share, as a number or as text such as "10%"; None as it is."""
    if value is None:
        return None
    text = str(value).strip()
    try:
        return percentage(text)
    except ValueError:
        raise ValueError(f"expected a share such as 10% or 0.1, got {text!r:.40}") from None


def stability_written(value: Any) -> Any:
    """Interruptions and checkpoints out of text such as "detect=5 min,spare_nodes=8" or of a file; all else as it is.

    Only what is a path is read as a file.
    """
    if isinstance(value, os.PathLike):
        try:
            document = read(expanded(os.fsdecode(value)))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{os.fsdecode(value)}: {error}") from None
        inner = document.get("stability", document)
        return dict(inner) if isinstance(inner, Mapping) else {"stability": inner}
    if not isinstance(value, str):
        return value
    pairs = [pair.partition("=") for pair in value.split(",")]
    for name, sign, text in pairs:
        if not (name.strip() and sign and text.strip()):
            hint = "such as detect=5 min,spare_nodes=8"
            raise ValueError(f"expected name=value, got {name + sign + text!r:.40}; {hint}")
    return {name.strip(): _number(text.strip()) for name, _, text in pairs}


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


READERS: Final[Mapping[Kind, Callable[[Any], Any]]] = {
    "count": partial(plain_number, expected="a whole number"),
    "length": lambda value: plain_number(length_written(value)),
    "price": lambda value: plain_number(price_written(value)),
    "number": partial(plain_number, expected="a number"),
    "tokens": lambda value: plain_number(tokens_written(value)),
    "time": lambda value: plain_number(seconds_written(value)),
    "share": share_written,
    "switch": plain_switch,
    "pairs": stability_written,
    "counts": counts_written,
}
"""What reads the fields of a request, by their kind; the others are read one by one."""


# Fields of other records: multiples of what is there, within what the record allows.


def multiple(before: Any, value: Any, dimension: str | None, path: str = "") -> Any:
    """A multiple of what is there, written as a quantity again; anything else as it is.

    Raises:
        BadRequest: a multiple of nothing.
    """
    found = _MULTIPLE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return value
    if before is None:
        raise BadRequest(f"{path}: {value} is a multiple of a value that the catalogue does not have; give a quantity")
    if isinstance(before, bool) or not isinstance(before, int | float):
        raise BadRequest(
            f"{path}: {value} is a multiple of {before!r:.40}, which is not a number; give the value itself"
        )
    number = before * float(found[1] or found[2])
    number = int(number) if isinstance(before, int) and number.is_integer() else number
    return exact_quantity(number, dimension) if dimension else number  # type: ignore[arg-type]  # one of the units'


def changed_value(record: type[BaseModel], field: str, before: Any, value: Any, path: str) -> Any:
    """The new value of a field, also out of text or as a multiple of what is there: in SI units, within its bounds.

    Raises:
        BadRequest: it does not belong there.
    """
    dimension = next((str(kind["format"]) for kind in kinds(record, field) if "format" in kind), None)
    wanted = multiple(before, _typed(record, field, value, path), dimension, path)
    return checked_value(adapter(record, field), wanted, path)


def _typed(record: type[BaseModel], field: str, value: Any, path: str) -> Any:
    """A list or nothing out of text, as the field has them; true and false where they belong."""
    allowed = {kind.get("type") for kind in kinds(record, field)}
    if isinstance(value, bool) and not {"boolean", None} & allowed:
        wanted = " or ".join(sorted(kind for kind in allowed if kind))
        raise BadRequest(f"{path}: expected {wanted}, got {str(value).lower()}")
    if not isinstance(value, str):
        return value
    text = value.strip()
    if "array" in allowed:
        return [part.strip() for part in text.split(",")]
    return None if text.lower() == "none" and "null" in allowed else text


@cache
def kinds(record: type[BaseModel], field: str) -> list[dict[str, Any]]:
    """The JSON Schema of a field and of what it may be instead."""
    schema = adapter(record, field).json_schema()
    return [schema, *schema.get("anyOf", ())]


def checked_value(known: TypeAdapter[Any], value: Any, path: str) -> Any:
    """The value as its field has it, also out of text: in SI units, within its bounds.

    Raises:
        BadRequest: it does not belong there.
    """
    try:
        return known.validate_strings(value) if isinstance(value, str) else known.validate_python(value)
    except ValidationError as error:
        raise BadRequest(f"{path}: {flatten(error).removeprefix('the file: ')}") from None


@cache
def adapter(record: type[BaseModel], field: str) -> TypeAdapter[Any]:
    """What reads one field of a kind of record."""
    info = record.model_fields[field]
    kind: Any = info.annotation
    return TypeAdapter(Annotated[kind, *info.metadata] if info.metadata else kind)


# Arguments of Python functions, of which nothing has said yet that they are of their type.


def expect_type(name: str, value: object, wanted: type[_T], *, example: str) -> _T:
    """The value itself.

    Raises:
        BadRequest: it is of another type.
    """
    if not isinstance(value, wanted):
        raise BadRequest(f"{name}: expected a {wanted.__name__}, such as {example}, got {value!r:.60}")
    return value


def whole_number(name: str, value: Any, most: int) -> int:
    """A count from 1 on, numpy's too.

    Raises:
        BadRequest: something else, or too many.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise BadRequest(f"{name}: expected a whole number such as 64, got {value!r:.40}")
    if not 0 < int(value) <= most:
        raise BadRequest(f"{name}: expected 1 to {most}, got {value}")
    return int(value)


def share(name: str, value: Any) -> float:
    """A share from 0 to 1, as a number or as people write it.

    Raises:
        BadRequest: something else.
    """
    try:
        number = share_written(value)
    except ValueError:
        number = None
    if number is None or not 0.0 <= number <= 1.0:
        raise BadRequest(f"{name}: expected a share such as 0.05 or 5%, got {value!r:.40}")
    return number


def quantity(name: str, value: Any, dimension: Dimension) -> Any:
    """A number as it is, or text as people write it in the units of the code; None where none is given.

    Raises:
        BadRequest: text that is no such quantity, or true and false.
    """
    if isinstance(value, bool):
        raise BadRequest(f"{name}: expected a number or text with a unit, got {str(value).lower()}")
    if not isinstance(value, str):
        return value
    try:
        return parse_quantity(value, dimension)
    except BadQuantity as error:
        raise BadRequest(f"{name}: {error}") from None


def counts(name: str, value: Any) -> tuple[int, ...] | None:
    """Whole numbers, one a stage; None where none are given.

    Raises:
        BadRequest: something else.
    """
    try:
        return counts_written(value)
    except ValueError as error:
        raise BadRequest(f"{name}: {error}") from None


def name_or_path(value: Any) -> Any:
    """A path as text, recognised by its separator; all else as it is."""
    if not isinstance(value, os.PathLike):
        return value
    text = os.fsdecode(value)
    return text if os.sep in text else f"{os.curdir}{os.sep}{text}"


def file_names(name: str, value: Any) -> Sequence[str | Path]:
    """Names or paths of files.

    Raises:
        BadRequest: something else.
    """
    if not isinstance(value, Sequence):
        raise BadRequest(f"{name}: expected a file or a list of files, got {value!r:.60}")
    return [file_name(name, one) for one in value]


def file_name(name: str, value: Any) -> str | Path:
    """A name or the path of a file.

    Raises:
        BadRequest: something else.
    """
    if not isinstance(value, str | Path):
        raise BadRequest(f"{name}: expected a name or a file, got {value!r:.60}")
    return value
