"""Exact parameter counts of a model, split as the memory and communication formulas need them.

All counts are whole numbers of parameters. "Sharded" means split over the tensor-parallel ranks by a
column- or row-parallel layer as in Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053, section 3);
"replicated" means that every tensor-parallel rank holds the whole thing. Routed experts are counted apart:
expert parallelism deals whole experts out, and tensor parallelism may shard each of them by another degree.
"""

from collections import Counter
from functools import lru_cache

from costmodels.model.further import further_parameters, norm_parameters, stream_ends
from costmodels.model.layer_kinds import Kind, layer_kinds, mtp_kind
from costmodels.model.mechanisms import CompressedKeys
from costmodels.model.mixers import Projection, mixer_of, mixer_parameters
from costmodels.model.model import Experts, Model


def attention_input(model: Model) -> int:
    """Width of what attention reads: twice the hidden size where a token stands next to its embedding."""
    return model.hidden_size * (1 if model.shared_blocks is None else 2)


def shared_parameters(model: Model, kind: Kind) -> tuple[int, int]:
    """Of a layer of a kind, parameters that layers share with it: split over tensor ranks, and whole on each of them.

    A norm of what attention reads and one in front of the network are among the latter.
    """
    if model.shared_blocks is None or not kind.attends:
        return 0, 0
    whole = attention_replicated_parameters(model) + norm_parameters(model, model.hidden_size)
    whole += int(model.ffn_bias) * model.hidden_size
    matrices = attention_matrix_parameters(model) + _ffn_parameters(model, model.ffn_hidden_size, model.hidden_size)
    return matrices, whole


def shared_sets(model: Model) -> tuple[int, int]:
    """Sets of such weights, and layers that run them."""
    layers = model.num_attention_layers
    return (layers if model.shared_blocks is None else min(model.shared_blocks.count, layers)), layers


def attention_projections(model: Model) -> tuple[Projection, ...]:
    """The matrices of one layer's attention, in the order of the forward pass.

    Ordinary attention has "qkv" and "output". Latent attention has "q_down" and "q_up" (or "q", straight from
    the hidden state), "kv_down", "kv_up" and "output" (DeepSeek-V2, arXiv 2405.04434, section 2.1).
    """
    h, mla = model.hidden_size, model.mla
    output = Projection("output", model.attention_output_width, h, sharded=True)
    gate = (Projection("gate", h, model.gate_width, sharded=True),) if model.gate_width else ()
    if model.compressed is not None:
        return _compressed_projections(model, model.compressed)
    if mla is None:
        return Projection("qkv", attention_input(model), model.projected_width, sharded=True), *gate, output
    if mla.q_lora_rank is None:
        queries: tuple[Projection, ...] = (Projection("q", h, model.attention_width, sharded=True),)
    else:
        down = Projection("q_down", h, mla.q_down_width, sharded=False)
        queries = down, Projection("q_up", mla.q_lora_rank, model.attention_width, sharded=True)
    return (
        *queries,
        Projection("kv_down", h, mla.kv_down_width, sharded=False),
        Projection("kv_up", mla.kv_lora_rank, model.num_heads * mla.kv_up_head_dim, sharded=True),
        *gate,
        output,
    )


def _compressed_projections(model: Model, part: CompressedKeys) -> tuple[Projection, ...]:
    """Queries out of a latent vector, one key that is the value too, outputs by groups of heads."""
    h, latent = model.hidden_size, part.output_groups * part.output_rank
    return (
        Projection("q_down", h, part.query_rank, sharded=False),
        Projection("q_up", part.query_rank, model.attention_width),
        Projection("key", h, model.key_value_width, sharded=False),
        Projection("groups", model.attention_output_width // part.output_groups, latent),
        Projection("output", latent, h),
    )


def localized_filtering_parameters(model: Model) -> int:
    """Localized filtering of one layer: convolutions [2, 1, H, H/2] and [2, 1, H/2, H], 2H^2 (Yuan 2.0).

    Source: Yuan 2.0 (arXiv 2311.15786), section 3.1. The norm behind them is counted as replicated.
    """
    return 2 * model.hidden_size**2 if model.localized_filtering else 0


def attention_matrix_parameters(model: Model) -> int:
    """Parameters of one layer's attention that tensor parallelism shards: matrices, their biases, a head's sinks."""
    matrices = sum(p.weights for p in attention_projections(model) if p.sharded)
    biases = model.projected_width if model.qkv_bias and model.mla is None else 0
    biases += model.gate_width * int(model.gate_bias)
    sinks = model.num_heads if model.attention_sinks else 0
    if model.attention_experts:
        idle = model.attention_experts - model.num_heads // model.num_query_groups
        matrices += 2 * idle * model.key_value_width * model.hidden_size
    return matrices + biases + sinks + localized_filtering_parameters(model)


def attention_replicated_parameters(model: Model) -> int:
    """Parameters of one layer's attention that every tensor-parallel rank holds, without the layer's norms.

    Down-projections of latent attention with their biases and the norms behind them; norms on queries and keys, which
    have a scale and no shift; the bias of the output.
    """
    down = sum(p.weights for p in attention_projections(model) if not p.sharded)
    if (mla := model.mla) is not None:
        down += norm_parameters(model, mla.q_down_width + mla.kv_lora_rank)
        down += int(model.qkv_bias) * (mla.q_down_width + mla.kv_down_width)
    if model.compressed is not None:
        down += norm_parameters(model, model.compressed.query_rank + model.key_value_width)
    if model.shared_blocks is not None:
        down += norm_parameters(model, attention_input(model))
    keys = model.shared_keys != "all"  # shared ones are normed where they are made
    widths = {
        "none": 0,
        "head": (1 + keys) * model.head_dim,
        "full": model.attention_width + keys * model.key_value_width,
    }
    return down + widths[model.qk_norm] * (1 + int(model.qk_norm_bias)) + int(model.output_bias) * model.hidden_size


def _ffn_parameters(model: Model, width: int, hidden_size: int) -> int:
    """Matrices of a feed-forward network and the column-parallel bias of the first, or first two."""
    return width * (model.ffn_branches * (hidden_size + int(model.ffn_bias)) + hidden_size)


@lru_cache(maxsize=64)
def kind_matrix_parameters(model: Model, kind: Kind) -> int:
    """Parameters of one layer of a kind that tensor parallelism shards, without routed experts."""
    model = model.with_sizes_of(kind.variant)
    width = model.ffn_hidden_size if kind.ffn == "dense" else 0
    if kind.ffn == "experts":
        width = experts_of(model).shared_expert_ffn_hidden_size
    mixer = mixer_parameters(mixer_of(model, kind.other_mixer))[0] if kind.other_mixer else 0
    mixer += attention_matrix_parameters(model) if kind.attends else 0
    return mixer + _ffn_parameters(model, width, model.hidden_size)


@lru_cache(maxsize=64)
def kind_replicated_parameters(model: Model, kind: Kind) -> int:
    """Parameters of one layer of a kind that every tensor-parallel rank holds; a part alone has one norm.

    Of shared experts one output bias and the gate over them; the router has a score per expert, and its bias.
    """
    model = model.with_sizes_of(kind.variant)
    h = model.hidden_size
    norms = model.num_norms + int(model.localized_filtering) if kind.parts > 1 else kind.parts
    attention = attention_replicated_parameters(model) if kind.attends else 0
    attention += mixer_parameters(mixer_of(model, kind.other_mixer))[1] if kind.other_mixer else 0
    attention += model.layer_vectors + further_parameters(model, kind)
    ffn = int(model.ffn_bias) * h if kind.ffn == "dense" else 0
    if kind.ffn == "experts":
        moe = experts_of(model)
        vectors = int(model.ffn_bias and moe.num_shared_experts > 0) + int(moe.shared_expert_gate)
        scores = h + int(moe.router_bias) + int(moe.router_gain)
        ffn = vectors * h + moe.num_experts * scores + moe.zero_experts * h + expert_projection_parameters(model)
    return norms * norm_parameters(model, h) + attention + ffn


def kind_parameters(model: Model, kind: Kind) -> int:
    """All parameters of one layer of a kind."""
    experts = experts_of(model).num_experts * expert_parameters(model) if kind.ffn == "experts" else 0
    return kind_matrix_parameters(model, kind) + kind_replicated_parameters(model, kind) + experts


def per_layer_table_parameters(model: Model) -> int:
    """The table of all layers' own embeddings, the projection of the ordinary one added to it and their norm."""
    width = model.per_layer_embedding * model.num_layers
    if not width:
        return 0
    return width * (model.per_layer_vocab_size + model.hidden_size) + norm_parameters(model, model.per_layer_embedding)


def experts_of(model: Model) -> Experts:
    """The model's experts; only asked of models that have them."""
    assert model.moe is not None
    return model.moe


def expert_parameters(model: Model) -> int:
    """All parameters of one routed expert, the (replicated) bias of its output included; 0 without experts."""
    if model.moe is None:
        return 0
    matrices = _ffn_parameters(model, model.moe.expert_ffn_hidden_size, model.expert_hidden_size)
    return matrices + int(model.ffn_bias) * model.expert_hidden_size


def expert_projection_parameters(model: Model) -> int:
    """The (replicated) projections of one layer to the width of the routed experts and back; 0 without them."""
    if model.moe is None or model.moe.latent_size is None:
        return 0
    return model.moe.latent_size * (2 * model.hidden_size + int(model.moe.latent_norm))


def mtp_projection_parameters(model: Model) -> int:
    """What a multi-token-prediction layer adds to a layer: a projection of two vectors to one, three norms."""
    return 2 * model.hidden_size**2 + 3 * norm_parameters(model, model.hidden_size)


def mtp_sets(model: Model) -> int:
    """Sets of weights of the multi-token-prediction layers; they may share one."""
    return min(model.mtp_layers, 1) if model.mtp_repeated else model.mtp_layers


def embedding_parameters(model: Model) -> int:
    """The token embedding, with the projections and the norm that may follow it.

    A factorised embedding is projected to the hidden width, and back in front of a tied head (OPT-350M,
    ERNIE): both projections count here when the head is tied.
    """
    table = model.vocab_size * model.embedding_width + per_layer_table_parameters(model) + model.model_vectors
    table += stream_ends(model)[0]
    return table + embedding_projection_parameters(model) + embedding_norm_parameters(model)


def embedding_projection_parameters(model: Model) -> int:
    """Projections between a factorised embedding and the hidden width; 0 for an ordinary embedding."""
    if model.embedding_size is None:
        return 0
    return (2 if model.tied_embeddings else 1) * model.embedding_size * model.hidden_size


def embedding_norm_parameters(model: Model) -> int:
    """The norm behind the embedding (BLOOM); 0 without one."""
    return norm_parameters(model, model.hidden_size) if model.embedding_norm else 0


def position_parameters(model: Model) -> int:
    """The learned position table, 0 without one."""
    return model.max_positions * model.hidden_size


def head_parameters(model: Model) -> int:
    """Weights of the output head that it does not share with the embedding, and its bias."""
    width = 0 if model.tied_embeddings else model.hidden_size
    return model.vocab_size * (width + int(model.head_bias))


def final_norm_parameters(model: Model) -> int:
    """The norm in front of the output head."""
    return norm_parameters(model, model.hidden_size) if model.final_norm else 0


@lru_cache(maxsize=64)
def parameters(model: Model) -> int:
    """All parameters of the model, as of the published checkpoint.

        L (12 h^2 + 13 h) + (V + s) h + 2 h  of a GPT of L layers of width h, V tokens and s positions

    Returns:
        Parameters.

    Source:
        [Narayanan21], equation 2.

    >>> from costmodels.model.catalogue import model
    >>> L, h, V, s = 96, 12288, 50257, 2048
    >>> parameters(model("gpt3-175b")) == L * (12 * h**2 + 13 * h) + (V + s) * h + 2 * h
    True
    """
    layers = sum(count * kind_parameters(model, kind) for kind, count in Counter(layer_kinds(model)).items())
    sets, runs = shared_sets(model)
    once = max((sum(shared_parameters(model, kind)) for kind in layer_kinds(model)), default=0)
    layers -= (runs - sets) * once
    mtp = kind_parameters(model, mtp_kind(model)) + mtp_projection_parameters(model)
    ends = embedding_parameters(model) + position_parameters(model) + head_parameters(model) + stream_ends(model)[1]
    return layers + mtp_sets(model) * mtp + final_norm_parameters(model) + ends


def active_parameters(model: Model) -> int:
    """Parameters that one token meets: all but the routed experts that it is not sent to.

    Embedding and head count, as in most published figures ("37B activated" of DeepSeek-V3).
    """
    whole = parameters(model)
    if model.attention_experts:
        spare = model.attention_experts - model.num_heads // model.num_query_groups
        whole -= model.num_attention_layers * 2 * spare * model.key_value_width * model.hidden_size
    if model.moe is None:
        return whole
    met = model.moe.computed_experts if model.moe.zero_experts else model.moe.top_k
    idle = int((model.moe.num_experts - met) * expert_parameters(model))
    return whole - (model.num_moe_layers + mtp_sets(model)) * idle
