"""Types of the arrays that costs are computed in, one value for each strategy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Columns = TypeVar("Columns")
Number = Any
"""One value per strategy, a scalar, or in the unit proof a quantity: the formulas take them alike."""


def elementwise(formula: Callable[..., ArrayLike]) -> Callable[..., Floats]:
    """The formula for arrays that broadcast: it gets them in their common shape, and answers in it."""

    @wraps(formula)
    def broadcast(*arguments: ArrayLike) -> Floats:
        arrays = np.broadcast_arrays(*map(np.asarray, arguments))
        return np.broadcast_to(formula(*arrays), arrays[0].shape).astype(np.float64)

    return broadcast


def taken(record: Columns, chosen: NDArray[Any]) -> Columns:
    """A record of arrays, and of records of such, with the chosen strategies alone (an index or mask)."""
    assert is_dataclass(record)
    assert not isinstance(record, type)
    kept = {field.name: _taken(getattr(record, field.name), chosen) for field in fields(record)}
    return replace(record, **kept)


def _taken(value: Any, chosen: NDArray[Any]) -> Any:
    return value[chosen] if isinstance(value, np.ndarray) else value and value.take(chosen)
