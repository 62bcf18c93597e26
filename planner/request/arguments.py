"""Arguments of the Python interface, of which nothing has said yet that they are of their type."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from hardware.units import Dimension, parse_quantity
from planner.errors import BadQuantity, BadRequest
from planner.request.written import percentage

_T = TypeVar("_T")


def of_type(value: object, wanted: type[_T], *, of: str, such_as: str) -> _T:
    """The value itself.

    Raises:
        BadRequest: it is of another type.
    """
    if not isinstance(value, wanted):
        raise BadRequest(f"{of}: expected a {wanted.__name__}, such as {such_as}, got {value!r:.60}")
    return value


def whole_number(name: str, value: Any, most: int) -> int:
    """A count from 1 on, numpy's too.

    Raises:
        BadRequest: something else, or too many.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise BadRequest(f"{name}: expected a whole number such as 64, got {value!r:.40}")
    if not 0 < int(value) <= most:
        raise BadRequest(f"{name}: 1 to {most} can be asked for, got {value}")
    return int(value)


def share(name: str, value: Any) -> float:
    """A share from 0 to 1, as a number or as people write it.

    Raises:
        BadRequest: something else.
    """
    number = _percent(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, Real) or not 0.0 <= float(number) <= 1.0:
        raise BadRequest(f"{name}: expected a share such as 0.05 or 5%, got {value!r:.40}")
    return float(number)


def _percent(text: str) -> float:
    try:
        return percentage(text)
    except ValueError:
        return math.nan


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
    if value is None:
        return None
    listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    found = list(value) if listed or hasattr(value, "tolist") else []
    if not found or any(isinstance(one, bool) or not isinstance(one, Integral) for one in found):
        raise BadRequest(f"{name}: expected counts such as [12, 12, 11, 13], got {value!r:.60}")
    return tuple(int(one) for one in found)


def name_or_path(value: Any) -> Any:
    """A path as text that is told from a name by its separator; all else as it is."""
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
