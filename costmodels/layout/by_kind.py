"""Costs of models whose layers differ along the depth: per kind of layer, and summed over what stages hold.

The stages of an even split differ then. Of each split a few stages can be the slowest, the fullest or the largest
(`Depth.contents`); rows are priced on those, without a loop over rows. Where stages mirror each other
(``pieces.copies``), every layer counts as an average one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodels.layer.passes import Passes
from costmodels.layout.pieces import copies, folded, of_both_ways
from costmodels.layout.split import even_layers
from costmodels.model.layer_kinds import Depth
from costmodels.strategy import Floats, Ints, Strategies


class Windows:
    """The computation of a layer that hides traffic, pass by pass, of whatever holds its five terms."""

    __slots__ = ()
    forward_window: Floats
    backward_window: Floats
    repeated_window: Floats
    paired_forward: Floats
    paired_backward: Floats

    @property
    def window(self) -> Passes:
        """The computation of one layer that data-parallel traffic can hide behind."""
        return Passes(self.forward_window, self.backward_window)

    @property
    def repeating_window(self) -> Passes:
        """The same of what travels in every micro-batch, which hides behind what its backward pass repeats too."""
        return Passes(self.forward_window, self.backward_window + self.repeated_window)

    @property
    def paired(self) -> Passes:
        """What of it traffic of other micro-batches' experts runs beside."""
        return Passes(self.paired_forward, self.paired_backward)


@dataclass(frozen=True, slots=True)
class LayerTerms(Windows):
    """Seconds of one layer of a kind, arrays (N,); the fields are those of ``iteration.RowSeconds``."""

    layer: Floats
    forward: Floats
    backward: Floats
    layer_tp: Floats
    layer_cp: Floats
    layer_ep: Floats
    layer_alone: Floats
    layer_launch: Floats
    recompute: Floats
    checkpointing: Floats
    weight: Floats
    selective: Floats
    layer_offload: Floats
    forward_window: Floats
    backward_window: Floats
    repeated_window: Floats
    paired_forward: Floats
    paired_backward: Floats

    def take(self, rows: NDArray[Any]) -> LayerTerms:
        """The given rows (an index or mask)."""
        return LayerTerms(*(getattr(self, field.name)[rows] for field in fields(self)))


def mean_terms(terms: Sequence[LayerTerms], shares: Sequence[float]) -> LayerTerms:
    """An average layer: every kind by its share of the depth."""
    if len(terms) == 1:
        return terms[0]
    names = [field.name for field in fields(LayerTerms)]
    return LayerTerms(*(np.dot(shares, [getattr(term, name) for term in terms]) for name in names))


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """Bytes and parameters of one layer of a kind, arrays (N,); the fields are those of ``memory.RowBytes``."""

    layer_parameters: Floats
    expert_parameters: Floats
    stored: Floats

    def take(self, rows: NDArray[Any]) -> LayerBytes:
        """The given rows (an index or mask)."""
        return LayerBytes(*(getattr(self, field.name)[rows] for field in fields(self)))


Part = TypeVar("Part", LayerTerms, LayerBytes)


@dataclass(frozen=True, slots=True)
class ByKind(Generic[Part]):
    """One record for each of the model's kinds of layer."""

    depth: Depth
    parts: tuple[Part, ...]

    def take(self, rows: NDArray[Any]) -> ByKind[Part]:
        """The given rows (an index or mask)."""
        return ByKind(self.depth, tuple(part.take(rows) for part in self.parts))

    def each(self, name: str) -> Floats:
        """One field of all kinds, shape (K, N)."""
        return np.array([getattr(part, name) for part in self.parts])


class Contents(NamedTuple):
    """Stages of the even split of every row that may be its worst, (N, D), and their layers by kind, (N, D, K).

    Layers are those that one micro-batch passes.
    """

    stage: Ints
    held: Floats

    def total(self, each: Floats) -> Floats:
        """Sum over the layers of a stage of what ``each`` kind has, (K, N) to (N, D)."""
        return np.einsum("ndk,kn->nd", self.held, each)


def contents(rows: Strategies, depth: Depth) -> Contents:
    """What the stages of even splits hold, as far as a worst stage may be among them."""
    return rows.once(f"contents of {depth.name}", lambda: _contents(rows, depth))


def _contents(rows: Strategies, depth: Depth) -> Contents:
    some, place = rows.distinct("pp", "vpp", "schedule")
    ways = zip(some.pp.tolist(), some.vpp.tolist(), folded(some).tolist(), strict=True)
    found = [depth.contents(pp, vpp, folded=back) for pp, vpp, back in ways]
    width = max((len(each.stage) for each in found), default=1)
    if (copies(some) > 1).any():
        width = max(width, len(_PLACES))
    stage = np.array([_padded(each.stage, width) for each in found], dtype=np.int64).reshape(-1, width)
    held = np.array([_padded(each.held, width) for each in found], dtype=np.float64)
    held = held.reshape(-1, width, len(depth.kinds))
    for row in np.flatnonzero(copies(some) > 1).tolist():
        stage[row], held[row] = _averaged(some.take(np.array([row])), depth, width)
    return Contents(stage[place], held[place])


_PLACES = ("first", "high", "last")
"""Stages of an even split of layers that are alike; ``high`` is the second where there are more than two."""


def _averaged(one: Strategies, depth: Depth, width: int) -> tuple[Ints, Floats]:
    """Stages of one row and their layers, each layer an average one, (D,) and (D, K)."""
    split, last = even_layers(len(depth.layers), one), int(one.pp[0]) - 1
    stage = np.array([0, min(1, last), last])
    layers = np.array([getattr(split, place)[0] for place in _PLACES])
    if last <= 1:  # the first two are the same pair of pieces
        layers[1] = layers[0]
    return _padded(stage, width), _padded(layers[:, None] * np.array(depth.shares), width)


def _padded(array: NDArray[Any], width: int) -> NDArray[Any]:
    """The first row repeated at the end, up to ``width`` rows."""
    return array[np.where(np.arange(width) < len(array), np.arange(width), 0)]


def stage_layers(one: Strategies, depth: Depth, layers: Ints, recomputed: Ints) -> tuple[Floats, Floats]:
    """Layers and recomputed layers that a micro-batch passes on every stage of one row, by kind, shapes (pp, K).

    Recomputed are a stage's first. Of stages that mirror each other, the layers count as average ones.
    """
    vpp, back, twice = int(one.vpp[0]), bool(folded(one)[0]), float(copies(one)[0])
    if twice > 1.0:
        passed, again = (of_both_ways(held, twice)[:, None] * np.array(depth.shares) for held in (layers, recomputed))
        return passed, again
    held = depth.held(layers, vpp, folded=back)
    again = depth.held(layers, vpp, folded=back, only=recomputed)
    return held.astype(np.float64), again.astype(np.float64)


def fullest_window(rows: Strategies, depth: Depth, each: Floats) -> Floats:
    """Least that a stage with the most slices can sum to, (K, N) to (N,): some stage of any split has so many."""
    some, place = rows.distinct("pp", "vpp", "schedule")
    order = np.argsort(place, kind="stable")
    ends = np.bincount(place, minlength=len(some)).cumsum()
    found = np.empty(len(rows))
    for way, part in zip(range(len(some)), np.split(order, ends[:-1]), strict=False):
        found[part] = (_windows(some.take(np.array([way])), depth) @ each[:, part]).min(axis=0)
    return found


def _windows(one: Strategies, depth: Depth) -> Floats:
    """Layers by kind of the stages of one row that may be the lightest with the most slices, (D, K)."""
    if (copies(one) > 1).all():
        return even_layers(len(depth.layers), one).high[:, None] * np.array(depth.shares)
    return np.asarray(depth.lightest(int(one.pp[0]), int(one.vpp[0]), folded=bool(folded(one)[0])), dtype=np.float64)
