"""How layers are split over stages: in slices of one layer per chunk, as evenly as they go.

A stage with v chunks takes its layers in slices of v, one layer a chunk, because interleaving assumes equal
chunks. Where the layers are no multiple of v (a measured run may say so) a slice is one layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.pieces import copies, folded, joined
from costmodels.strategy import Floats, Ints, Strategies


@dataclass(frozen=True, slots=True)
class EvenSplit:
    """The even-as-possible split of every row, arrays (N,), in layers that one micro-batch passes.

    Stages hold ``low`` or ``high`` layers; the ones that are spared first are the last, then the first, which
    carry the head and the embedding, or the first alone where it carries both. Where stages hold two pieces
    that half of the micro-batches pass each, it is half the layers of the two.
    """

    low: Floats
    high: Floats
    first: Floats
    last: Floats


def even_stages(num_layers: int, pp: int, vpp: int, *, joined_ends: bool = False) -> Ints:
    """Layers of every stage of the even split, shape (pp,).

    Shorter stages come last, then first; with ``joined_ends`` the first is the first to be spared.
    """
    step = int(slice_layers(num_layers, np.int64(vpp)))
    low, longer = divmod(num_layers // step, pp)
    held = np.full(pp, low * step, dtype=np.int64)
    start = 1 if pp - longer >= (1 if joined_ends else 2) else 0
    held[start : start + longer] += step
    return held


def slice_layers(num_layers: int, vpp: Ints | np.int64) -> Ints:
    """Layers that move together from stage to stage, shape (N,)."""
    return np.where(num_layers % vpp == 0, vpp, 1)


def even_layers(num_layers: int, rows: Strategies) -> EvenSplit:
    """The even split of every row."""
    return rows.once(f"even split of {num_layers}", lambda: _even_layers(num_layers, rows))


def _even_layers(num_layers: int, rows: Strategies) -> EvenSplit:
    step = slice_layers(num_layers, rows.vpp)
    slices, held = num_layers // step, copies(rows)
    groups = np.maximum(rows.pp / held, 1.0).astype(np.int64)
    low, longer = slices // groups * step / held, slices % groups
    high = low + step * (longer > 0) / held
    spared = groups - longer
    first = np.where(spared >= np.where(joined(rows), 1, 2), low, high)
    last = np.where((spared >= 1) & ~(folded(rows) & (rows.pp > 1)), low, high)
    return EvenSplit(low=low, high=high, first=first, last=np.where(held > 1, first, last))
