"""The architecture of a transformer decoder, as the cost formulas read it.

A `Model` is a frozen record of sizes and switches. It knows nothing of machines, strategies or software.
Mixture-of-experts layers, latent attention and Mamba-2 mixers are optional sub-records of it
(`costmodels.model.parts`).
"""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from costmodels.model.parts import (
    GATED_ACTIVATIONS,
    Activation,
    BadModel,
    Count,
    CountOrZero,
    Experts,
    Fraction,
    LatentAttention,
    Layers,
    Mamba,
    Norm,
    Position,
    QkNorm,
    Switch,
    Total,
)
from costmodels.model.shape import complete
from costmodels.model.spellings import check_names
from hardware.errors import flatten
from hardware.kernels import Label, Record
from hardware.units import Matching

__all__ = ["BadModel", "Experts", "LatentAttention", "Mamba", "Model", "checked", "from_shape"]


class Model(Record):
    """Sizes and switches of one decoder-only transformer.

    Build one with `from_shape` (a mapping, usual values filled in, one-line errors) or the catalogue
    (`costmodels.model.catalogue.model`).

    Attributes:
        name: Name in the catalogue, or the user's own.
        title: Name as people write it.
        family: Family in the catalogue ("gpt3", "llama2", ...).
        source: Where the sizes are published.
        num_layers: Transformer layers.
        hidden_size: Width of the residual stream.
        num_heads: Attention (query) heads.
        num_query_groups: Key/value heads; `num_heads` is multi-head, 1 is multi-query attention.
        head_dim: Width of one query; `num_heads * head_dim` may differ from `hidden_size`. With latent
            attention it is `mla.qk_head_dim`.
        ffn_hidden_size: Inner width of the feed-forward network (of each branch when gated) of a dense layer.
        gated_ffn: Two input matrices instead of one (SwiGLU, GeGLU).
        activation: Non-linearity of the feed-forward network.
        vocab_size: Tokens the tokeniser knows, as published.
        padded_vocab_size: Rows of the embedding that the published training run allocated, when stated.
        seq_length: Sequence length the model is usually trained at, tokens.
        reach: Tokens that positions reach, where `seq_length` is held to fewer for want of a published training
            length (Hugging Face's configurations); None elsewhere.
        max_positions: Rows of the learned position table; 0 without such a table.
        position: How positions enter.
        rotary_fraction: Share of each head that is rotated.
        rotary_scaled: Sines and cosines have a factor, as YaRN's have for longer sequences (GPT-OSS).
        tied_embeddings: The output head shares the embedding's weights.
        norm: Kind of normalisation.
        norm_weight: The norms have a learned scale.
        norm_bias: The norms have a learned shift.
        num_norms: Norms of width `hidden_size` per layer: 1 (shared by a parallel block), 2, or 4
            (before and after each block).
        qk_norm: Norm on queries and keys: one shared by all heads ("head"), or over the full width ("full").
        qkv_bias: Biases of the query, key and value projections; of the down-projections of latent attention.
        output_bias: Bias of the attention output projection.
        ffn_bias: Biases of the feed-forward networks, those of experts included.
        clamped_activation: Both branches of the gated activation are clamped (GPT-OSS).
        head_bias: Bias of the output head.
        embedding_norm: A norm follows the embedding (BLOOM).
        final_norm: A norm precedes the output head.
        parallel_block: Attention and feed-forward read the same input and are summed together.
        sliding_window: Tokens a local layer attends to, including the current one; None is full attention.
        sliding_window_every: Every n-th layer attends globally; None applies the window to all layers.
        chunked_attention: Windows do not slide: one begins where the one before ends (Llama 4).
        attention_sinks: One learned logit per head joins the softmax (GPT-OSS).
        localized_filtering: Two causal convolutions before queries and keys (Yuan 2.0 [Wu21]).
        embedding_size: Width of a factorised embedding, projected to and from `hidden_size`; None is
            `hidden_size`, no projection.
        moe: Mixture-of-experts layers; None has only dense ones.
        mla: Multi-head latent attention; None is ordinary attention.
        mtp_layers: Multi-token-prediction layers behind the others, each a further transformer layer behind
            three norms and a projection of two vectors into one (DeepSeek-V3, arXiv 2412.19437, section 2.2).
            Embedding and head are shared with the model.
        mtp_repeated: They share one set of weights too (Nemotron 3 Super).
        layer_pattern: What every layer is, one letter each: `M` a Mamba-2 mixer, `*` attention, `-` a
            feed-forward network, `E` experts, each behind one norm. Empty is a model of classic layers,
            attention and feed-forward part in each.
        mamba: Mamba-2 mixers; only with a `layer_pattern`.
        tokens: Published number of training tokens.
        published_parameters: Published number of parameters, for checking; never used for a cost.
    """

    name: Label
    title: Label = ""
    family: Label = "custom"
    source: str = ""
    num_layers: Layers
    hidden_size: Count
    num_heads: Count
    num_query_groups: Count
    head_dim: Count
    ffn_hidden_size: Count
    gated_ffn: Switch = False
    activation: Activation = "gelu"
    vocab_size: Count
    padded_vocab_size: Count | None = None
    seq_length: Count
    reach: Count | None = None
    max_positions: CountOrZero = 0
    position: Position = "rotary"
    rotary_fraction: Fraction = 1.0
    rotary_scaled: Switch = False
    tied_embeddings: Switch = False
    norm: Norm = "layernorm"
    norm_weight: Switch = True
    norm_bias: Switch = False
    num_norms: Annotated[int, Field(strict=True, ge=1, le=4)] = 2
    qk_norm: QkNorm = "none"
    qkv_bias: Switch = False
    output_bias: Switch = False
    ffn_bias: Switch = False
    clamped_activation: Switch = False
    head_bias: Switch = False
    embedding_norm: Switch = False
    final_norm: Switch = True
    parallel_block: Switch = False
    sliding_window: Count | None = None
    sliding_window_every: Count | None = None
    chunked_attention: Switch = False
    attention_sinks: Switch = False
    localized_filtering: Switch = False
    embedding_size: Count | None = None
    moe: Experts | None = None
    mla: LatentAttention | None = None
    mtp_layers: CountOrZero = 0
    mtp_repeated: Switch = False
    layer_pattern: Annotated[str, Matching("[M*E-]*", "layers as M, *, E and -, such as M-M*")] = ""
    mamba: Mamba | None = None
    tokens: Total | None = None
    published_parameters: Total | None = None

    @property
    def attention_width(self) -> int:
        """Width of all queries together, `num_heads * head_dim`."""
        return self.num_heads * self.head_dim

    @property
    def key_value_width(self) -> int:
        """Width of all keys together, `num_query_groups * head_dim`; of all values too but in latent attention."""
        return self.num_query_groups * self.head_dim

    @property
    def v_head_dim(self) -> int:
        """Width of one head's value."""
        return self.head_dim if self.mla is None else self.mla.v_head_dim

    @property
    def value_width(self) -> int:
        """Width of all values together, `num_query_groups * v_head_dim`."""
        return self.num_query_groups * self.v_head_dim

    @property
    def attention_output_width(self) -> int:
        """Width of all heads' weighted values, which the output projection reads."""
        return self.num_heads * self.v_head_dim

    @property
    def qkv_width(self) -> int:
        """Width of queries, keys and values, all that the attention core reads.

        It is the output width of the fused projection. Latent attention repeats its shared rotated key for
        every head here.
        """
        return self.attention_width + self.key_value_width + self.value_width

    @property
    def fc1_width(self) -> int:
        """Output width of the first feed-forward matrix of a dense layer; both branches of a gated one."""
        return self.ffn_hidden_size * self.ffn_branches

    @property
    def ffn_branches(self) -> int:
        """Input matrices of a feed-forward network: 2 when gated."""
        return 2 if self.gated_ffn else 1

    @property
    def num_moe_layers(self) -> int:
        """Layers with experts, without multi-token-prediction layers."""
        if self.layer_pattern:
            return self.layer_pattern.count("E")
        return 0 if self.moe is None else self.moe.moe_layers(self.num_layers)

    @property
    def num_dense_layers(self) -> int:
        """Layers with an ordinary feed-forward network, without multi-token-prediction layers."""
        return self.layer_pattern.count("-") if self.layer_pattern else self.num_layers - self.num_moe_layers

    @property
    def num_attention_layers(self) -> int:
        """Layers with attention, without multi-token-prediction layers."""
        return self.layer_pattern.count("*") if self.layer_pattern else self.num_layers

    @property
    def router_steered(self) -> bool:
        """Whether a bias of the router is moved to balance the load, without a gradient (DeepSeek-V3).

        A learned one belongs to models whose experts have biases too (GPT-OSS).
        """
        return self.moe is not None and self.moe.router_bias and not self.ffn_bias

    @property
    def expert_hidden_size(self) -> int:
        """Width of the tokens that routed experts read and write."""
        latent = None if self.moe is None else self.moe.latent_size
        return self.hidden_size if latent is None else latent

    @property
    def embedding_width(self) -> int:
        """Width of one row of the embedding table."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def linear_bias(self) -> bool:
        """Whether both the attention output and the feed-forward network have biases."""
        return self.output_bias and self.ffn_bias

    @property
    def num_global_layers(self) -> int:
        """Layers that attend to the whole sequence."""
        if self.sliding_window is None:
            return self.num_attention_layers
        return 0 if self.sliding_window_every is None else self.num_layers // self.sliding_window_every

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.num_heads % self.num_query_groups:
            raise ValueError(
                f"num_query_groups {self.num_query_groups} does not divide num_heads {self.num_heads}; "
                f"{_divisors(self.num_heads)} do"
            )
        if self.gated_ffn != (self.activation in GATED_ACTIVATIONS):
            raise ValueError(f"activation {self.activation!r} contradicts gated_ffn {self.gated_ffn}")
        if (self.position == "learned") != (self.max_positions > 0):
            raise ValueError(
                f"max_positions {self.max_positions} contradicts position {self.position!r}: "
                "a learned table has rows, any other kind has none"
            )
        self._check_vocabulary_and_window()
        self._check_pattern()
        self._check_experts_and_latent_attention()
        return self

    def _check_vocabulary_and_window(self) -> None:
        if self.padded_vocab_size is not None and self.padded_vocab_size < self.vocab_size:
            raise ValueError(f"padded_vocab_size {self.padded_vocab_size} is less than vocab_size {self.vocab_size}")
        if self.sliding_window is None and self.sliding_window_every is not None:
            raise ValueError(f"sliding_window_every {self.sliding_window_every} needs a sliding_window")
        if self.num_norms == 1 and not self.parallel_block:
            raise ValueError("num_norms 1 needs parallel_block: serial blocks read a norm each")

    def _check_pattern(self) -> None:
        pattern, described = self.layer_pattern, {"M": self.mamba, "E": self.moe}
        if pattern and len(pattern) != self.num_layers:
            raise ValueError(f"layer_pattern has {len(pattern)} letters for {self.num_layers} layers")
        if pattern and self.sliding_window_every is not None:
            raise ValueError("sliding_window_every contradicts layer_pattern, whose attention layers are alike")
        for letter, part in described.items():
            if (letter in pattern) != (part is not None) and (pattern or letter == "M"):
                name = {"M": "mamba", "E": "moe"}[letter]
                raise ValueError(f"{name}: layer_pattern {pattern!r:.60} has {pattern.count(letter)} such layers")

    def _check_experts_and_latent_attention(self) -> None:
        if self.moe is not None and self.num_moe_layers == 0:
            raise ValueError(
                f"moe: dense_layers {self.moe.dense_layers} and moe_every {self.moe.moe_every} leave none of "
                f"{self.num_layers} layers with experts"
            )
        if self.mla is None:
            return
        if self.head_dim != self.mla.qk_head_dim:
            raise ValueError(f"head_dim {self.head_dim} contradicts mla: its queries are {self.mla.qk_head_dim} wide")
        if self.num_query_groups != self.num_heads:
            raise ValueError(
                f"num_query_groups {self.num_query_groups} contradicts mla: each of {self.num_heads} heads has a key"
            )
        if self.qk_norm != "none":
            raise ValueError(f"qk_norm {self.qk_norm!r} contradicts mla, whose norms are on the latent vectors")


def _divisors(number: int) -> str:
    return ", ".join(str(size) for size in range(1, number + 1) if number % size == 0)


def from_shape(shape: Mapping[str, object], *, name: str = "custom") -> Model:
    """A model from a mapping of sizes, the unsaid filled with the usual values.

    `num_layers`, `hidden_size`, `num_heads`, `vocab_size` and `seq_length` must be there; None counts as
    unsaid. Unsaid values: as many query groups as heads, `head_dim = hidden_size / num_heads`; then a gated
    model is filled like LLaMA (rotary, RMSNorm, no biases, untied, inner width 8/3 of the hidden size
    rounded up to 256), an ungated one like GPT-3 (learned positions, LayerNorm, biases, tied, 4 times).

    Experts and latent attention are mappings under `moe` and `mla`. Unsaid of them: the width of shared
    experts is their number times the width of a routed one.

    Other spellings are understood: `position = "rope"`, `qk_layernorm`, `linear_bias`,
    `sliding_window_pattern = "5 local : 1 global"`; experts as `experts`, `top_k`, `expert_ffn`, `shared_experts`,
    `shared_expert_ffn` (all together), `dense_layers`, `moe_latent` beside the other sizes; `mla` with `q_lora`,
    `kv_lora`, `qk_nope`, `qk_rope`, `v`. `notes` and `description` are for people.

    Args:
        shape: Fields of `Model` by name.
        name: Name of the model when `shape` has none.

    Raises:
        BadModel: A field is missing, unknown, of the wrong type or contradicts another one. One line.
    """
    label = str(shape.get("name") or name)
    check_names(shape, Model.model_fields, label)
    return checked(complete(shape, label=label), label=label)


def checked(fields: Mapping[str, object], *, label: str) -> Model:
    """The model of complete `fields`; `BadModel` says on one line what is wrong with them."""
    check_names(fields, Model.model_fields, label)
    try:
        return Model.model_validate(dict(fields))
    except ValidationError as error:
        raise BadModel(f"model {label!r}: {flatten(error).removeprefix('the file: ')}") from None
