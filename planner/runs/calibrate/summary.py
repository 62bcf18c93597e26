"""From residuals to what a person reads: signed bias, size, sources, warnings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hardware.errors import BadFile
from planner.runs.calibrate.document import Constant, Errors, RunError
from planner.runs.calibrate.identify import Fit, Found
from planner.runs.least_squares import Floats, Knob

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


def log_knob(field: str, value: float, limits: tuple[float, float, float]) -> Knob:
    """A knob that is the logarithm of a constant.

    Args:
        field: its path.
        value: from before.
        limits: spread of the logarithm, and bounds of the constant.
    """
    spread, low, high = limits
    start = min(max(value, 1.01 * low), 0.99 * high)
    return Knob(field, math.log(start), spread, math.log(low), math.log(high))


def fitted(fit: Fit, size: Callable[[float], float] = plain) -> dict[str, float]:
    """The constants that the data settle, by field."""
    return {one.knob.field: size(one.value) for one in fit.constants if one.fitted}


@dataclass(frozen=True, slots=True)
class Part:
    """What is said of one fit: of links, of the products of a number format, or of a stack."""

    constants: tuple[Constant, ...]
    errors: tuple[Errors, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    runs: tuple[RunError, ...] = ()
    measure_next: str = ""


@dataclass(frozen=True, slots=True)
class Wording:
    """How the constants of one kind of evidence are called.

    Attributes:
        prefix: what stands before the field in a constant's name.
        evidence: "these runs".
        hints: by field, what evidence would settle it.
        size: turns a knob's value into the constant's.
    """

    prefix: str
    evidence: str
    hints: Mapping[str, str]
    size: Callable[[float], float] = plain

    def constants(self, fit: Fit, said: str) -> tuple[Constant, ...]:
        """Every constant of a fit; ``said`` is the source of the fitted ones."""
        return tuple(self._constant(one, said) for one in fit.constants)

    def _constant(self, one: Found, said: str) -> Constant:
        error, before = one.error, self.size(one.knob.neutral)
        spread = None if error is None else abs(self.size(one.value + error) - self.size(one.value - error)) / 2.0
        return Constant(
            name=f"{self.prefix}{one.knob.field}",
            before=before,
            after=self.size(one.value) if one.fitted else before,
            standard_error=spread,
            narrowed=one.narrowed,
            source=said if one.fitted else f"not determined by {said.partition(':')[0]}; as before",
        )

    def warnings(self, fit: Fit) -> tuple[str, ...]:
        """One line for every constant that was left alone, and for each that ended at the edge of the plausible."""
        return tuple(filter(None, map(self._warning, fit.constants)))

    def _warning(self, one: Found) -> str:
        name = f"{self.prefix}{one.knob.field}"
        if one.at_bound:
            look = "look at the evidence, or at the cluster's nominal figures"
            return f"{name} ended at the edge of what is plausible; {look}"
        if one.fitted:
            return ""
        why = f"{self.evidence} narrow it to {100 * one.narrowed:.0f} % of what it could be"
        if one.instead:
            why = f"{self.evidence} cannot tell it from {one.instead.rpartition('.')[2]}"
        return f"{name} stays as it was: {why}; {self.hints[one.knob.name]} would tell"
