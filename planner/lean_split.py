"""The split of layers over stages whose fullest stage needs the least memory, for many rows at once.

A stage of n layers needs f + w + n s bytes: fixed ones, working ones, and s for each layer's states and what its
micro-batches in flight keep. Under a limit M a stage holds floor((M - f - w) / s) layers at most, so that the least
peak is the least M under which all stages together hold the model.
"""

from __future__ import annotations

import numpy as np

from costmodels.strategy import Floats
from planner.stage_bounds import RECOMPUTE_MODES, StageRows

HALVINGS = 60
"""Enough to tell two limits apart that differ in the last digits of a byte count."""
ROUNDING = 1e-12


def lean_peaks(rows: StageRows) -> Floats:
    """Bytes of the fullest stage under the leanest split of each of N stage problems, shape (N,).

    What may be recomputed is. No stage holds fewer layers than it must; infinite where that is too many already.
    """
    fixed, slope, least, stages = _columns(rows)
    lowest = np.where(stages, fixed + least * slope, 0.0).max(axis=1)
    layers = np.broadcast_to(np.asarray(rows.num_layers), lowest.shape)
    low, high = lowest, lowest + (slope * layers[:, None]).max(axis=1)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        enough = _held(middle, fixed, slope, stages) >= layers
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    fits = _held(lowest, fixed, slope, stages) >= layers
    exact = np.where(fits, lowest, _peak(high, fixed, slope, stages))
    return np.where((least * stages).sum(axis=1) > layers, np.inf, exact)


def lean_bounds(rows: StageRows) -> Floats:
    """Bytes that no split's fullest stage is below: all stages as full as each other, shape (N,)."""
    fixed, slope, _, stages = _columns(rows)
    cheapest = np.where(stages > 0, slope, np.inf).min(axis=1)
    layers = np.broadcast_to(np.asarray(rows.num_layers), cheapest.shape)
    return ((fixed * stages).sum(axis=1) + layers * cheapest) / stages.sum(axis=1)


def _columns(rows: StageRows) -> tuple[Floats, Floats, Floats, Floats]:
    """Bytes beside layers and per layer, fewest layers, and which columns are stages: (N, P) each."""
    count = np.atleast_1d(np.asarray(rows.num_stages))
    width = int(count.max(initial=1))
    stages = (np.arange(width) < count[:, None]).astype(np.float64)
    again = np.asarray(rows.recompute) != RECOMPUTE_MODES.index("none")
    kept = np.where(_tall(again), rows.checkpoint_bytes, rows.activation_bytes)
    slope = _tall(rows.layer_bytes) + kept
    fixed = np.asarray(rows.fixed_bytes) + _tall(np.where(again, rows.working_bytes, 0.0))
    shape = (len(count), width)
    fewest = np.asarray(rows.fewest, dtype=np.float64)
    return np.broadcast_to(fixed, shape), np.broadcast_to(slope, shape), np.broadcast_to(fewest, shape), stages


def _tall(values: object) -> Floats:
    """Figures of rows beside those of their stages."""
    array = np.asarray(values)
    return array[:, None] if array.ndim == 1 else array


def _held(limit: Floats, fixed: Floats, slope: Floats, stages: Floats) -> Floats:
    """Layers that all stages together hold under a limit, shape (N,)."""
    room = limit[:, None] * (1.0 + ROUNDING) - fixed
    return (np.floor(np.maximum(room / slope, 0.0)) * stages).sum(axis=1)


def _peak(limit: Floats, fixed: Floats, slope: Floats, stages: Floats) -> Floats:
    """The fullest of the stages that are filled up to a limit, shape (N,)."""
    held = np.floor(np.maximum((limit[:, None] * (1.0 + ROUNDING) - fixed) / slope, 0.0))
    return np.where(stages > 0, fixed + held * slope, 0.0).max(axis=1)
