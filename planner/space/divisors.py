"""Degrees and counts of devices that come nearest to what is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from costmodels.strategy import Floats, Ints
from planner.request.pins import Pin
from planner.rules.divisors import divisors

_SMOOTH: Final = (2, 3, 5, 7, 11, 13)


def nearest_degrees(columns: Mapping[str, Ints], pins: Mapping[str, Pin]) -> str:
    """The degrees of the pinned axes that are fewest times off among layouts, columns (A,): "tp 16, pp 4".

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


def good_counts(gpus: int, batch: int, node: int) -> list[int]:
    """Whole nodes below ``gpus`` that are a divisor of the batch times a product of small primes, largest first.

    At least half of ``gpus``: less would waste more than any strategy gains.
    """
    replicas = np.array(divisors(batch), dtype=np.int64)
    widths = [width for width in range(1, min(gpus, 4096) + 1) if _smooth(width)]
    most = [int(replicas[replicas <= gpus // width].max()) * width for width in widths]
    return sorted({n for n in most if n % node == 0 and gpus / 2 <= n < gpus}, reverse=True)


def _smooth(number: int) -> bool:
    for prime in _SMOOTH:
        while number % prime == 0:
            number //= prime
    return number == 1
