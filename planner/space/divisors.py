"""Divisors and multiples: what makes up a number of devices, layers or sequences, and what comes nearest to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from costmodels.strategy import Floats, Ints
from planner.request.pins import Pin

_SMOOTH: Final = (2, 3, 5, 7, 11, 13)


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def around(values: list[int], wanted: int) -> str:
    """The values on either side of the wanted one, as the end of a sentence: "4 and 8 do"."""
    below = [value for value in values if value < wanted][-1:]
    above = [value for value in values if value > wanted][:1]
    near = [str(value) for value in (*below, *above)]
    return f"{' and '.join(near)} {'do' if len(near) > 1 else 'does'}"


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


def nearest_divisor(number: int, wanted: int) -> str:
    """The divisors of ``number`` on either side of ``wanted``, as the end of a sentence."""
    return around(divisors(number), wanted)


def nearest_multiple(number: int, step: int) -> int:
    """The multiple of ``step`` nearest to ``number``, at least one step."""
    return max(round(number / step), 1) * step


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
