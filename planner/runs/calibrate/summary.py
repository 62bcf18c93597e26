"""From residuals to what a person reads: signed bias, size, sources, warnings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hardware.errors import BadFile
from planner.runs.calibrate.document import Constant, Errors
from planner.runs.calibrate.identify import Fit, Found
from planner.runs.least_squares import Floats

FEWEST_LEFT_OUT = 3
"""Points below which leaving one out leaves nothing to fit."""
FARTHEST = math.log(30.0)
"""Miss beyond which what was measured is not what it is said to be."""


def check_units(file: str, line: int, before: Floats) -> None:
    """Refuse points that are as far from their first prediction as no machine is.

    Raises:
        BadFile: half of them or more are; ``before`` is log of predicted over measured, (N,).
    """
    middle = float(np.median(before))
    if abs(middle) > FARTHEST:
        times = f"{math.exp(min(middle, 700.0)):.3g} times as long as measured"
        raise BadFile(file, f"line {line}: predicted to take {times}; look at its units")


def errors(what: str, fit: Fit, part: slice = slice(None)) -> Errors:
    """Bias and size of the errors of some of a fit's points."""
    before, after, left = (np.expm1(one[part]) for one in (fit.before, fit.after, fit.left_out))
    return Errors(
        what=what,
        points=len(before),
        bias_before=float(np.median(before)),
        bias_after=float(np.median(after)),
        median_before=_size(before),
        median_after=_size(after),
        median_left_out=_size(left) if len(fit.after) >= FEWEST_LEFT_OUT else None,
    )


def _size(found: Floats) -> float:
    return float(np.median(np.abs(found)))


def source(files: Sequence[str], points: int, unit: str, fit: Fit) -> str:
    """Which files, how many points, what error before and after."""
    before, after = _size(np.expm1(fit.before)), _size(np.expm1(fit.after))
    named = ", ".join(dict.fromkeys(files))
    return f"{named}: {points} {unit}; median error {100 * before:.1f} % before, {100 * after:.1f} % after"


def plain(value: float) -> float:
    """A knob that is the constant itself, in the digits that are kept."""
    return float(f"{value:.4g}")


def exponential(value: float) -> float:
    """A knob that is the logarithm of its constant."""
    return plain(math.exp(value))


def told(fit: Fit, size: Callable[[float], float] = plain) -> dict[str, float]:
    """The constants that the data told, by field."""
    return {one.knob.field: size(one.value) for one in fit.constants if one.fitted}


def constants(fit: Fit, prefix: str, said: str, size: Callable[[float], float] = plain) -> list[Constant]:
    """The constants of a fit; ``size`` turns a knob's value into the constant's."""
    return [_constant(one, prefix, said, size) for one in fit.constants]


def _constant(one: Found, prefix: str, said: str, size: Callable[[float], float]) -> Constant:
    error, before = one.error, size(one.knob.neutral)
    spread = None if error is None else abs(size(one.value + error) - size(one.value - error)) / 2.0
    return Constant(
        name=f"{prefix}{one.knob.field}",
        before=before,
        after=size(one.value) if one.fitted else before,
        standard_error=spread,
        narrowed=one.narrowed,
        source=said if one.fitted else f"not told by {said.partition(':')[0]}; as before",
    )


def warnings(fit: Fit, prefix: str, of: str, hints: Mapping[str, str]) -> list[str]:
    """One line for every constant that was left alone, and for each that ended at the edge of the plausible."""
    return [line for one in fit.constants if (line := _warning(one, prefix, of, hints))]


def _warning(one: Found, prefix: str, of: str, hints: Mapping[str, str]) -> str:
    name = f"{prefix}{one.knob.field}"
    if one.fitted:
        edge = (
            f"{name} ended at the edge of what is plausible; look at the evidence, or at the cluster's nominal figures"
        )
        return edge if one.at_bound else ""
    short = one.knob.field.rpartition(".")[2]
    why = f"{of} narrow it to {100 * one.narrowed:.0f} % of what it could be"
    if one.instead:
        why = f"{of} cannot tell it from {one.instead.rpartition('.')[2]}"
    return f"{name} stays as it was: {why}; {hints[short]} would tell"
