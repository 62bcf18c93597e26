"""Which constants the data can tell, and how well.

Misses are linear in the constants near the solution, so that the data's J' J / s^2 and the prior's 1 / spread^2 add
up to the precision of what is known afterwards. A constant of which the data know less than was known before keeps
its value from before; the one known worst goes first, since its being fixed makes the others sharper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.runs.least_squares import Floats, Knob, solve

IDENTIFIED: Final = 0.7
"""Uncertainty afterwards over before, above which a constant stays where it was: 1 / sqrt(2), precision doubled."""


@dataclass(frozen=True, slots=True)
class Found:
    """One constant after the fit.

    Attributes:
        knob: which.
        value: the fitted value, or the one from before where the data do not tell.
        error: standard error of the fitted value; None where it was not fitted.
        narrowed: uncertainty afterwards over before, in 0..1; without the data it is 1.
        instead: the fitted constant that moves the residuals most alike, for one that was not fitted; "" if none does.
        at_bound: the fit ended at the edge of what is plausible.
    """

    knob: Knob
    value: float
    error: float | None
    narrowed: float
    instead: str = ""
    at_bound: bool = False

    @property
    def fitted(self) -> bool:
        """Whether the data settle it."""
        return self.error is not None


@dataclass(frozen=True, slots=True)
class Fit:
    """Every constant, and what would be missed of each point had it been left out.

    Attributes:
        constants: in the order of the knobs.
        before: residuals (N,) at the values from before.
        after: residuals (N,) at the fitted values.
        left_out: residuals (N,) of each point under constants fitted to the others, to first order.
    """

    constants: tuple[Found, ...]
    before: Floats
    after: Floats
    left_out: Floats

    @property
    def values(self) -> Floats:
        """Of all knobs, shape (K,)."""
        return np.array([one.value for one in self.constants])


def settle(residuals: Callable[[Floats], Floats], knobs: Sequence[Knob], *, noise: float) -> Fit:
    """Fit what the data can tell, and leave the rest where it was.

    Args:
        residuals: log of predicted over measured, (N,), of the knobs' values (K,).
        knobs: neutral is the value from before.
        noise: standard deviation of a residual that a perfect model would have.
    """
    before_values, spreads = np.array([(k.neutral, k.spread) for k in knobs]).T
    free, dropped = list(range(len(knobs))), dict[int, float]()
    while free:
        mine, at = [knobs[i] for i in free], before_values.copy()

        def some(values: Floats, at: Floats = at, free: Sequence[int] = tuple(free)) -> Floats:
            tried = at.copy()
            tried[list(free)] = values
            return residuals(tried)

        values = solve(some, mine, before_values[free], prior=noise, scale=noise)
        jacobian = _weighed(some, mine, values, noise) * spreads[free]
        gone = _undetermined(jacobian)
        if not gone:
            return _settled(residuals, knobs, dict(zip(free, values, strict=True)), dropped, jacobian)
        dropped |= {free[place]: narrowed for place, narrowed in gone.items()}
        free = [i for i in free if i not in dropped]
    before = residuals(before_values)
    constants = (Found(knob, knob.neutral, None, dropped[i]) for i, knob in enumerate(knobs))
    return Fit(tuple(constants), before, before, before)


def _weighed(residuals: Callable[[Floats], Floats], knobs: Sequence[Knob], values: Floats, noise: float) -> Floats:
    """The jacobian (N, K) in units of the scatter, points far off played down as the loss does."""
    left = residuals(values)
    columns = [_change(residuals, knobs, values, i, left) for i in range(len(knobs))]
    weights = 1.0 / np.sqrt(1.0 + (left / noise) ** 2)
    freedom = max(len(left) - len(knobs), 0)
    seen = float(np.sum(weights * left**2)) if freedom else 0.0
    scatter = math.sqrt((_BELIEF * noise**2 + seen) / (_BELIEF + freedom))
    return np.stack(columns, axis=1) * np.sqrt(weights)[:, None] / scatter


def _change(
    residuals: Callable[[Floats], Floats], knobs: Sequence[Knob], values: Floats, place: int, base: Floats
) -> Floats:
    """Change of the residuals by one constant, shape (N,)."""
    moved, step = values.copy(), _STEP * knobs[place].spread
    if moved[place] + step > knobs[place].high:
        step = -step
    moved[place] += step
    return (residuals(moved) - base) / step


_STEP: Final = 0.02
"""Step of a derivative, in spreads."""
_BELIEF: Final = 4
"""Points that the noise is worth where the scatter is estimated from few residuals."""


def _undetermined(jacobian: Floats) -> dict[int, float]:
    """Constants that go with how far they are narrowed, worst first, each judged with those before it fixed.

    Args:
        jacobian: (N, K) in units of the scatter and of the spreads.
    """
    inside, gone = list(range(jacobian.shape[1])), dict[int, float]()
    while inside:
        narrowed = np.sqrt(np.diag(_covariance(jacobian[:, inside])))
        place = int(np.argmax(narrowed))
        if narrowed[place] <= IDENTIFIED:
            break
        gone[inside.pop(place)] = float(narrowed[place])
    return gone


def _covariance(jacobian: Floats) -> Floats:
    """Of constants (K, K) in units of their spreads, with the data and the prior."""
    return np.asarray(np.linalg.inv(jacobian.T @ jacobian + np.eye(jacobian.shape[1])))


def _settled(
    residuals: Callable[[Floats], Floats],
    knobs: Sequence[Knob],
    values: Mapping[int, float],
    dropped: Mapping[int, float],
    jacobian: Floats,
) -> Fit:
    """The constants with their errors, and the residuals before, after and left out."""
    at = np.array([k.neutral for k in knobs])
    before = residuals(at)
    at[list(values)] = list(values.values())
    after = residuals(at)
    covariance = _covariance(jacobian)
    leverage = np.clip(np.einsum("ij,jk,ik->i", jacobian, covariance, jacobian), 0.0, 0.999)
    instead = _alike(residuals, at, knobs, values, dropped)
    constants = {
        i: Found(knobs[i], knobs[i].neutral, None, narrowed, instead.get(i, "")) for i, narrowed in dropped.items()
    }
    for (i, value), variance in zip(values.items(), np.diag(covariance), strict=True):
        knob, narrowed = knobs[i], math.sqrt(variance)
        edge = 1e-3 * (knob.high - knob.low)
        bound = bool(value > knob.high - edge or (value < knob.low + edge and knob.neutral > knob.low))
        constants[i] = Found(knob, float(value), narrowed * knob.spread, narrowed, at_bound=bound)
    return Fit(tuple(constants[i] for i in range(len(knobs))), before, after, after / (1.0 - leverage))


def _alike(
    residuals: Callable[[Floats], Floats],
    at: Floats,
    knobs: Sequence[Knob],
    free: Iterable[int],
    dropped: Iterable[int],
) -> dict[int, str]:
    """For each constant that was dropped, the fitted one that changes the residuals in the same shape, if one does."""
    base = residuals(at)
    kept = {knobs[j].field: _change(residuals, knobs, at, j, base) for j in free}
    names = {}
    for i in dropped:
        mine = _change(residuals, knobs, at, i, base)
        for field, other in kept.items():
            size = float(np.linalg.norm(mine) * np.linalg.norm(other))
            if size > 0.0 and abs(float(mine @ other)) / size > _PARALLEL:
                names[i] = field
    return names


_PARALLEL: Final = 0.95
"""Cosine between two changes of the residuals from which on the data cannot tell one from the other."""
