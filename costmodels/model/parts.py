"""The kinds of number a model is described with, and its optional parts: experts, latent attention, Mamba-2 mixers."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from hardware.errors import MeshwrightError
from hardware.kernels import Record
from hardware.units import counted

# Bounds far above any model keep products of sizes within what arrays of floats and integers hold.
LARGEST = 2**31
"""What every size is below."""
Count = Annotated[int, Field(strict=True, gt=0, lt=LARGEST)]
MOST_LAYERS = 10_000
Layers = Annotated[int, Field(strict=True, gt=0, le=MOST_LAYERS)]
"""Ten times the deepest that was ever trained; slices of a depth are looked at one by one."""
CountOrZero = Annotated[int, Field(strict=True, ge=0, lt=LARGEST)]
_WRITTEN = WithJsonSchema(
    {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "string", "examples": ["300B"]}]}
)
Total = Annotated[int, Field(strict=True, gt=0, lt=2**62), BeforeValidator(counted), _WRITTEN]
"""A count of what models have billions of, also as people write it."""
Switch = Annotated[bool, Field(strict=True)]
Fraction = Annotated[float, Field(strict=True, ge=0.0, le=1.0)]

Position = Literal["learned", "rotary", "alibi", "none"]
Norm = Literal["layernorm", "rmsnorm"]
QkNorm = Literal["none", "head", "full"]
Gate = Literal["none", "head", "value"]
SharedKeys = Literal["none", "values", "all"]
Activation = Literal["gelu", "relu", "silu", "squared_relu", "xielu", "swiglu", "geglu", "reglu", "squared_reglu"]

GATED_ACTIVATIONS = frozenset({"swiglu", "geglu", "reglu", "squared_reglu"})


class BadModel(MeshwrightError):
    """A model description that is incomplete, contradictory or of a kind that is not supported."""


class Experts(Record):
    """The feed-forward part of the mixture-of-experts layers of a model.

    Experts share the model's activation, gating and `ffn_bias`.

    Attributes:
        num_experts: Routed experts of one layer.
        top_k: Experts that one token is routed to.
        expert_ffn_hidden_size: Inner width of one routed expert (of each branch when gated).
        num_shared_experts: Experts that every token passes, in addition to the routed ones.
        shared_expert_ffn_hidden_size: Inner width of all shared experts together; they multiply as one.
        shared_expert_gate: A learned sigmoid of one output scales the shared experts (Qwen2-MoE).
        dense_layers: Leading layers with an ordinary feed-forward network of `Model.ffn_hidden_size`.
        moe_every: Of the layers behind them, every n-th (counted from the first layer of the model, the n-th
            included) has experts; the others are dense (Llama 4 Maverick: 2).
        router_bias: One number per expert added to its score: learned (GPT-OSS), or steered to balance the
            load without a gradient (DeepSeek-V3).
        router_groups: Equal groups of neighbouring experts that the router chooses among first (DeepSeek-V2, 2.2.2).
        router_group_top_k: Groups that one token's experts lie in; DeepSeek-V3 takes 4 of 8, nodes in its training.
        router_steered: The load is balanced by numbers per expert that are no parameters, as implementations keep what
            has no gradient; where they are, they are a `router_bias`.
        router_gain: A learned number per expert scales its score.
        zero_experts: Further choices of the router that return the token as it is (LongCat-Flash).
        latent_size: Width that tokens are projected to in front of the routed experts and back behind them;
            None is `hidden_size`, no projection.
        latent_norm: A norm of that width is behind the experts.
    """

    num_experts: Count
    top_k: Count
    expert_ffn_hidden_size: Count
    num_shared_experts: CountOrZero = 0
    shared_expert_ffn_hidden_size: CountOrZero = 0
    shared_expert_gate: Switch = False
    dense_layers: CountOrZero = 0
    moe_every: Count = 1
    router_bias: Switch = False
    router_steered: Switch = False
    router_gain: Switch = False
    zero_experts: CountOrZero = 0
    router_groups: Count = 1
    router_group_top_k: Count = 1
    latent_size: Count | None = None
    latent_norm: Switch = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.top_k > self.num_experts:
            raise ValueError(f"top_k {self.top_k} is more than num_experts {self.num_experts}")
        if self.num_experts % self.router_groups or self.router_group_top_k > self.router_groups:
            raise ValueError(
                f"router_groups {self.router_groups} and router_group_top_k {self.router_group_top_k} do not fit "
                f"num_experts {self.num_experts}: groups must be equal, and no more can be chosen than there are"
            )
        if self.top_k > (reachable := self.router_group_top_k * self.num_experts // self.router_groups):
            raise ValueError(f"top_k {self.top_k} is more than the {reachable} experts of a token's router_groups")
        if (self.num_shared_experts > 0) != (self.shared_expert_ffn_hidden_size > 0):
            raise ValueError(
                f"num_shared_experts {self.num_shared_experts} contradicts "
                f"shared_expert_ffn_hidden_size {self.shared_expert_ffn_hidden_size}"
            )
        if self.shared_expert_gate and not self.num_shared_experts:
            raise ValueError("shared_expert_gate needs num_shared_experts")
        return self

    @property
    def computed_experts(self) -> float:
        """Experts that compute for one token on average, where some choices are none."""
        return self.top_k * self.num_experts / (self.num_experts + self.zero_experts)

    def is_moe_layer(self, layer: int) -> bool:
        """Whether the layer of that index, from 0, has experts."""
        return layer >= self.dense_layers and (layer + 1) % self.moe_every == 0

    def moe_layers(self, num_layers: int) -> int:
        """How many of the first `num_layers` layers have experts."""
        dense = min(self.dense_layers, num_layers)
        return num_layers // self.moe_every - dense // self.moe_every


class LatentAttention(Record):
    """Multi-head latent attention: keys, values and perhaps queries come out of narrow latent vectors.

    A rotated part of the keys is shared by all heads. Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1.

    Attributes:
        q_lora_rank: Width of the latent vector of the queries; None projects queries directly.
        kv_lora_rank: Width of the latent vector of keys and values.
        qk_nope_head_dim: Unrotated part of each query and key.
        qk_rope_head_dim: Rotated part of each query and key.
        v_head_dim: Width of each head's value.
    """

    q_lora_rank: Count | None = None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: CountOrZero
    v_head_dim: Count

    @property
    def qk_head_dim(self) -> int:
        """Width of one query and of one key, `qk_nope_head_dim + qk_rope_head_dim`."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def q_down_width(self) -> int:
        """Output width of the query down-projection; 0 without one."""
        return self.q_lora_rank or 0

    @property
    def kv_down_width(self) -> int:
        """Output width of the key-value down-projection: the latent vector and the shared rotated key."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def kv_up_head_dim(self) -> int:
        """Output width of the key-value up-projection for one head: unrotated key and value."""
        return self.qk_nope_head_dim + self.v_head_dim


class Mamba(Record):
    """The Mamba-2 mixers of a hybrid model.

    Source: Dao and Gu, "Transformers are SSMs" (arXiv 2405.21060), sections 6 and 7.

    Attributes:
        num_heads: Heads; their width and number need not fit the hidden size.
        head_dim: Channels of a head.
        state_size: Width of the state of each channel.
        num_groups: Groups of heads that share the input and output projections B and C of the state.
        conv_kernel: Tokens that the causal convolution in front of the scan sees.
        chunk_size: Tokens that are multiplied as one block; the state passes from block to block.
        gated_norm: A norm with a scale is behind the scan (not in Falcon-H1).
        conv_bias: The convolution has a bias.
        input_bias: The input projection has a bias.
        output_bias: The output projection has one.
    """

    num_heads: Count
    head_dim: Count
    state_size: Count
    num_groups: Count = 1
    conv_kernel: Count = 4
    chunk_size: Count = 128
    gated_norm: Switch = True
    conv_bias: Switch = True
    input_bias: Switch = False
    output_bias: Switch = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.num_heads % self.num_groups:
            raise ValueError(f"num_groups {self.num_groups} does not divide num_heads {self.num_heads}")
        return self

    @property
    def inner_width(self) -> int:
        """Channels of all heads together."""
        return self.num_heads * self.head_dim

    @property
    def group_width(self) -> int:
        """Width of B, and of C, over all groups."""
        return self.num_groups * self.state_size

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: the values, B and C."""
        return self.inner_width + 2 * self.group_width

    @property
    def in_width(self) -> int:
        """Output width of the input projection: gate, values, B, C and a time step per head."""
        return self.inner_width + self.conv_width + self.num_heads


class SelectiveScan(Record):
    """Mamba's selective scan: a state of its own for every channel, step sizes, inputs and outputs out of the tokens.

    Source: Gu and Dao, "Mamba" (arXiv 2312.00752), section 3.

    Attributes:
        inner_width: Channels.
        state_size: Width of the state of each channel.
        step_rank: Width of the latent vector that the step sizes come out of.
        conv_kernel: Tokens that the causal convolution in front of the scan sees.
        conv_bias: The convolution has a bias.
        projection_bias: The input and the output projection have biases.
        inner_norms: Norms on step sizes, inputs and outputs (Jamba).
    """

    inner_width: Count
    state_size: Count
    step_rank: Count
    conv_kernel: Count = 4
    conv_bias: Switch = True
    projection_bias: Switch = False
    inner_norms: Switch = False


class DeltaRule(Record):
    """A recurrent mixer whose state forgets by a learned decay and is corrected by the delta rule, chunk by chunk.

    Source: Yang et al., "Gated Delta Networks" (arXiv 2412.06464); with a decay of every channel, "Kimi Linear"
    (arXiv 2510.26692).

    Attributes:
        num_key_heads: Heads of queries and keys.
        num_value_heads: Heads of values, and of states; several may share a query and a key.
        key_head_dim: Width of a query and of a key.
        value_head_dim: Width of a value.
        conv_kernel: Tokens that the causal convolution on queries, keys and values sees.
        decay: One decay a head ("head"), or one a channel of its key ("channel").
        decay_rank: Width of the latent vector that decays by channel come out of; None is straight from the tokens.
        gate_rank: The same of the gate on the output.
        chunk_size: Tokens that are multiplied as one block.
    """

    num_key_heads: Count
    num_value_heads: Count
    key_head_dim: Count
    value_head_dim: Count
    conv_kernel: Count = 4
    decay: Literal["head", "channel"] = "head"
    decay_rank: Count | None = None
    gate_rank: Count | None = None
    chunk_size: Count = 64

    @property
    def key_width(self) -> int:
        """Channels of all keys."""
        return self.num_key_heads * self.key_head_dim

    @property
    def value_width(self) -> int:
        """Channels of all values."""
        return self.num_value_heads * self.value_head_dim

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_width + self.value_width


class LinearAttention(Record):
    """Attention without softmax whose state decays at a fixed rate, block by block, its output normed and gated.

    Source: "MiniMax-01" (arXiv 2501.08313), section 2.2.

    Attributes:
        num_heads: Heads.
        head_dim: Width of a query, key and value.
        chunk_size: Tokens of a block.
    """

    num_heads: Count
    head_dim: Count
    chunk_size: Count = 256

    @property
    def width(self) -> int:
        """Channels of all heads."""
        return self.num_heads * self.head_dim


class ShortConvolution(Record):
    """A causal convolution of few tokens between two gates (LFM2, arXiv 2511.23404).

    Attributes:
        kernel: Tokens that it sees.
        bias: Convolution and projections have biases.
    """

    kernel: Count
    bias: Switch = False


class GatedRecurrence(Record):
    """A real-gated linear recurrent unit behind a convolution, parallel to a gated branch (Griffin, arXiv 2402.19427).

    Attributes:
        width: Channels.
        num_blocks: Blocks of the matrices that its two gates multiply with.
        conv_kernel: Tokens that the causal convolution sees.
    """

    width: Count
    num_blocks: Count
    conv_kernel: Count = 4


class Indexer(Record):
    """What selects the keys of sparse attention: a small head of its own scores all of them.

    Source: "DeepSeek-V3.2" (arXiv 2512.02556), section 2.1.

    Attributes:
        num_heads: Heads of its queries; its key is shared by all.
        head_dim: Width of a query and of the key.
        top_k: Keys that every query attends to.
        per_group: Every group of keys has an indexer's query of its own, out of the hidden state, and no weights of
            heads (MiniMax-M3).
        block: Keys that are selected as one.
    """

    num_heads: Count
    head_dim: Count
    top_k: Count
    per_group: Switch = False
    block: Count = 1


class Variant(Record):
    """Sizes that some layers of a model have instead of the model's; None is the model's.

    Attributes:
        num_heads: Attention heads.
        num_query_groups: Key/value heads.
        head_dim: Width of a query.
        value_head_dim: Width of a value in ordinary attention.
        ffn_hidden_size: Inner width of a dense network.
        mla: Latent attention.
        attention_sinks: One learned logit per head joins the softmax.
        attention_gate: A learned sigmoid on attention's output.
        shared_keys: What of keys and values has no projection.
        layer_vectors: Further learned numbers of a layer.
    """

    num_heads: Count | None = None
    num_query_groups: Count | None = None
    head_dim: Count | None = None
    value_head_dim: Count | None = None
    ffn_hidden_size: Count | None = None
    mla: LatentAttention | None = None
    attention_sinks: Switch | None = None
    attention_gate: Gate | None = None
    shared_keys: SharedKeys | None = None
    layer_vectors: CountOrZero | None = None
