"""How much a schedule holds, and which of its passes run alongside one of the other direction.

Symbols as in ``schedules``; every function takes arrays that broadcast. What is in flight is counted in
micro-batches through a whole stage, which is chunks held, divided by v.
"""

from __future__ import annotations

import numpy as np

from costmodels.arrays import Floats, Ints, elementwise
from costmodels.pipeline.interleaving import group_size


@elementwise
def warmup_in_flight(p: Ints, m: Ints, _v: Ints, stage: Ints) -> Ints:
    """Micro-batches whose activations a stage of 1F1B holds at most: one more than the stages behind it.

        min(m, p - s)

    Source:
        [NarayananBW21]; [Korthikanti22], section 4.

    >>> warmup_in_flight(8, 32, 1, np.arange(8)).tolist()
    [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    """
    return np.minimum(m, p - stage)


@elementwise
def chunks_in_flight(p: Ints, m: Ints, v: Ints, stage: Ints) -> Floats:
    """Micro-batches whose activations a stage of the interleaved schedule holds at most, in whole stages.

        min(m v, 2 (p - s - 1) + (v - 1) p + 1) / v;  on the first stage  p (1 + (p - 1) / (p v))

    Source:
        [Narayanan21], section 2.2.2; [Korthikanti22], section 4.

    >>> float(chunks_in_flight(8, 32, 4, 0)), 8 * (1 + 7 / (8 * 4))
    (9.75, 9.75)
    """
    return np.minimum(m * v, (p - stage - 1) * 2 + (v - 1) * p + 1) / v


@elementwise
def groups_in_flight(p: Ints, m: Ints, v: Ints, stage: Ints) -> Floats:
    """Warm-up of ``interleaved-groups`` and one chunk more, in whole stages."""
    return np.minimum(m * v, (p - stage - 1) * 2 + (v - 1) * group_size(p, m) + 1) / v


@elementwise
def no_pairs(_p: Ints, _m: Ints, _v: Ints) -> int:
    """No pass runs alongside one of the other direction."""
    return 0


@elementwise
def pairs_both_ways(p: Ints, m: Ints, _v: Ints) -> Ints:
    """DualPipe: all but ``3 p / 2 - 1`` micro-batches on the first and the last rank, which have the fewest."""
    return np.maximum(m - 3 * p // 2 + 1, 0)


@elementwise
def pairs_folded(p: Ints, m: Ints, v: Ints) -> Floats:
    """DualPipe of 2 p ranks and 2 m micro-batches with half a stage each."""
    return pairs_both_ways(2 * p, 2 * m, v) / 2
