"""Divisors and multiples: what makes up a number of devices, layers or sequences, and what comes nearest to it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from costmodels.strategy import Floats, Ints
from planner.request.pins import Pin


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


def nearest_divisor(number: int, wanted: int) -> str:
    """The divisors of ``number`` on either side of ``wanted``, as the end of a sentence."""
    return around(divisors(number), wanted)


def nearest_multiple(number: int, step: int) -> int:
    """The multiple of ``step`` nearest to ``number``, at least one step."""
    return max(round(number / step), 1) * step
