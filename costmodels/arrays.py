"""Types of the arrays that costs are computed in, one value for each strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Number = Any
"""One value per strategy, a scalar, or in the unit proof a quantity: the formulas take them alike."""


class Columns:
    """Base of records whose fields are arrays over strategies, (N,), or such records; None stays None.

    What is taken of a record, or changed in it, has its other fields gathered when somebody asks for them.
    """

    __slots__ = ("_others",)

    def take(self, index: NDArray[Any] | slice) -> Self:
        """The strategies at an index, mask or slice."""
        return self._made(lambda name: taken(getattr(self, name), index))

    def changed(self, **fields: Any) -> Self:
        """The record with other values of some fields."""
        return self._made(lambda name: getattr(self, name), fields)

    @classmethod
    def _made(cls, others: Callable[[str], Any], known: Mapping[str, Any] = MappingProxyType({})) -> Self:
        made = cls.__new__(cls)
        for name, value in {"_others": others, **known}.items():
            object.__setattr__(made, name, value)
        return made

    if not TYPE_CHECKING:  # fields that have no value yet

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name not in type(self).__dataclass_fields__:
                raise AttributeError(f"{type(self).__name__} has no {name}")
            value = self._others(name)
            object.__setattr__(self, name, value)
            return value


def taken(part: Any, index: NDArray[Any] | slice) -> Any:
    """Arrays over strategies, or tuples or records of such, at an index, mask or slice; None stays None."""
    if part is None:
        return None
    if isinstance(part, tuple):
        each = (taken(one, index) for one in part)
        return type(part)(*each) if hasattr(part, "_fields") else tuple(each)
    if not isinstance(part, np.ndarray):
        return part.take(index)
    if isinstance(index, np.ndarray) and index.dtype.kind == "i":  # a fifth faster than an index in brackets
        return part.take(index, axis=0)
    return part[index]


def distinct_values(values: ArrayLike, axis: int | None = None) -> NDArray[Any]:
    """``np.unique``, which alone would load all of numpy's masked arrays to see whether the values are such."""
    found: NDArray[Any] = np.unique(values, axis=axis, return_counts=True)[0]
    return found


def elementwise(formula: Callable[..., ArrayLike]) -> Callable[..., Floats]:
    """The formula for arrays that broadcast: it gets them in their common shape, and answers in it."""

    @wraps(formula)
    def broadcast(*arguments: ArrayLike) -> Floats:
        arrays: Sequence[NDArray[Any]] = [np.asarray(one) for one in arguments]
        if len({one.shape for one in arrays}) > 1:
            arrays = np.broadcast_arrays(*arrays)
        found = np.array(formula(*arrays), dtype=np.float64)
        return found if found.shape == arrays[0].shape else np.full(arrays[0].shape, found)

    return broadcast
