"""How much a schedule holds and when it can run: activations in flight, and what p, m and v it allows.

Symbols as in ``schedules``; every function takes arrays that broadcast. What is in flight is counted in
micro-batches through a whole stage, which is chunks held, divided by v.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodels.arrays import Bools, Floats
from costmodels.pipeline.interleaving import group_size


def all_in_flight(p: ArrayLike, m: ArrayLike, v: ArrayLike, stage: ArrayLike) -> Floats:
    """All micro-batches of the iteration."""
    return _spread(np.asarray(m), p, v, stage)


def warmup_in_flight(p: ArrayLike, m: ArrayLike, v: ArrayLike, stage: ArrayLike) -> Floats:
    """Micro-batches whose activations a stage of 1F1B holds at most: one more than the stages behind it.

        min(m, p - s)

    Args:
        p: stages.
        m: micro-batches.
        v: chunks of a stage, 1.
        stage: s, counted from 0 at the input.

    Returns:
        Micro-batches through a whole stage, in the arguments' common shape.

    Source:
        [NarayananBW21]; [Korthikanti22], section 4.

    >>> warmup_in_flight(8, 32, 1, np.arange(8)).tolist()
    [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    """
    return _spread(np.minimum(m, np.asarray(p) - np.asarray(stage)), v)


def chunks_in_flight(p: ArrayLike, m: ArrayLike, v: ArrayLike, stage: ArrayLike) -> Floats:
    """Micro-batches whose activations a stage of the interleaved schedule holds at most, in whole stages.

        min(m v, 2 (p - s - 1) + (v - 1) p + 1) / v;  on the first stage  p (1 + (p - 1) / (p v))

    Args:
        p: stages.
        m: micro-batches.
        v: chunks of a stage.
        stage: s, counted from 0 at the input.

    Returns:
        Chunks held, divided by v, in the arguments' common shape.

    Source:
        [Narayanan21], section 2.2.2; [Korthikanti22], section 4.

    >>> float(chunks_in_flight(8, 32, 4, 0)), 8 * (1 + 7 / (8 * 4))
    (9.75, 9.75)
    """
    p, m, v, stage = (np.asarray(x) for x in (p, m, v, stage))
    return np.asarray(np.minimum(m * v, (p - stage - 1) * 2 + (v - 1) * p + 1) / v, dtype=np.float64)


def groups_in_flight(p: ArrayLike, m: ArrayLike, v: ArrayLike, stage: ArrayLike) -> Floats:
    """Warm-up of ``interleaved-groups`` and one chunk more, in whole stages."""
    p, m, v, stage = (np.asarray(x) for x in (p, m, v, stage))
    held = (p - stage - 1) * 2 + (v - 1) * group_size(p, m) + 1
    return np.asarray(np.minimum(m * v, held) / v, dtype=np.float64)


def as_the_first(p: ArrayLike, m: ArrayLike, v: ArrayLike, stage: ArrayLike) -> Floats:
    """As much as the first stage of 1F1B, everywhere."""
    return _spread(np.minimum(p, m), v, stage)


def twice_the_first(p: ArrayLike, m: ArrayLike, v: ArrayLike, stage: ArrayLike) -> Floats:
    """ZB-H2: twice the warm-up."""
    return _spread(np.minimum(2 * np.asarray(p) - 1, m), v, stage)


def half_of_the_first(p: ArrayLike, m: ArrayLike, v: ArrayLike, stage: ArrayLike) -> Floats:
    """Micro-batches that a stage of V-Half holds: half of what the first stage of 1F1B does."""
    return _spread(np.minimum((np.asarray(p) + 2) // 2, m), v, stage)


def third_of_the_first(p: ArrayLike, m: ArrayLike, v: ArrayLike, stage: ArrayLike) -> Floats:
    """Micro-batches that a stage of V-Min holds: a third of what the first stage of 1F1B does."""
    return _spread(np.minimum((np.asarray(p) + 4) // 3, m), v, stage)


def one_more_than_ranks(p: ArrayLike, m: ArrayLike, v: ArrayLike, stage: ArrayLike) -> Floats:
    """Micro-batches that a stage of DualPipe holds: one more than there are stages [DeepSeek24]."""
    return _spread(np.asarray(p) + 1, m, v, stage)


def half_more_than_ranks(p: ArrayLike, m: ArrayLike, v: ArrayLike, stage: ArrayLike) -> Floats:
    """Micro-batches that a stage of DualPipeV holds: half of what DualPipe does on twice the stages."""
    return _spread(2 * np.asarray(p) + 1, m, v, stage) / 2


def _spread(held: NDArray[np.int64], *others: ArrayLike) -> Floats:
    """``held`` in the common shape of all arguments: a closed form answers for every row it was asked."""
    return np.broadcast_to(held, np.broadcast_shapes(*map(np.shape, (held, *others)))).astype(np.float64)


def single(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    """One stage and one chunk."""
    return np.asarray((np.asarray(p) == 1) & plain(p, m, v))


def plain(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    """One chunk per stage."""
    return np.asarray((np.asarray(p) >= 1) & (np.asarray(m) >= 1) & (np.asarray(v) == 1))


def whole_groups(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    """Two chunks or more, whole groups of p micro-batches."""
    p, m, v = (np.asarray(x) for x in (p, m, v))
    return np.asarray((p >= 2) & (m >= 1) & (v >= 2) & (m % np.maximum(p, 1) == 0))


def whole_groups_twice(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    """Two chunks or more, two whole groups of p micro-batches or more."""
    return np.asarray(whole_groups(p, m, v) & (np.asarray(m) >= 2 * np.asarray(p)))


def chunks_filled(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    """Two chunks or more, as many micro-batches as stages."""
    p, m, v = (np.asarray(x) for x in (p, m, v))
    return np.asarray((p >= 2) & (m >= p) & (v >= 2))


def filled_once(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    """As many micro-batches as stages."""
    p, m, v = (np.asarray(x) for x in (p, m, v))
    return np.asarray((p >= 2) & (m >= p) & (v == 1))


def filled_twice(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    """Nearly twice as many micro-batches as stages."""
    p, m, v = (np.asarray(x) for x in (p, m, v))
    return np.asarray((p >= 2) & (m >= 2 * p - 1) & (v == 1))


def folded_twice(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    """Two chunks, nearly twice as many micro-batches as stages."""
    p, m, v = (np.asarray(x) for x in (p, m, v))
    return np.asarray((p >= 2) & (m >= 2 * p - 1) & (v == 2))


def folded_from_three(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    """Two chunks, three stages or more."""
    p, m, v = (np.asarray(x) for x in (p, m, v))
    return np.asarray((p >= 3) & (m >= p) & (v == 2))


def folded_from_four(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    """Two chunks, four stages or more."""
    p, m, v = (np.asarray(x) for x in (p, m, v))
    return np.asarray((p >= 4) & (m >= p) & (v == 2))


def even_both_ways(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    """Stages and micro-batches in pairs, twice as many micro-batches as stages."""
    p, m, v = (np.asarray(x) for x in (p, m, v))
    return np.asarray((p >= 2) & (p % 2 == 0) & (m % 2 == 0) & (m >= 2 * p) & (v == 1))


def folded_both_ways(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    """Two chunks, twice as many micro-batches as stages."""
    p, m, v = (np.asarray(x) for x in (p, m, v))
    return np.asarray((p >= 2) & (m >= 2 * p) & (v == 2))


def no_pairs(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Floats:
    """No pass runs beside one of the other direction."""
    return _spread(np.asarray(0), p, m, v)


def pairs_both_ways(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Floats:
    """DualPipe: all but ``3 p / 2 - 1`` micro-batches on the first and the last rank, which have the fewest."""
    p, m = np.asarray(p), np.asarray(m)
    return _spread(np.maximum(m - 3 * p // 2 + 1, 0), v)


def pairs_folded(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Floats:
    """DualPipe of 2 p ranks and 2 m micro-batches with half a stage each."""
    return pairs_both_ways(2 * np.asarray(p), 2 * np.asarray(m), v) / 2
