"""The degrees that so many devices can make up, closest to those that they cannot."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costmodels.strategy import Floats, Ints
from planner.request.pins import Pin


def closest(columns: Mapping[str, Ints], pins: Mapping[str, Pin]) -> str:
    """Of layouts, columns (A,), the degrees of the pinned axes that are fewest times off, as "tp 16, pp 4".

    Of several the one that keeps the earlier axes.
    """
    far = [_times_off(columns[name], pins[name]) for name in pins]
    place = int(np.lexsort([*far[::-1], np.round(sum(far), 9)])[0])
    return ", ".join(f"{name} {columns[name][place]}" for name in pins)


def _times_off(degrees: Ints, pin: Pin) -> Floats:
    """Distances of logarithms to the nearest degree that a pin allows."""
    ends = np.clip(degrees, max(pin.low, 1), pin.high)[:, None]
    allowed = np.array(pin.values, dtype=np.float64)[None, :] if pin.values else ends
    return np.asarray(np.abs(np.log(degrees[:, None] / allowed)).min(axis=1))
