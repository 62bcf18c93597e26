"""Interleaved schedules: in which order a stage works through its chunks, from depth first to breadth first.

A stage with v chunks takes groups of g micro-batches through one chunk before the next. With g = p that is Megatron's
schedule, depth first; with g = m, and every forward pass before the first backward pass, it is breadth first.

Sources:
    [Narayanan21] D. Narayanan et al., SC 2021, section 2.2.2.
    [LamyPoirier22] J. Lamy-Poirier, "Breadth-First Pipeline Parallelism", arXiv 2211.05953, section 4.
    [megatron_core] Megatron-Core 0.10 and later, ``--microbatch-group-size-per-virtual-pipeline-stage``.
    [Qi23] P. Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241; PyTorch's ScheduleInterleavedZeroBubble.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from costmodels.arrays import Ints
from costmodels.pipeline.slots import Slot, alternate, looped
from costmodels.pipeline.zero_bubble import Orders, with_weight_passes


def breadth_first(m: int, v: int) -> list[Slot]:
    """All micro-batches through one chunk before the next, forward and then backward [LamyPoirier22]."""
    forward = [Slot("F", i, chunk) for chunk in range(v) for i in range(m)]
    return forward + [Slot("B", i, chunk) for chunk in reversed(range(v)) for i in range(m)]


def group_size(p: ArrayLike, m: ArrayLike) -> Ints:
    """The smallest group that Megatron-Core takes: of p micro-batches or more, and so is what is left at the end.

    p where it divides m; arrays broadcast. With m < p there is none, and the answer is p.
    """
    p, m = np.broadcast_arrays(np.asarray(p, dtype=np.int64), np.asarray(m, dtype=np.int64))
    least, count = p.ravel(), m.ravel()
    size, pending = least.copy(), np.arange(least.size)
    while len(pending):
        left = count[pending] % size[pending]
        pending = pending[(size[pending] < count[pending]) & (left != 0) & (left < least[pending])]
        size[pending] += 1
    return size.reshape(p.shape)


def grouped(p: int, m: int, v: int, stage: int, group: int) -> list[Slot]:
    """A group of micro-batches goes through every chunk in turn before the next, which may be smaller, starts.

    Of p micro-batches that is depth first [Narayanan21], of ``group_size(p, m)`` Megatron-Core's least [megatron_core].
    """
    return alternate(*_visits(m, v, group), warmup=(p - stage - 1) * 2 + (v - 1) * group)


def _visits(m: int, v: int, group: int) -> tuple[list[Slot], list[Slot]]:
    """Forward and backward passes of a stage, each in their own order."""
    starts = range(0, m, group)
    turns = [(i, chunk) for start in starts for chunk in range(v) for i in range(start, min(start + group, m))]
    return [Slot("F", i, chunk) for i, chunk in turns], [Slot("B", i, v - 1 - chunk) for i, chunk in turns]


@lru_cache(maxsize=32)
def zero_bubble(p: int, m: int, v: int) -> Orders:
    """Depth first with half the warm-up, and weight gradients where a stage would wait [Qi23]."""
    orders = [alternate(*_visits(m, v, p), warmup=p - stage - 1 + (v - 1) * p) for stage in range(p)]
    return with_weight_passes(orders, path=looped(p, v)[0], limit=v * p)
