"""How layers are split over stages: in slices of one layer per chunk, as evenly as they go.

A stage with v chunks takes its layers in slices of v, one layer a chunk, because interleaving assumes equal
chunks. Where the layers are no multiple of v (a measured run may say so) a slice is one layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.strategy import Ints, Strategies


@dataclass(frozen=True, slots=True)
class EvenSplit:
    """The even-as-possible split of every row, arrays (N,), in layers.

    Stages hold ``low`` or ``high`` layers; the ones that are spared first are the last, then the first, which
    carry the head and the embedding.
    """

    low: Ints
    high: Ints
    first: Ints
    last: Ints


def even_stages(num_layers: int, pp: int, vpp: int) -> Ints:
    """Layers of every stage of the even split, shape (pp,): shorter stages last, then first."""
    step = int(slice_layers(num_layers, np.int64(vpp)))
    low, longer = divmod(num_layers // step, pp)
    held = np.full(pp, low * step, dtype=np.int64)
    start = 1 if pp - longer >= 2 else 0
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
    slices = num_layers // step
    low, longer = slices // rows.pp * step, slices % rows.pp
    high = low + step * (longer > 0)
    spared = rows.pp - longer
    return EvenSplit(
        low=low,
        high=high,
        first=np.where(spared >= 2, low, high),
        last=np.where(spared >= 1, low, high),
    )
