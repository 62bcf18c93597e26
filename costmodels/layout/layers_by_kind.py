"""Models whose layers differ along the depth: layers of each kind on every stage, and records of each kind.

The stages of an even split differ then. Of each split a few stages can be the slowest, the fullest or the largest
(`leading_stages`); strategies are priced on those, without a loop over them. Where stages mirror each other
(``stage_contents.copies``), every layer counts as an average one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodels.arrays import distinct_values
from costmodels.layout.split import even_layers, even_stages, places_of, usual_ends
from costmodels.layout.stage_contents import copies, folded, of_both_ways
from costmodels.model.layer_kinds import Depth
from costmodels.strategy import Floats, Ints, Strategies, narrow


class Part(Protocol):
    """Arrays (N,) of one layer."""

    def take(self, chosen: NDArray[Any]) -> Self:
        """The chosen strategies (an index or mask)."""
        ...


P = TypeVar("P", bound=Part)


@dataclass(frozen=True, slots=True)
class ByKind(Generic[P]):
    """One record for each of the model's kinds of layer."""

    depth: Depth
    parts: tuple[P, ...]

    def take(self, chosen: NDArray[Any]) -> ByKind[P]:
        """The chosen strategies (an index or mask)."""
        return ByKind(self.depth, tuple(part.take(chosen) for part in self.parts))

    def each(self, name: str) -> Floats:
        """One field of all kinds, shape (K, N)."""
        return np.array([getattr(part, name) for part in self.parts])


class Contents(NamedTuple):
    """Stages of the even split of every strategy that may be its worst, (N, D), and their layers by kind, (N, D, K).

    Layers are those that one micro-batch passes.
    """

    stage: Ints
    held: Floats

    def total(self, each: Floats) -> Floats:
        """Sum over the layers of a stage of what ``each`` kind has, (K, N) to (N, D)."""
        return np.einsum("ndk,kn->nd", self.held, each)


def contents(strategies: Strategies, depth: Depth) -> Contents:
    """What the stages of even splits hold, as far as a worst stage may be among them."""
    return strategies.once(f"contents of {depth.name}", lambda: _contents(strategies, depth))


def _contents(strategies: Strategies, depth: Depth) -> Contents:
    some, place = strategies.distinct("pp", "vpp", "schedule")
    ways = zip(some.pp.tolist(), some.vpp.tolist(), folded(some).tolist(), strict=True)
    found = [leading_stages(depth, pp, vpp, folded=back) for pp, vpp, back in ways]
    width = max((len(each.stage) for each in found), default=1)
    if (copies(some) > 1).any():
        width = max(width, len(_PLACES))
    stage = np.array([_padded(each.stage, width) for each in found], dtype=np.int64).reshape(-1, width)
    held = np.array([_padded(each.held, width) for each in found], dtype=np.float64)
    held = held.reshape(-1, width, len(depth.kinds))
    for at in np.flatnonzero(copies(some) > 1).tolist():
        stage[at], held[at] = _averaged(some.take(np.array([at])), depth, width)
    return Contents(stage[place], held[place])


_PLACES = ("first", "high", "last")
"""Stages of an even split of layers that are alike; ``high`` is the second where there are more than two."""


def _averaged(strategy: Strategies, depth: Depth, width: int) -> tuple[Ints, Floats]:
    """Stages of one strategy and their layers, each layer an average one, (D,) and (D, K)."""
    split, last = even_layers(len(depth.layers), strategy), int(strategy.pp[0]) - 1
    stage = np.array([0, min(1, last), last])
    layers = np.array([getattr(split, place)[0] for place in _PLACES])
    if last <= 1:  # the first two are the same pair of pieces
        layers[1] = layers[0]
    return _padded(stage, width), _padded(layers[:, None] * np.array(depth.shares), width)


def _padded(array: NDArray[Any], width: int) -> NDArray[Any]:
    """The first item repeated at the end, up to ``width`` items."""
    return array[np.where(np.arange(width) < len(array), np.arange(width), 0)]


def stage_layers(
    strategies: Strategies, depth: Depth, layers: Ints, recomputed: Ints, *, row: int = 0
) -> tuple[Floats, Floats]:
    """Layers and recomputed layers that a micro-batch passes on every stage of a strategy, by kind, shapes (pp, K).

    Recomputed are a stage's first. Of stages that mirror each other, the layers count as average ones.
    """
    twice = float(copies(strategies)[row])
    if twice > 1.0 or depth.uniform:
        passed, again = (of_both_ways(held, twice)[:, None] * np.array(depth.shares) for held in (layers, recomputed))
        return passed, again
    vpp, back = int(strategies.vpp[row]), bool(folded(strategies)[row])
    held = kinds_held(depth, layers, vpp, folded=back)
    again = kinds_held(depth, layers, vpp, folded=back, only=recomputed)
    return held.astype(np.float64), again.astype(np.float64)


def heaviest_at_least(strategies: Strategies, depth: Depth, each: Floats) -> Floats:
    """Least that a stage with the most slices can sum to, (K, N) to (N,): some stage of any split has so many."""
    some, parts = strategies.once("by stages", lambda: _by_stages(strategies))
    found = np.empty(len(strategies))
    for way, part in zip(range(len(some)), parts, strict=False):  # of no strategies one part is left, of none
        found[part] = (_windows(some.take(np.array([way])), depth) @ each.take(part, axis=1)).min(axis=0)
    return found


def _by_stages(strategies: Strategies) -> tuple[Strategies, list[Ints]]:
    """The distinct stages and slices, one strategy each, and the strategies that have each."""
    some, place = strategies.distinct("pp", "vpp", "schedule")
    order = np.argsort(narrow(place), kind="stable")  # in linear time as it is narrow
    return some, np.split(order, np.bincount(place, minlength=len(some)).cumsum()[:-1])


def _windows(strategy: Strategies, depth: Depth) -> Floats:
    """Layers by kind of the stages of one strategy that may be the lightest with the most slices, (D, K)."""
    if (copies(strategy) > 1).all():
        return even_layers(len(depth.layers), strategy).high[:, None] * np.array(depth.shares)
    return np.asarray(
        lightest_runs(depth, int(strategy.pp[0]), int(strategy.vpp[0]), folded=bool(folded(strategy)[0])),
        dtype=np.float64,
    )


def kind_slices(depth: Depth, vpp: int, *, folded: bool = False) -> Ints:
    """Layers of each kind in each slice that moves as one, shape (S, K).

    Slice a has layer a of every chunk: a, L/v + a, ...; folded over two chunks it is a and L - 1 - a. The embedding
    and the head count as layers where that makes L a multiple of v; where nothing does a slice is one layer.
    """
    return np.diff(_kinds_before(depth, vpp, folded=folded)[:: _chunks(depth, vpp, folded=folded)], axis=0)


def _end_places(depth: Depth, vpp: int, *, folded: bool) -> tuple[int, int]:
    """Layers' places that the embedding and the head take."""
    return (0, 0) if folded else usual_ends(len(depth.layers), vpp)


def _chunks(depth: Depth, vpp: int, *, folded: bool) -> int:
    """Layers, or places of them, that make a slice."""
    return vpp if (len(depth.layers) + sum(_end_places(depth, vpp, folded=folded))) % vpp == 0 else 1


def _kinds_before(depth: Depth, vpp: int, *, folded: bool) -> Ints:
    """Layers of each kind in front of every layer's place, slice by slice, shape (L + 1, K) or more."""
    embedding, head = _end_places(depth, vpp, folded=folded)
    chunks = _chunks(depth, vpp, folded=folded)
    placed = np.concatenate([[-1] * embedding, depth.layers, [-1] * head]).astype(np.int64).reshape(chunks, -1)
    if folded and chunks == 2:
        placed = np.stack([placed[0], placed[1][::-1]])
    each = placed.T.reshape(-1, 1) == np.arange(len(depth.kinds))
    return np.concatenate([np.zeros((1, len(depth.kinds)), np.int64), each.cumsum(axis=0)])


def kinds_held(depth: Depth, layers: Ints, vpp: int, *, folded: bool = False, only: Ints | None = None) -> Ints:
    """Layers of each kind on every stage, shape (p, K).

    Args:
        depth: The model's layers by kind.
        layers: Layers of every stage, shape (p,).
        vpp: Chunks of a stage.
        folded: Whether the second chunk runs back up the stages.
        only: Count only so many layers of each stage, the first of its first slices.
    """
    embedding, head = _end_places(depth, vpp, folded=folded)
    places = places_of(layers, (embedding, head))
    before, starts = _kinds_before(depth, vpp, folded=folded), np.cumsum(places) - places
    passed = places if only is None else places_of(only, (embedding, 0))
    return before[starts + passed] - before[starts]


def leading_stages(depth: Depth, pp: int, vpp: int, *, folded: bool) -> StageContents:
    """Every stage of the even split that may be the slowest, the fullest or the largest."""

    def find() -> StageContents:
        layers = even_stages(len(depth.layers), pp, vpp, joined_ends=folded)
        return _leading(kinds_held(depth, layers, vpp, folded=folded))

    return depth.once(("leading", pp, vpp, folded), find)


def lightest_runs(depth: Depth, pp: int, vpp: int, *, folded: bool) -> Ints:
    """Layers of each kind in runs of ceil(S / p) slices, those that no other run has less of every kind than."""
    return depth.once(("lightest", pp, vpp, folded), lambda: _lightest_runs(depth, pp, vpp, folded=folded))


def _lightest_runs(depth: Depth, pp: int, vpp: int, *, folded: bool) -> Ints:
    slices = kind_slices(depth, vpp, folded=folded)
    length = -(-len(slices) // pp)
    before = np.concatenate([np.zeros((1, len(depth.kinds)), np.int64), slices.cumsum(axis=0)])
    runs = distinct_values(before[length:] - before[:-length], axis=0)
    under = (runs[:, None, :] >= runs[None, :, :]).all(axis=2).sum(axis=1)
    return runs[under == 1]


class StageContents(NamedTuple):
    """Some stages of a split: which, and their layers of each kind, shapes (D,) and (D, K)."""

    stage: Ints
    held: Ints


def _leading(held: Ints) -> StageContents:
    """The first and last stage, and every other that holds more of some kind than each inner stage before it.

    Costs grow with every kind, and an earlier stage never has fewer micro-batches in flight, so that one that
    holds as much of every kind as a later one outweighs it.
    """
    last = len(held) - 1
    kept: list[int] = []
    for stage in range(1, last):
        if not any((held[earlier] >= held[stage]).all() for earlier in kept):
            kept.append(stage)
    stages = distinct_values([0, *kept, last]).astype(np.int64)
    return StageContents(stages, held[stages])
