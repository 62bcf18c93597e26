"""Kinds of layer along the depth of a model: what mixes the tokens, and which feed-forward part follows.

A classic layer is a pair of both; a hybrid model's layer is often one of the two alone. Letters of a pattern are
those of Megatron-Core's ``hybrid_layer_pattern`` (``hybrid_override_pattern`` in Hugging Face configurations).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from costmodels.layout.split import even_stages, places_of_ends
from costmodels.strategy import Floats, Ints

if TYPE_CHECKING:
    from costmodels.model.model import Model


class Kind(NamedTuple):
    """One kind of layer."""

    mixer: Literal["global", "local", "mamba", "none"]
    """Attention over the whole sequence or within the sliding window, a Mamba-2 mixer, or nothing."""
    ffn: Literal["dense", "experts", "none"]

    @property
    def attends(self) -> bool:
        """Whether it has attention."""
        return self.mixer in ("global", "local")

    @property
    def parts(self) -> int:
        """Residual branches: 2 of a classic layer, 1 of a mixer or a feed-forward network alone."""
        return int(self.mixer != "none") + int(self.ffn != "none")


DENSE = Kind("global", "dense")
EXPERTS = Kind("global", "experts")
LETTERS: dict[str, Kind] = {
    "M": Kind("mamba", "none"),
    "*": Kind("global", "none"),
    "-": Kind("none", "dense"),
    "E": Kind("none", "experts"),
}
"""Letters of a pattern."""


def layer_kinds(model: Model, seq_length: int | None = None) -> tuple[Kind, ...]:
    """The kind of every layer, first to last; a window no shorter than ``seq_length`` is no window."""
    window = model.sliding_window
    windowed = window is not None and (seq_length is None or window < seq_length)
    return tuple(_kind(model, layer, windowed=windowed) for layer in range(model.num_layers))


def _kind(model: Model, layer: int, *, windowed: bool) -> Kind:
    every = model.sliding_window_every
    near = windowed and (every is None or (layer + 1) % every != 0)
    if model.layer_pattern:
        kind = LETTERS[model.layer_pattern[layer]]
        return kind._replace(mixer="local") if near and kind.attends else kind
    experts = model.moe is not None and model.moe.is_moe_layer(layer)
    return Kind("local" if near else "global", "experts" if experts else "dense")


def ahead_kind(model: Model) -> Kind:
    """The kind of a layer that predicts further tokens: attention and the feed-forward network of the last layers."""
    return DENSE if model.moe is None else EXPERTS


@dataclass(frozen=True, eq=False)
class Depth:
    """The layers of a model in order, by kind."""

    kinds: tuple[Kind, ...]
    """The distinct ones, in order of appearance."""
    layers: Ints
    """Index into ``kinds`` of every layer, shape (L,)."""
    known: dict[tuple[int, int, bool], StageContents] = field(default_factory=dict, repr=False)
    light: dict[tuple[int, int, bool], Ints] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The kinds and their order as one word."""
        return f"{self.kinds} {''.join(map(str, self.layers.tolist()))}"

    @property
    def uniform(self) -> bool:
        """Whether all layers are alike."""
        return len(self.kinds) == 1

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of the depth that each kind has."""
        return tuple((np.bincount(self.layers, minlength=len(self.kinds)) / len(self.layers)).tolist())

    def average(self, each: Callable[[Kind], Floats]) -> Floats:
        """A quantity of an average layer from that ``each`` kind has, shape (N,)."""
        if self.uniform:
            return each(self.kinds[0])
        return np.asarray(sum(share * each(kind) for share, kind in zip(self.shares, self.kinds, strict=True)))

    def slices(self, vpp: int, *, folded: bool = False) -> Ints:
        """Layers of each kind in each slice that moves as one, shape (S, K).

        Slice a has layer a of every chunk: a, L/v + a, ...; folded over two chunks it is a and L - 1 - a. The embedding
        and the head count as layers where that makes L a multiple of v; where nothing does a slice is one layer.
        """
        return np.diff(self._before(vpp, folded=folded)[:: self._chunks(vpp, folded=folded)], axis=0)

    def _ends(self, vpp: int, *, folded: bool) -> tuple[int, int]:
        """Layers' places that the embedding and the head take."""
        if folded:
            return 0, 0
        embedding, head = places_of_ends(len(self.layers), np.int64(vpp))
        return int(embedding), int(head)

    def _chunks(self, vpp: int, *, folded: bool) -> int:
        """Layers, or places of them, that make a slice."""
        return vpp if (len(self.layers) + sum(self._ends(vpp, folded=folded))) % vpp == 0 else 1

    def _before(self, vpp: int, *, folded: bool) -> Ints:
        """Layers of each kind in front of every layer's place, slice by slice, shape (L + 1, K) or more."""
        embedding, head = self._ends(vpp, folded=folded)
        chunks = self._chunks(vpp, folded=folded)
        placed = np.concatenate([[-1] * embedding, self.layers, [-1] * head]).astype(np.int64).reshape(chunks, -1)
        if folded and chunks == 2:
            placed = np.stack([placed[0], placed[1][::-1]])
        each = placed.T.reshape(-1, 1) == np.arange(len(self.kinds))
        return np.concatenate([np.zeros((1, len(self.kinds)), np.int64), each.cumsum(axis=0)])

    def held(self, layers: Ints, vpp: int, *, folded: bool = False, only: Ints | None = None) -> Ints:
        """Layers of each kind on every stage, shape (p, K).

        Args:
            layers: Layers of every stage, shape (p,).
            vpp: Chunks of a stage.
            folded: Whether the second chunk runs back up the stages.
            only: Count only so many layers of each stage, the first of its first slices.
        """
        embedding, head = self._ends(vpp, folded=folded)
        places = layers.copy()
        places[0] += embedding
        places[-1] += head
        before, ends = self._before(vpp, folded=folded), np.cumsum(places)
        if only is None:
            return before[ends] - before[ends - places]
        passed = only.copy()
        passed[0] += embedding
        return before[ends - places + passed] - before[ends - places]

    def contents(self, pp: int, vpp: int, *, folded: bool) -> StageContents:
        """Every stage of the even split that may be the slowest, the fullest or the largest."""
        key = (pp, vpp, folded)
        if key not in self.known:
            layers = even_stages(len(self.layers), pp, vpp, joined_ends=folded)
            held = self.held(layers, vpp, folded=folded)
            self.known[key] = _leading(held)
        return self.known[key]

    def lightest(self, pp: int, vpp: int, *, folded: bool) -> Ints:
        """Layers of each kind in runs of ceil(S / p) slices, those that no other run has less of every kind than."""
        key = (pp, vpp, folded)
        if key not in self.light:
            slices = self.slices(vpp, folded=folded)
            length = -(-len(slices) // pp)
            before = np.concatenate([np.zeros((1, len(self.kinds)), np.int64), slices.cumsum(axis=0)])
            runs = np.unique(before[length:] - before[:-length], axis=0)
            under = (runs[:, None, :] >= runs[None, :, :]).all(axis=2).sum(axis=1)
            self.light[key] = runs[under == 1]
        return self.light[key]


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
    stages = np.unique([0, *kept, last]).astype(np.int64)
    return StageContents(stages, held[stages])


def depth_of(model: Model, seq_length: int) -> Depth:
    """The depth of a model that is trained at ``seq_length`` tokens."""
    kinds = layer_kinds(model, seq_length)
    distinct = tuple(dict.fromkeys(kinds))
    return Depth(distinct, np.array([distinct.index(kind) for kind in kinds], dtype=np.int64))
