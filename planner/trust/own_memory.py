"""What readings of memory of one's own teach: how many times as much is needed as predicted, and what is left open.

The runs have one effect in common, with the standard deviations of the model of errors of memory
(:mod:`planner.trust.memory`) as prior; what is smooth in sizes and noise is scatter. A run that was read says where its
need lay, one that ran or ran out of memory on which side of what its device has.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from costmodels.strategy import Floats
from planner.trust import error_model, memory
from planner.trust.error_model import Points, Variances
from planner.trust.own_runs import prior_of, scatter_of

GRID: Final = np.linspace(-1.5, 1.5, 3001)
"""Logarithms of factors that are weighed."""
SURE_SCORE: Final = 0.941
"""The score that a Student-t of 4 degrees lies below so often."""
_LEAST: Final = 1e-9


class Seen(NamedTuple):
    """What is known of M runs, (M,); not a number where it is not."""

    missed: Floats
    """Logarithm of read over predicted memory."""
    room: Floats
    """Logarithm of what the device has over what is predicted to be needed."""
    side: Floats
    """1 of a run that ran, -1 of one that ran out of memory."""


class Needs(NamedTuple):
    """What the runs say of others like them."""

    center: float
    """Logarithm of needed over predicted memory."""
    scale: float
    """Its uncertainty, as the scale of a Student-t of 4 degrees."""
    narrowed: float
    """That over what it was before."""

    @property
    def margin(self) -> float:
        """The share of the memory to leave alone so that a plan fits with ``memory.SURE``, 0 to 0.9."""
        return min(max(-math.expm1(-self.center - SURE_SCORE * self.scale), 0.0), 0.9)


def learn_needs(points: Points, seen: Seen, known: Variances) -> Needs:
    """What M runs teach; ``points`` are those of errors of memory."""
    prior, width = float(prior_of(points, known)[0]), float(np.exp(np.log(points.widths(known)).mean()))
    density, grown = _of_readings(points, seen, known, prior)
    alone = math.sqrt((known.smooth**2 + known.noise**2) * grown) * width
    for room, side in zip(seen.room, seen.side, strict=True):
        if not math.isnan(side):
            density += np.log(np.maximum(error_model.below(side * (room - GRID) / alone), _LEAST))
    center, scale = _middle(density)
    total = math.hypot(scale, alone)
    return Needs(center, total, min(total / math.hypot(prior, math.hypot(known.smooth, known.noise) * width), 1.0))


def _of_readings(points: Points, seen: Seen, known: Variances, prior: float) -> tuple[Floats, float]:
    """Logarithm of the density over ``GRID`` that the readings leave, and how much wider than usual they lie."""
    rows = np.flatnonzero(~np.isnan(seen.missed))
    missed, count = seen.missed[rows], len(rows)
    weighed = np.linalg.solve(scatter_of(points.take(rows), known), np.column_stack([np.ones(count), missed]))
    information = prior**-2 + weighed[:, 0].sum()
    middle = float(weighed[:, 1].sum() / information)
    left = float(missed @ weighed[:, 1] - middle**2 * information)
    freedom = memory.FREEDOM + count
    grown = (memory.FREEDOM + left) / freedom
    density: Floats = -(freedom + 1.0) / 2.0 * np.log1p((GRID - middle) ** 2 * information / grown / freedom)
    return density, grown


def _middle(density: Floats) -> tuple[float, float]:
    """Median, and the scale that puts as much within it as a Student-t of 4 degrees has."""
    reached = np.cumsum(np.exp(density - density.max()))
    low, middle, high = GRID[np.searchsorted(reached, reached[-1] * np.array([1.0 - memory.SURE, 0.5, memory.SURE]))]
    return float(middle), float(high - low) / 2.0 / SURE_SCORE
