"""Attention as a model has it: heads, latent vectors, windows, norms, biases and gates."""

from costmodels.model.mechanisms import CompressedKeys
from costmodels.model.parts import (
    Count,
    CountOrZero,
    Gate,
    Indexer,
    LatentAttention,
    QkNorm,
    SharedKeys,
    Switch,
)
from hardware.kernels import Record


class Attention(Record):
    """Attention of every layer that has it."""

    num_heads: Count
    """Attention (query) heads."""
    num_query_groups: Count
    """Key/value heads; `num_heads` is multi-head, 1 is multi-query attention."""
    head_dim: Count
    """Width of one query; `num_heads * head_dim` may differ from `hidden_size`. With latent attention it is
    `mla.qk_head_dim`."""
    value_head_dim: Count | None = None
    """Width of one head's value in ordinary attention; None is `head_dim`."""
    mla: LatentAttention | None = None
    """Multi-head latent attention; None is ordinary attention."""
    shared_keys: SharedKeys = "none"
    """Values are the keys, or keys and values are an earlier layer's: no projections of their own."""
    compressed: CompressedKeys | None = None
    """Attention to compressed keys; the model's only kind of attention."""
    indexer: Indexer | None = None
    """What selects the keys of sparse attention."""
    attention_experts: CountOrZero = 0
    """Projections of queries and outputs that a token is routed among, as many at once as heads share a key (JetMoE);
    0 without a choice."""
    sliding_window: Count | None = None
    """Tokens a local layer attends to, including the current one; None is full attention."""
    sliding_window_every: Count | None = None
    """Every n-th layer attends globally; None applies the window to all layers."""
    chunked_attention: Switch = False
    """Windows do not slide: one begins where the one before ends (Llama 4)."""
    attention_sinks: Switch = False
    """One learned logit per head joins the softmax (GPT-OSS)."""
    bidirectional: Switch = False
    """Every token attends to all others, as in an encoder."""
    localized_filtering: Switch = False
    """Two causal convolutions before queries and keys (Yuan 2.0 [Wu21])."""
    qk_norm: QkNorm = "none"
    """Norm on queries and keys: one shared by all heads ("head"), or over the full width ("full")."""
    qk_norm_bias: Switch = False
    """Norms on queries and keys have a shift too."""
    qkv_bias: Switch = False
    """Biases of the query, key and value projections; of the down-projections of latent attention."""
    output_bias: Switch = False
    """Bias of the attention output projection."""
    attention_gate: Gate = "none"
    """A learned sigmoid on attention's output: one a head, or one a value."""
    gate_bias: Switch = False
    """The projection that gates attention's output has a bias."""

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
