"""The split of layers over stages whose fullest stage needs the least memory, for many rows at once.

A stage of n layers needs f + w + n s bytes: fixed ones, working ones, and s for each layer's states and what its
micro-batches in flight keep. Under a limit M a stage holds floor((M - f - w) / s) layers at most, so that the least
peak is the least M under which all stages together hold the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costmodels.strategy import Bools, Floats
from planner.stages.bounds import RECOMPUTE_MODES, StageRows

HALVINGS = 60
"""Enough to tell two limits apart that differ in the last digits of a byte count."""
ROUNDING = 1e-12


def lean_peaks(rows: StageRows) -> Floats:
    """Bytes of the fullest stage under the leanest split of each of N stage problems, shape (N,).

    What may be recomputed is. No stage holds fewer layers than it must; infinite where that is too many already.
    """
    given = _columns(rows)
    lowest = np.where(given.stages, _bytes(given, given.fewest), 0.0).max(axis=1)
    layers = np.broadcast_to(np.asarray(rows.num_layers), lowest.shape)
    low, high = lowest, lowest + (given.working + given.slope * layers[:, None]).max(axis=1)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        enough = _held(middle, given).sum(axis=1) >= layers
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    fits = _held(lowest, given).sum(axis=1) >= layers
    fullest = np.where(given.stages, _bytes(given, _held(high, given)), 0.0).max(axis=1)
    exact = np.where(fits, lowest, fullest)
    return np.where((given.fewest * given.stages).sum(axis=1) > layers, np.inf, exact)


def lean_bounds(rows: StageRows) -> Floats:
    """Bytes that no split's fullest stage is below: all stages as full as each other, shape (N,)."""
    given = _columns(rows)
    cheapest = np.where(given.stages, given.slope, np.inf).min(axis=1)
    layers = np.broadcast_to(np.asarray(rows.num_layers), cheapest.shape)
    least = given.fixed + np.where(given.fewest > 0, given.working, 0.0)
    return (np.where(given.stages, least, 0.0).sum(axis=1) + layers * cheapest) / given.stages.sum(axis=1)


class _Columns(NamedTuple):
    """Bytes beside layers, of a stage that recomputes, and per layer; fewest layers; which are stages: (N, P) each."""

    fixed: Floats
    working: Floats
    slope: Floats
    fewest: Floats
    stages: Bools


def _columns(rows: StageRows) -> _Columns:
    count = np.atleast_1d(np.asarray(rows.num_stages))
    width = int(count.max(initial=1))
    again = np.asarray(rows.recompute) != RECOMPUTE_MODES.index("none")
    kept = np.where(_tall(again), rows.checkpoint_bytes, rows.activation_bytes)
    shape = (len(count), width)
    return _Columns(
        fixed=np.broadcast_to(np.asarray(rows.fixed_bytes, dtype=np.float64), shape),
        working=np.broadcast_to(np.where(_tall(again), _tall(rows.working_bytes), 0.0), shape),
        slope=np.broadcast_to(_tall(rows.layer_bytes) + kept, shape),
        fewest=np.broadcast_to(np.asarray(rows.fewest, dtype=np.float64), shape),
        stages=np.arange(width) < count[:, None],
    )


def _tall(values: object) -> Floats:
    """Figures of rows beside those of their stages."""
    array = np.asarray(values)
    return array[:, None] if array.ndim == 1 else array


def _bytes(given: _Columns, layers: Floats) -> Floats:
    """Bytes of stages that hold so many layers; one without any recomputes nothing, (N, P)."""
    return given.fixed + np.where(layers > 0, given.working, 0.0) + layers * given.slope


def _held(limit: Floats, given: _Columns) -> Floats:
    """Layers that every stage holds under a limit, (N, P)."""
    room = limit[:, None] * (1.0 + ROUNDING) - given.fixed - given.working
    return np.where(given.stages, np.floor(np.maximum(room / given.slope, 0.0)), 0.0)
