"""Numbers of devices that divide a batch well."""

from __future__ import annotations

from typing import Final

import numpy as np

from planner.space.divisors import divisors

_SMOOTH: Final = (2, 3, 5, 7, 11, 13)


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
