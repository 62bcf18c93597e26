"""Kinds of layer along the depth of a model: what mixes the tokens, and which feed-forward part follows.

A classic layer is a pair of both; a hybrid model's layer is often one of the two alone. Letters of a pattern are
those of Megatron-Core's ``hybrid_layer_pattern`` (``hybrid_override_pattern`` in Hugging Face configurations).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from costmodels.arrays import Floats, Ints

if TYPE_CHECKING:
    from costmodels.model.model import Model

Derived = TypeVar("Derived")
MixerName = Literal[
    "global",
    "local",
    "sparse",
    "selected",
    "compressed",
    "compressed_sparse",
    "both",
    "both_selective",
    "mamba",
    "selective",
    "delta",
    "linear",
    "convolution",
    "recurrent",
    "receptance",
    "none",
]
ATTENTION = ("global", "local", "sparse", "selected", "compressed", "compressed_sparse")
"""Mixers that are attention alone."""
BOTH = {"both": "mamba", "both_selective": "selective"}
"""Mixers that are attention and another one in parallel."""


class Kind(NamedTuple):
    """One kind of layer."""

    mixer: MixerName
    """Attention over the whole sequence, within the sliding window or with the keys that an indexer selects, another
    mixer, attention parallel to a Mamba-2 mixer, or nothing."""
    ffn: Literal["dense", "experts", "none"]
    variant: int = 0
    """Which sizes it has: those of the model, or of its variant of that number."""

    @property
    def attends(self) -> bool:
        """Whether it has attention."""
        return self.mixer in (*ATTENTION, *BOTH)

    @property
    def other_mixer(self) -> str:
        """The mixer that it has instead of attention, or parallel to it; empty without one."""
        attention = dict.fromkeys((*ATTENTION, "none"), "")
        return {**attention, **BOTH}.get(self.mixer, self.mixer)

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
"""Letters of a pattern whose layers are one part each."""
MIXER_LETTERS: dict[str, MixerName] = {
    "*": "global",
    "w": "local",
    "s": "sparse",
    "t": "selected",
    "c": "compressed",
    "x": "compressed_sparse",
    "B": "both",
    "P": "both_selective",
    "M": "mamba",
    "S": "selective",
    "D": "delta",
    "L": "linear",
    "C": "convolution",
    "R": "recurrent",
    "W": "receptance",
    "n": "none",
}
"""Letters of ``mixer_pattern``."""
FFN_LETTERS: dict[str, Literal["dense", "experts", "none"]] = {"-": "dense", "E": "experts", "n": "none"}
"""Letters of ``ffn_pattern``."""


@lru_cache(maxsize=64)
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
    return Kind(
        _mixer(model, layer, near=near, windowed=windowed),
        _ffn(model, layer),
        model.variant_pattern[layer] if model.variant_pattern else 0,
    )


def _mixer(model: Model, layer: int, *, near: bool, windowed: bool) -> MixerName:
    if not model.mixer_pattern:
        return "local" if near else "global"
    named = MIXER_LETTERS[model.mixer_pattern[layer]]
    return "global" if named == "local" and not windowed else named


def _ffn(model: Model, layer: int) -> Literal["dense", "experts", "none"]:
    if model.ffn_pattern:
        return FFN_LETTERS[model.ffn_pattern[layer]]
    return "experts" if model.moe is not None and model.moe.is_moe_layer(layer) else "dense"


def reach_of(model: Model, kind: Kind) -> int | None:
    """Tokens that a layer attends to at the most: its window, or what its indexer selects; None is all of them.

    Compressed keys come in addition to the window.
    """
    if kind.mixer in ("sparse", "selected") and model.indexer is not None:
        return model.indexer.top_k
    return model.sliding_window if kind.mixer in ("local", "compressed", "compressed_sparse") else None


def mtp_kind(model: Model) -> Kind:
    """The kind of a layer that predicts further tokens: attention and the feed-forward network of the last layers."""
    return DENSE if model.moe is None else EXPERTS


@dataclass(frozen=True, eq=False)
class Depth:
    """The layers of a model in order, by kind."""

    kinds: tuple[Kind, ...]
    """The distinct ones, in order of appearance."""
    layers: Ints
    """Index into ``kinds`` of every layer, shape (L,)."""
    _known: dict[object, Any] = field(default_factory=dict, init=False, repr=False)
    """What has been derived from it, by name."""

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

    def once(self, name: object, derive: Callable[[], Derived]) -> Derived:
        """What ``derive`` makes of this depth, made once."""
        if name not in self._known:
            self._known[name] = derive()
        known: Derived = self._known[name]
        return known

    def average(self, each: Callable[[Kind], Floats]) -> Floats:
        """A quantity of an average layer from that ``each`` kind has, shape (N,)."""
        if self.uniform:
            return each(self.kinds[0])
        return np.asarray(sum(share * each(kind) for share, kind in zip(self.shares, self.kinds, strict=True)))


def depth_of(model: Model, seq_length: int) -> Depth:
    """The depth of a model that is trained at ``seq_length`` tokens."""
    kinds = layer_kinds(model, seq_length)
    distinct = tuple(dict.fromkeys(kinds))
    return Depth(distinct, np.array([distinct.index(kind) for kind in kinds], dtype=np.int64))
