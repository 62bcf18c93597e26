"""How layers are split over stages: in slices of one layer per chunk, as evenly as they go.

A stage with v chunks takes its layers in slices of v, one layer a chunk, because interleaving assumes equal
chunks; where u layers are recomputed together, in slices of v u. Where one or two layers are missing to a multiple
of v, the head takes the place of a layer in the last chunk, and the embedding one in the first [Megatron:
--account-for-loss-in-pipeline-split and its like]. Where more are (a measured run may say so) a slice is one layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.arrays import Columns
from costmodels.layout.stage_contents import copies, folded, joined
from costmodels.strategy import Floats, Ints, Strategies

ENDS = ((0, 1), (1, 0), (1, 1))
"""Layers' places that the embedding and the head can take, some at least."""


@dataclass(frozen=True, slots=True)
class EvenSplit(Columns):
    """The even-as-possible split of every strategy, arrays (N,), in layers that one micro-batch passes.

    Stages hold ``low`` or ``high`` layers; the ones that are spared first are the last, then the first, which
    carry the head and the embedding, or the first alone where it carries both. Where stages hold two pieces
    that half of the micro-batches pass each, it is half the layers of the two. Where the head and the embedding
    take the place of layers, their stages hold fewer.
    """

    low: Floats
    high: Floats
    first: Floats
    last: Floats
    heaviest_at_least: Floats
    """Layers that the stage with the most has at least, whatever the split."""


def even_stages(num_layers: int, pp: int, vpp: int, *, joined_ends: bool = False) -> Ints:
    """Layers of every stage of the even split, shape (pp,), in slices of ``vpp``.

    Shorter stages come last, then first; with ``joined_ends`` the first is the first to be spared.
    """
    embedding, head = (0, 0) if joined_ends else usual_ends(num_layers, vpp)
    places = num_layers + embedding + head
    step = vpp if places % vpp == 0 else 1
    low, longer = divmod(places // step, pp)
    held = np.full(pp, low * step, dtype=np.int64)
    start = 1 if pp - longer >= (1 if joined_ends else 2) else 0
    held[start : start + longer] += step
    held[0] -= embedding
    held[-1] -= head
    return held


def places_of_ends(num_layers: int, vpp: Ints | np.int64) -> tuple[Ints, Ints]:
    """Layers whose places the embedding and the head take so that the chunks of all stages are equal, 0 or 1 each."""
    missing = np.mod(-num_layers, vpp)
    return np.where(missing == 2, 1, 0), np.where((missing == 1) | (missing == 2), 1, 0)


def ends_of_cut(layers: Sequence[int], vpp: int, *, counted: bool) -> tuple[int, int] | None:
    """Layers' places that the embedding and the head take where all stages make equal chunks of what they hold.

    Those of ``places_of_ends``; where ends may be ``counted``, also others that make all stages alike, as Megatron's
    switches for either end do. None where no such places make chunks equal.
    """
    usual = usual_ends(sum(layers), vpp)
    for ends in (usual, *(ENDS if counted else ())):
        places = places_of(layers, ends)
        if not (places % vpp).any() and (ends == usual or np.ptp(places) == 0):
            return ends
    return None


def odd_stage(layers: Sequence[int], vpp: int) -> int:
    """The first stage whose layers, with an end where one takes a layer's place, make no equal chunks."""
    return int(np.argmax(places_of(layers, usual_ends(sum(layers), vpp)) % vpp > 0))


def nearest_cut(layers: Sequence[int], vpp: int, step: int) -> list[int]:
    """The cut nearest to another that moves ``step`` layers at a time, a multiple of ``vpp``, shape (pp,).

    Every stage takes one slice, and each further one the stage that lacks most, of those the one that asked for least.
    """
    ends = usual_ends(sum(layers), vpp)
    wanted = places_of(layers, ends)
    held = np.full(len(wanted), step)
    for _ in range(int(wanted.sum() // step) - len(wanted)):
        held[np.lexsort((wanted, held - wanted))[0]] += step
    found: list[int] = (held - places_of(np.zeros_like(held), ends)).tolist()
    return found


def usual_ends(num_layers: int, vpp: int) -> tuple[int, int]:
    """``places_of_ends`` of one strategy."""
    embedding, head = places_of_ends(num_layers, np.int64(vpp))
    return int(embedding), int(head)


def places_of(layers: Sequence[int] | Ints, ends: tuple[int, int]) -> Ints:
    """Layers' places of every stage, with those that the embedding and the head take, shape (pp,)."""
    places = np.array(layers, dtype=np.int64)
    places[0] += ends[0]
    places[-1] += ends[1]
    return places


def end_places(num_layers: int, strategies: Strategies) -> tuple[Ints, Ints]:
    """``places_of_ends`` of every strategy, shape (N,) each; none where one stage holds both ends."""

    def find() -> tuple[Ints, Ints]:
        embedding, head = places_of_ends(num_layers, strategies.vpp)
        return np.where(joined(strategies), 0, embedding), np.where(joined(strategies), 0, head)

    return strategies.once(f"end places of {num_layers}", find)


def slice_layers(num_layers: int, strategies: Strategies) -> Ints:
    """Layers, or places of layers, that move together from stage to stage, shape (N,).

    As many of each chunk as are recomputed together.
    """
    embedding, head = end_places(num_layers, strategies)
    each = strategies.vpp * strategies.recompute_num_layers
    return np.where((num_layers + embedding + head) % each == 0, each, 1)


def even_layers(num_layers: int, strategies: Strategies) -> EvenSplit:
    """The even split of every strategy."""

    def gather() -> EvenSplit:
        few, inverse = strategies.distinct("schedule", "pp", "vpp", "recompute_num_layers")
        return _even_layers(num_layers, few).take(inverse)

    return strategies.once(("even split", num_layers), gather)


def _even_layers(num_layers: int, strategies: Strategies) -> EvenSplit:
    embedding, head = end_places(num_layers, strategies)
    step, held = slice_layers(num_layers, strategies), copies(strategies)
    slices = (num_layers + embedding + head) // step
    groups = np.maximum(strategies.pp / held, 1.0).astype(np.int64)
    low, longer = slices // groups * step / held, slices % groups
    high = low + step * (longer > 0) / held
    shorter = groups - longer
    first: Floats = np.where(shorter >= np.where(joined(strategies), 1, 2), low, high) - embedding
    last: Floats = np.where((shorter >= 1) & ~(folded(strategies) & (strategies.pp > 1)), low, high) - head
    last = np.where(held > 1, first, last)
    inner = (head == 0) | (strategies.pp > 2)
    return EvenSplit(
        low=low - head,
        high=np.where(inner, high, np.maximum(first, last)),
        first=first,
        last=last,
        heaviest_at_least=high - head,
    )


@dataclass(frozen=True, slots=True)
class Assignment:
    """Layers and recomputed layers of every stage, arrays (pp,)."""

    layers: Ints
    recomputed: Ints
