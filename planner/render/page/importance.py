"""Which axis of a study decides a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

FIGURES: Final = ("days", "cost", "mfu", "gib")
"""Figures whose importance is computed."""
_LEAST: Final = 1e-12
"""Sum of squares below which nothing differs."""


def importance(points: Sequence[Mapping[str, Any]], axes: Sequence[str]) -> dict[str, dict[str, float]]:
    """By figure and axis, how much of the spread of the figure's logarithm the axis explains alone.

        1 - [sum (y - mean of its value)^2 / (n - k)] / [sum (y - mean)^2 / (n - 1)], not below 0

    with n points and k values of the axis: the variance between the axis's means over all variance, less what means of
    as many random groups would explain (R. Fisher's eta squared, adjusted). Axes that act together, or whose values
    were not all combined, share what they explain, so that shares need not add up to 1. Axes with a value of their
    own for every point, and figures that do not differ, have none.
    """
    return {figure: shares for figure in FIGURES if (shares := _of_figure(points, axes, figure))}


def _of_figure(points: Sequence[Mapping[str, Any]], axes: Sequence[str], figure: str) -> dict[str, float]:
    known = [point for point in points if point[figure] is not None and point[figure] > 0]
    if len(known) < 3:
        return {}
    y = np.log([point[figure] for point in known])
    whole = float(((y - y.mean()) ** 2).sum())
    if whole < _LEAST:
        return {}
    found = {}
    for axis in axes:
        values, place = np.unique([str(point["axes"].get(axis)) for point in known], return_inverse=True)
        if 1 < len(values) < len(known):
            means = np.bincount(place, weights=y) / np.bincount(place)
            rest = float(((y - means[place]) ** 2).sum()) / (len(known) - len(values))
            found[axis] = max(0.0, 1.0 - rest / (whole / (len(known) - 1)))
    return found
