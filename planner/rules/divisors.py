"""What divides a number, and what comes nearest to a wanted one, as sentences of rules end."""

from __future__ import annotations

import math


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


def nearest_divisor(number: int, wanted: int) -> str:
    """The divisors of ``number`` on either side of ``wanted``, as the end of a sentence."""
    return around(divisors(number), wanted)


def nearest_multiple(number: int, step: int) -> int:
    """The multiple of ``step`` nearest to ``number``, at least one step."""
    return max(round(number / step), 1) * step
