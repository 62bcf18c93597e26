"""Which constants the data can tell, and how well.

Misses are linear in the constants near the solution, so that the data's J' J / s^2 and the prior's 1 / spread^2 add
up to the precision of what is known afterwards. A constant whose uncertainty the data do not at least halve keeps
its value from before; the one told worst goes first, since its being fixed makes the others sharper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.validation.fitting import Floats, Knob, solve

IDENTIFIED: Final = 0.5
"""Uncertainty afterwards over before, above which a constant stays where it was."""


@dataclass(frozen=True, slots=True)
class Found:
    """One constant after the fit.

    Attributes:
        knob: which.
        value: the fitted value, or the one from before where the data do not tell.
        error: standard error of the fitted value; None where it was not fitted.
        narrowed: uncertainty afterwards over before, in 0..1; without the data it is 1.
        instead: the fitted constant that moves the misses most alike, for one that was not fitted; "" if none does.
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
        """Whether the data told it."""
        return self.error is not None


@dataclass(frozen=True, slots=True)
class Fit:
    """Every constant, and what would be missed of each point had it been left out.

    Attributes:
        constants: in the order of the knobs.
        before: misses (N,) at the values from before.
        after: misses (N,) at the fitted values.
        left_out: misses (N,) of each point under constants fitted to the others, to first order.
    """

    constants: tuple[Found, ...]
    before: Floats
    after: Floats
    left_out: Floats

    @property
    def values(self) -> Floats:
        """Of all knobs, shape (K,)."""
        return np.array([one.value for one in self.constants])


def settle(misses: Callable[[Floats], Floats], knobs: Sequence[Knob], *, noise: float) -> Fit:
    """Fit what the data can tell, and leave the rest where it was.

    Args:
        misses: log of predicted over measured, (N,), of the knobs' values (K,).
        knobs: neutral is the value from before.
        noise: standard deviation of a miss that a perfect model would have.
    """
    prior = np.array([k.neutral for k in knobs])
    free, dropped = list(range(len(knobs))), dict[int, Found]()
    while free:
        mine, at = [knobs[i] for i in free], prior.copy()

        def some(values: Floats, at: Floats = at, free: Sequence[int] = tuple(free)) -> Floats:
            tried = at.copy()
            tried[list(free)] = values
            return misses(tried)

        solution = solve(some, mine, prior[free], prior=noise, loss="soft_l1", scale=noise)
        left, spreads = some(solution.values), np.array([k.spread for k in mine])
        scatter = _scatter(left, len(free), noise)
        worst = _undetermined(solution.jacobian / scatter, spreads)
        if not worst:
            return _told(misses, knobs, free, dropped, solution.values, solution.jacobian / scatter)
        for place, found in worst:
            dropped[free[place]] = replace(found, knob=mine[place], value=mine[place].neutral)
        free = [i for i in free if i not in dropped]
    before = misses(prior)
    return Fit(tuple(dropped[i] for i in range(len(knobs))), before, before, before)


def _scatter(left: Floats, fitted: int, noise: float) -> float:
    """Standard deviation of the misses: what they show where there are enough of them, at least the noise."""
    freedom = len(left) - fitted
    typical = 1.4826 * float(np.median(np.abs(left))) if freedom > 0 else 0.0
    return max(noise, typical)


def _undetermined(jacobian: Floats, spreads: Floats) -> list[tuple[int, Found]]:
    """Constants that go, worst first, each judged with those before it fixed; the jacobian in units of the scatter."""
    inside, gone = list(range(len(spreads))), list[tuple[int, Found]]()
    while inside:
        scaled = jacobian[:, inside] * spreads[inside]
        narrowed = np.sqrt(np.diag(np.linalg.inv(scaled.T @ scaled + np.eye(len(inside)))))
        place = int(np.argmax(narrowed))
        if narrowed[place] <= IDENTIFIED:
            break
        gone.append((inside[place], Found(_NOBODY, 0.0, None, float(narrowed[place]))))
        inside.pop(place)
    return gone


_NOBODY: Final = Knob("", 0.0, 1.0, 0.0, 0.0)


def _told(
    misses: Callable[[Floats], Floats],
    knobs: Sequence[Knob],
    free: Sequence[int],
    dropped: dict[int, Found],
    values: Floats,
    jacobian: Floats,
) -> Fit:
    """The constants with their errors, and the misses before, after and left out; the jacobian in units of scatter."""
    at = np.array([k.neutral for k in knobs])
    before = misses(at)
    at[list(free)] = values
    after = misses(at)
    spreads = np.array([knobs[i].spread for i in free])
    scaled = jacobian * spreads
    covariance = np.linalg.inv(scaled.T @ scaled + np.eye(len(free)))
    narrowed = np.sqrt(np.diag(covariance))
    leverage = np.clip(np.einsum("ij,jk,ik->i", scaled, covariance, scaled), 0.0, 0.999)
    told = {}
    for place, i in enumerate(free):
        knob, value = knobs[i], float(values[place])
        edge = 1e-3 * (knob.high - knob.low)
        bound = value > knob.high - edge or (value < knob.low + edge and knob.neutral > knob.low)
        error = float(narrowed[place] * knob.spread)
        told[i] = Found(knob, value, error, float(narrowed[place]), at_bound=bound)
    likes = _alike(misses, at, knobs, free, dropped)
    constants = told | {i: replace(one, instead=likes.get(i, "")) for i, one in dropped.items()}
    return Fit(tuple(constants[i] for i in range(len(knobs))), before, after, after / (1.0 - leverage))


def _alike(
    misses: Callable[[Floats], Floats],
    at: Floats,
    knobs: Sequence[Knob],
    free: Sequence[int],
    dropped: dict[int, Found],
) -> dict[int, str]:
    """For each constant that was dropped, the fitted one whose change of the misses has the same shape, if one has."""
    base, names = misses(at), {}

    def change(i: int) -> Floats:
        moved = at.copy()
        step = 0.05 * knobs[i].spread
        moved[i] += step if at[i] + step < knobs[i].high else -step
        return misses(moved) - base

    kept = {j: change(j) for j in free}
    for i in dropped:
        mine = change(i)
        for j, other in kept.items():
            size = float(np.linalg.norm(mine) * np.linalg.norm(other))
            if size > 0.0 and abs(float(mine @ other)) / size > _PARALLEL:
                names[i] = knobs[j].field
    return names


_PARALLEL: Final = 0.95
"""Cosine between two changes of the misses from which on the data cannot tell one from the other."""
