"""The accelerator's table of matrix products fitted to timed ones, by number format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from costmodels.primitives.kernels import matmul_seconds
from hardware.errors import BadFile
from hardware.kernels import GemmFit
from hardware.records import Accelerator, UnsupportedDtype
from planner.runs.calibrate.document import Constant, Errors
from planner.runs.calibrate.identify import Fit, settle
from planner.runs.calibrate.records import Product
from planner.runs.calibrate.summary import check_units, constants, errors, exponential, source, told, warnings
from planner.runs.least_squares import Floats, Knob

NOISE: Final = 0.05
"""Spread of a product's time around the formula: the shipped tables err by some 5 % in the median."""
_SPREADS: Final[Mapping[str, tuple[float, float, float]]] = {
    "efficiency": (0.3, 0.01, 2.0),
    "k_half": (1.0, 1.0, 1e5),
    "area_half": (1.5, 1.0, 1e9),
    "memory_efficiency": (0.3, 0.01, 2.0),
    "overhead": (1.0, 1e-7, 1e-2),
}
"""Spread of the logarithm before anything is measured, and bounds."""
_HINTS: Final = {
    "efficiency": "large products",
    "k_half": "products that differ in k",
    "area_half": "products that differ in m and n",
    "memory_efficiency": "products with few rows",
    "overhead": "products of a few microseconds",
}


@dataclass(frozen=True, slots=True)
class Products:
    """An accelerator with fitted products, and what is said of them."""

    accelerator: Accelerator
    constants: tuple[Constant, ...]
    errors: tuple[Errors, ...]
    warnings: tuple[str, ...]


def fit_products(products: Sequence[Product], accelerator: Accelerator) -> Products:
    """The accelerator with the products of every number format that was timed.

    Raises:
        BadFile: a number format that the accelerator does not multiply.
    """
    changed, stated, missed, warned = accelerator, list[Constant](), list[Errors](), list[str]()
    for dtype in dict.fromkeys(one.dtype for one in products):
        mine = [one for one in products if one.dtype == dtype]
        fit = _fit(mine, accelerator, dtype)
        said = source([one.file for one in mine], len(mine), "products", fit)
        prefix = f"cluster.accelerator.kernels.gemm.{dtype}."
        stated += constants(fit, prefix, said, exponential)
        missed.append(errors(f"products in {dtype}", fit))
        warned += warnings(fit, prefix, "these products", _HINTS)
        changed = _with(changed, dtype, _told(accelerator, dtype, told(fit, exponential), said))
    return Products(changed, tuple(stated), tuple(missed), tuple(warned))


def _fit(mine: Sequence[Product], accelerator: Accelerator, dtype: str) -> Fit:
    try:
        peak = accelerator.peak_rate(dtype)
    except UnsupportedDtype as error:
        raise BadFile(mine[0].file, f"line {mine[0].line}: {error}") from None
    start = accelerator.kernels.gemm_fit(dtype)
    knobs = [_knob(start, field) for field in _SPREADS]
    m, n, k = (np.array([float(getattr(one, name)) for one in mine]) for name in ("m", "n", "k"))
    measured = np.array([one.seconds for one in mine])

    def residuals(values: Floats) -> Floats:
        # A timing loop is a short burst: what a training run sustains is fitted on training runs.
        update = {k.field: math.exp(float(v)) for k, v in zip(knobs, values, strict=True)}
        tried = start.model_copy(update={**update, "sustained": 1.0})
        seconds = matmul_seconds(m=m, n=n, k=k, fit=tried, peak=peak, bandwidth=accelerator.memory_bandwidth)
        return np.asarray(np.log(seconds / measured))

    check_units(mine[0].file, mine[0].line, residuals(np.array([knob.neutral for knob in knobs])))
    return settle(residuals, knobs, noise=NOISE)


def _knob(start: GemmFit, field: str) -> Knob:
    spread, low, high = _SPREADS[field]
    value = min(max(float(getattr(start, field)), 1.01 * low), 0.99 * high)
    return Knob(field, math.log(value), spread, math.log(low), math.log(high))


def _told(accelerator: Accelerator, dtype: str, update: Mapping[str, float], said: str) -> GemmFit:
    unsaid = {"error_median": None, "error_p90": None, "source": said}
    return accelerator.kernels.gemm_fit(dtype).model_copy(update={**update, **unsaid})


def _with(accelerator: Accelerator, dtype: str, fit: GemmFit) -> Accelerator:
    table = accelerator.kernels.gemm | {dtype: fit}
    return accelerator.model_copy(update={"kernels": accelerator.kernels.model_copy(update={"gemm": table})})
