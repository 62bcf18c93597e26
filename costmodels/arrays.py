"""Types of the arrays that costs are computed in, one value for each strategy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Number = Any
"""One value per row, a scalar, or in the unit proof a quantity: the formulas take them alike."""
