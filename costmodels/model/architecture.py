"""A decoder, part by part: `sizes`, `attention` and `networks` have the parts that every model has.

`costmodels.model.model` checks that they agree. Kinds of layer and mixers other than attention are here.
"""

from typing import Annotated, Self

from pydantic import Field

from costmodels.model.attention import Attention
from costmodels.model.mechanisms import Receptance, SharedBlocks, Streams, VisionTower
from costmodels.model.networks import Networks
from costmodels.model.parts import (
    CountOrZero,
    DeltaRule,
    GatedRecurrence,
    LinearAttention,
    Mamba,
    SelectiveScan,
    ShortConvolution,
    Switch,
    Variant,
)
from costmodels.model.sizes import Norms, Published, Vocabulary
from hardware.kernels import Record
from hardware.units import Matching


class Mixers(Record):
    """What mixes tokens in layers without attention, or at its side."""

    mamba: Mamba | None = None
    """Mamba-2 mixers; only with a `layer_pattern` or a `mixer_pattern`."""
    selective: SelectiveScan | None = None
    """Selective scans."""
    delta: DeltaRule | None = None
    """Delta-rule mixers (gated DeltaNet, Kimi Delta Attention)."""
    linear: LinearAttention | None = None
    """Linear attention with a fixed decay (lightning attention)."""
    convolution: ShortConvolution | None = None
    """Short convolutions between two gates."""
    recurrent: GatedRecurrence | None = None
    """Gated linear recurrences (RG-LRU)."""
    receptance: Receptance | None = None
    """Recurrences weighted by a receptance."""


class Depth(Record):
    """How layers differ, and what stands between and behind them."""

    layer_pattern: Annotated[str, Matching("[M*E-]*", "layers as M, *, E and -, such as M-M*")] = ""
    """What every layer is, one letter each: `M` a Mamba-2 mixer, `*` attention, `-` a network, `E` experts, each behind
    one norm. Empty is a model of classic layers, attention and feed-forward part in each."""
    mixer_pattern: Annotated[str, Field(pattern=r"^[*wstcxBPMSDLCRWn]*$")] = ""
    """What mixes the tokens of every classic layer, one letter each: `*` attention, `w` attention in the window, `s`
    attention with the keys that an indexer selects, `t` with those that an earlier layer's selected, `c` in the window
    and to all compressed keys, `x` to those that an indexer selects, `B` attention and a Mamba-2 mixer side by side,
    `P` attention and a selective scan side by side, `M` a Mamba-2 mixer, `S` a selective scan (Mamba), `D` a delta
    rule, `L` linear attention, `C` a short convolution, `R` a gated recurrence, `W` a recurrence by receptance, `n`
    nothing. Empty is attention in all of them, with windows by `sliding_window_every`."""
    ffn_pattern: Annotated[str, Field(pattern=r"^[-En]*$")] = ""
    """What follows in every classic layer: `-` a dense network, `E` experts, `n` nothing. Empty is as `moe` says."""
    variants: tuple[Variant, ...] = ()
    """Sizes that some layers have instead of the model's."""
    variant_pattern: tuple[CountOrZero, ...] = ()
    """Per layer, which of the `variants` it is, counted from 1; 0 is the model itself."""
    mtp_layers: CountOrZero = 0
    """Multi-token-prediction layers behind the others, each a further transformer layer behind three norms and a
    projection of two vectors into one (DeepSeek-V3, arXiv 2412.19437, section 2.2). Embedding and head are the
    model's."""
    mtp_repeated: Switch = False
    """They share one set of weights too (Nemotron 3 Super)."""
    shared_blocks: SharedBlocks | None = None
    """Attention and networks whose weights several layers share; all of them are such."""
    streams: Streams | None = None
    """Copies of the residual stream; None is the one."""
    tower: VisionTower | None = None
    """An encoder of images; no part of the decoder's parameters and FLOP."""


class Architecture(Depth, Mixers, Networks, Attention, Norms, Vocabulary, Published):
    """Sizes and switches of one decoder-only transformer."""

    @property
    def num_moe_layers(self) -> int:
        """Layers with experts, without multi-token-prediction layers."""
        if self.layer_pattern or self.ffn_pattern:
            return (self.layer_pattern or self.ffn_pattern).count("E")
        return 0 if self.moe is None else self.moe.moe_layers(self.num_layers)

    @property
    def num_dense_layers(self) -> int:
        """Layers with an ordinary feed-forward network, without multi-token-prediction layers."""
        if self.layer_pattern or self.ffn_pattern:
            return (self.layer_pattern or self.ffn_pattern).count("-")
        return self.num_layers - self.num_moe_layers

    @property
    def num_attention_layers(self) -> int:
        """Layers with attention, without multi-token-prediction layers."""
        if self.mixer_pattern:
            return sum(letter in "*wstcxBP" for letter in self.mixer_pattern)
        return self.layer_pattern.count("*") if self.layer_pattern else self.num_layers

    @property
    def linear_bias(self) -> bool:
        """Whether both the attention output and the feed-forward network have biases."""
        return self.output_bias and self.ffn_bias

    def with_sizes_of(self, variant: int) -> Self:
        """The model as if all layers had the sizes of its variant of that number, from 1; 0 is the model itself."""
        if not variant:
            return self
        sizes = self.variants[variant - 1]
        said = {name: getattr(sizes, name) for name in type(sizes).model_fields}
        return self.model_copy(update={name: value for name, value in said.items() if value is not None})
