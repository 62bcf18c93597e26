"""Sizes and switches of a decoder, and what follows from them; `costmodels.model.model` checks that they agree."""

from typing import Annotated, Self

from pydantic import Field

from costmodels.model.mechanisms import CompressedKeys, Receptance, SharedBlocks, Streams, VisionTower
from costmodels.model.parts import (
    Activation,
    Count,
    CountOrZero,
    DeltaRule,
    Experts,
    Fraction,
    Gate,
    GatedRecurrence,
    Indexer,
    LatentAttention,
    Layers,
    LinearAttention,
    Mamba,
    Norm,
    Position,
    QkNorm,
    SelectiveScan,
    SharedKeys,
    ShortConvolution,
    Switch,
    Total,
    Variant,
)
from hardware.kernels import Label, Record
from hardware.units import Matching


class Architecture(Record):
    """Sizes and switches of one decoder-only transformer.

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
        mamba: Mamba-2 mixers; only with a `layer_pattern` or a `mixer_pattern`.
        tokens: Published number of training tokens.
        batch_tokens: Published number of tokens of an iteration of that training, at its end where it grew.
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
    mamba: Mamba | None = None
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
    indexer: Indexer | None = None
    """What selects the keys of sparse attention."""
    compressed: CompressedKeys | None = None
    """Attention to compressed keys; the model's only kind of attention."""
    attention_experts: CountOrZero = 0
    """Projections of queries and outputs that a token is routed among, as many at once as heads share a key (JetMoE);
    0 without a choice."""
    shared_blocks: SharedBlocks | None = None
    """Attention and networks whose weights several layers share; all of them are such."""
    streams: Streams | None = None
    """Copies of the residual stream; None is the one."""
    narrow_branch: CountOrZero = 0
    """Width of a branch of two matrices next to attention (Gemma 3n); 0 without one."""
    value_head_dim: Count | None = None
    """Width of one head's value in ordinary attention; None is `head_dim`."""
    attention_gate: Gate = "none"
    """A learned sigmoid on attention's output: one a head, or one a value."""
    gate_bias: Switch = False
    """The projection that gates attention's output has a bias."""
    qk_norm_bias: Switch = False
    """Norms on queries and keys have a shift too."""
    shared_keys: SharedKeys = "none"
    """Values are the keys, or keys and values are an earlier layer's: no projections of their own."""
    tower: VisionTower | None = None
    """An encoder of images; no part of the decoder's parameters and FLOP."""
    bidirectional: Switch = False
    """Every token attends to all others, as in an encoder."""
    layer_vectors: CountOrZero = 0
    """Further learned numbers of a layer that multiply no token by a matrix: scales of residuals, of an activation,
    norms within a block. Only their states are priced."""
    model_vectors: CountOrZero = 0
    """The same outside of layers."""
    per_layer_embedding: CountOrZero = 0
    """Width of the embedding that every layer adds for itself, out of one table for all (Gemma 3n); 0 without one."""
    per_layer_vocab_size: CountOrZero = 0
    """Rows of that table."""
    tokens: Total | None = None
    batch_tokens: Total | None = None
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
        if self.mla is not None:
            return self.mla.v_head_dim
        return self.value_head_dim or self.head_dim

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
    def projected_width(self) -> int:
        """Output width of the projection of queries, keys and values: without what is shared, with a gate a value."""
        keys = {"none": self.key_value_width + self.value_width, "values": self.key_value_width, "all": 0}
        return self.attention_width + keys[self.shared_keys]

    @property
    def gate_width(self) -> int:
        """Output width of the projection that gates attention's output; 0 without one."""
        return {"none": 0, "head": self.num_heads, "value": self.attention_output_width}[self.attention_gate]

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
    def router_steered(self) -> bool:
        """Whether a bias of the router is moved to balance the load, without a gradient (DeepSeek-V3).

        A learned one belongs to models whose experts have biases too (GPT-OSS).
        """
        return self.moe is not None and (self.moe.router_steered or (self.moe.router_bias and not self.ffn_bias))

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
        if self.mixer_pattern:
            return self.num_attention_layers - self.mixer_pattern.count("w")
        return 0 if self.sliding_window_every is None else self.num_layers // self.sliding_window_every

    def with_sizes_of(self, variant: int) -> Self:
        """The model as if all layers had the sizes of its variant of that number, from 1; 0 is the model itself."""
        if not variant:
            return self
        sizes = self.variants[variant - 1]
        said = {name: getattr(sizes, name) for name in type(sizes).model_fields}
        return self.model_copy(update={name: value for name, value in said.items() if value is not None})
