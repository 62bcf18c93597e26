"""Allocated bytes of the fullest stage under the even split, of many strategies at once."""

from __future__ import annotations

import numpy as np

from costmodels.layout.layers_by_kind import contents
from costmodels.layout.split import even_layers
from costmodels.layout.stage_contents import copies, ends, in_flight, in_flight_at
from costmodels.memory.rows import RowBytes
from costmodels.names import Recompute
from costmodels.strategy import Floats, Ints, Strategies


def _peaks_by_kind(strategies: Strategies, memory: RowBytes) -> Floats:
    """Allocated bytes of the worst stage under the even split where layers differ, shape (N,)."""
    assert memory.kinds is not None
    full = strategies.recompute >= Recompute.FULL
    stages = contents(strategies, memory.kinds.depth)
    held = in_flight(strategies, stages.stage) + memory.queued[:, None]
    kept = np.where(full, memory.checkpoint, memory.kinds.each("stored"))
    first, last = ends(strategies, stages.stage)
    twice = copies(strategies)[:, None]
    needed = twice * stages.total(memory.kind_states) + held * stages.total(kept)
    needed = needed + first * (memory.first[:, None] + held * memory.embedding_activation[:, None] / twice)
    needed = needed + last * memory.last[:, None] + np.where(full[:, None], memory.working_at(last), 0.0)
    return np.asarray(needed.max(axis=1) + memory.everywhere)


def _second(pp: Ints) -> Ints:
    return np.minimum(1, pp - 1)


def _last(pp: Ints) -> Ints:
    return pp - 1


def even_peaks(strategies: Strategies, memory: RowBytes, num_layers: int) -> Floats:
    """Allocated bytes of the worst stage under the even split of ``pricing.row_assignment``, shape (N,).

    The worst is the first, the second (most micro-batches in flight among the fuller ones) or the last.
    """
    if memory.kinds is not None:
        return _peaks_by_kind(strategies, memory)
    pp, split = strategies.pp, even_layers(num_layers, strategies)
    full = strategies.recompute >= Recompute.FULL
    kept = np.where(full, memory.checkpoint, memory.stored)
    twice = copies(strategies)
    state, at_first, at_last = twice * memory.layer_state, memory.first, memory.last
    second = state + (in_flight_at(strategies, _second) + memory.queued) * kept
    worst = np.where(pp > 2, split.high * second + full * memory.working, 0.0)
    for held, at in ((split.first, np.zeros_like), (split.last, _last)):
        count = in_flight_at(strategies, at) + memory.queued
        first, last = ends(strategies, at(pp))
        needed = held * (state + count * kept)
        needed = needed + first * (at_first + count * memory.embedding_activation / twice) + last * at_last
        worst = np.maximum(worst, needed + full * memory.working_at(last))
    return worst + memory.everywhere
