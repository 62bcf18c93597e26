"""Types of the arrays that costs are computed in, one value for each strategy."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Number = Any
"""One value per strategy, a scalar, or in the unit proof a quantity: the formulas take them alike."""


class Columns:
    """Base of records whose fields are arrays over strategies, (N,), or such records; None stays None."""

    __slots__ = ()

    def take(self, index: NDArray[Any] | slice) -> Self:
        """The strategies at an index, mask or slice."""
        return type(self)(**{f.name: _taken(getattr(self, f.name), index) for f in fields(cast("Any", self))})


def _taken(part: Any, index: NDArray[Any] | slice) -> Any:
    if part is None:
        return None
    if isinstance(part, tuple):
        return tuple(_taken(one, index) for one in part)
    return part[index] if isinstance(part, np.ndarray) else part.take(index)
