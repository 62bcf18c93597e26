"""Costs of models whose layers differ along the depth: per kind of layer, and summed over what stages hold.

The stages of an even split differ then. Of each split a few stages can be the slowest, the fullest or the largest
(`Depth.contents`); rows are priced on those, without a loop over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodels.layer_kinds import Depth
from costmodels.schedules import SCHEDULES
from costmodels.slots import folded
from costmodels.strategy import SCHEDULE_NAMES, Bools, Floats, Ints, Strategies


@dataclass(frozen=True, slots=True)
class LayerTerms:
    """Seconds of one layer of a kind, arrays (N,); the fields are those of ``iteration.RowSeconds``."""

    layer: Floats
    forward: Floats
    backward: Floats
    layer_tp: Floats
    layer_cp: Floats
    layer_ep: Floats
    recompute: Floats
    weight: Floats
    selective: Floats
    layer_offload: Floats

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
    """Stages of the even split of every row that may be its worst, (N, D), and their layers by kind, (N, D, K)."""

    stage: Ints
    held: Ints
    last: Bools
    """Which of them are the last stage, (N, D)."""

    def total(self, each: Floats) -> Floats:
        """Sum over the layers of a stage of what ``each`` kind has, (K, N) to (N, D)."""
        return np.einsum("ndk,kn->nd", self.held, each)


def is_folded(rows: Strategies) -> Bools:
    """Whether the second chunk of a stage runs back up the stages, shape (N,)."""
    known = [code for code, name in enumerate(SCHEDULE_NAMES) if SCHEDULES[name].paths is folded]
    return np.isin(rows.schedule, known)


def contents(rows: Strategies, depth: Depth) -> Contents:
    """What the stages of even splits hold, as far as a worst stage may be among them."""
    return rows.once(f"contents of {depth.name}", lambda: _contents(rows, depth))


def _contents(rows: Strategies, depth: Depth) -> Contents:
    some, place = rows.distinct("pp", "vpp", "schedule")
    ways = zip(some.pp.tolist(), some.vpp.tolist(), is_folded(some).tolist(), strict=True)
    found = [depth.contents(pp, vpp, folded=back) for pp, vpp, back in ways]
    width = max((len(each.stage) for each in found), default=1)
    stage = np.array([_padded(each.stage, width) for each in found])
    held = np.array([_padded(each.held, width) for each in found])
    return Contents(stage[place], held[place], (stage == some.pp[:, None] - 1)[place])


def _padded(array: Ints, width: int) -> Ints:
    """The first row repeated at the end, up to ``width`` rows."""
    return array[np.where(np.arange(width) < len(array), np.arange(width), 0)]


def stage_layers(one: Strategies, depth: Depth, layers: Ints, recomputed: Ints) -> tuple[Ints, Ints]:
    """Layers and recomputed layers of every stage of one row by kind, shapes (pp, K): recomputed are its first."""
    vpp, back = int(one.vpp[0]), bool(is_folded(one)[0])
    return depth.held(layers, vpp, folded=back), depth.held(layers, vpp, folded=back, only=recomputed)


def fullest_window(rows: Strategies, depth: Depth, each: Floats) -> Floats:
    """Least that a stage with the most slices can sum to, (K, N) to (N,): some stage of any split has so many."""
    some, place = rows.distinct("pp", "vpp", "schedule")
    ways = zip(some.pp.tolist(), some.vpp.tolist(), is_folded(some).tolist(), strict=True)
    found = [depth.lightest(pp, vpp, folded=back) for pp, vpp, back in ways]
    width = max((len(each) for each in found), default=1)
    held = np.array([_padded(each, width) for each in found])
    return np.asarray(np.einsum("ndk,kn->nd", held[place], each).min(axis=1))
