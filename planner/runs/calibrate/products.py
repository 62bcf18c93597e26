"""The accelerator's table of matrix products fitted to timed ones, by number format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from costmodels.primitives.kernels import matmul_seconds
from hardware.errors import BadFile
from hardware.records import Accelerator, UnsupportedDtype
from planner.runs.calibrate.identify import Fit, settle
from planner.runs.calibrate.records import Product
from planner.runs.calibrate.summary import Part, Wording, check_units, errors, exponential, fitted, log_knob, source
from planner.runs.corpus import grouped
from planner.runs.least_squares import Floats

NOISE: Final = 0.05
"""Spread of a product's time around the formula: the shipped tables err by some 5 % in the median."""
_LIMITS: Final[Mapping[str, tuple[float, float, float]]] = {
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


def fit_products(products: Sequence[Product], accelerator: Accelerator) -> tuple[Accelerator, list[Part]]:
    """The accelerator with the products of every number format that was timed, and what is said of each.

    Raises:
        BadFile: a number format that the accelerator does not multiply.
    """
    table, parts = dict(accelerator.kernels.gemm), list[Part]()
    for dtype, mine in grouped(products, lambda one: one.dtype).items():
        fit = _fit(mine, accelerator, dtype)
        said = source([one.file for one in mine], len(mine), "products", fit)
        words = Wording(f"cluster.accelerator.kernels.gemm.{dtype}.", "these products", _HINTS, exponential)
        parts.append(Part(words.constants(fit, said), (errors(f"products in {dtype}", fit),), words.warnings(fit)))
        update = {**fitted(fit, exponential), "error_median": None, "error_p90": None, "source": said}
        table[dtype] = accelerator.kernels.gemm_fit(dtype).model_copy(update=update)
    kernels = accelerator.kernels.model_copy(update={"gemm": table})
    return accelerator.model_copy(update={"kernels": kernels}), parts


def _fit(mine: Sequence[Product], accelerator: Accelerator, dtype: str) -> Fit:
    try:
        peak = accelerator.peak_rate(dtype)
    except UnsupportedDtype as error:
        raise BadFile(mine[0].file, f"line {mine[0].line}: {error}") from None
    start = accelerator.kernels.gemm_fit(dtype)
    knobs = [log_knob(field, float(getattr(start, field)), limits) for field, limits in _LIMITS.items()]
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
