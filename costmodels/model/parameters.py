"""Exact parameter counts of a model, split as the memory and communication formulas need them.

All counts are whole numbers of parameters. "Sharded" means split over the tensor-parallel ranks by a
column- or row-parallel layer as in Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053, section 3);
"replicated" means that every tensor-parallel rank holds the whole thing. Routed experts are counted apart:
expert parallelism deals whole experts out, and tensor parallelism may shard each of them by another degree.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from costmodels.model.layer_kinds import DENSE, EXPERTS, Kind, layer_kinds
from costmodels.model.mamba import mamba_parameters
from costmodels.model.model import BadModel, Model, from_shape


class Projection(NamedTuple):
    """One matrix of attention that multiplies every token, and who holds it."""

    name: str
    inputs: int
    outputs: int
    sharded: bool
    """Split over the tensor-parallel ranks; the down-projections of latent attention are replicated."""

    @property
    def weights(self) -> int:
        """Weights of the whole matrix."""
        return self.inputs * self.outputs


def padded_vocabulary(vocab_size: int, *, tp: int = 1, multiple: int = 128) -> int:
    """Rows of the embedding after padding, the next multiple of `multiple * tp` (Megatron-LM).

    >>> padded_vocabulary(50257, tp=8)
    51200
    """
    step = multiple * tp
    return -(-vocab_size // step) * step


def norm_parameters(model: Model, width: int) -> int:
    """Parameters of one norm over `width` values."""
    return width * (int(model.norm_weight) + int(model.norm_bias))


def attention_projections(model: Model) -> tuple[Projection, ...]:
    """The matrices of one layer's attention, in the order of the forward pass.

    Ordinary attention has "qkv" and "output". Latent attention has "q_down" and "q_up" (or "q", straight from
    the hidden state), "kv_down", "kv_up" and "output" (DeepSeek-V2, arXiv 2405.04434, section 2.1).
    """
    h, mla = model.hidden_size, model.mla
    output = Projection("output", model.attention_output_width, h, sharded=True)
    if mla is None:
        return Projection("qkv", h, model.qkv_width, sharded=True), output
    if mla.q_lora_rank is None:
        queries: tuple[Projection, ...] = (Projection("q", h, model.attention_width, sharded=True),)
    else:
        down = Projection("q_down", h, mla.q_down_width, sharded=False)
        queries = down, Projection("q_up", mla.q_lora_rank, model.attention_width, sharded=True)
    return (
        *queries,
        Projection("kv_down", h, mla.kv_down_width, sharded=False),
        Projection("kv_up", mla.kv_lora_rank, model.num_heads * mla.kv_up_head_dim, sharded=True),
        output,
    )


def qkv_parameters(model: Model) -> int:
    """Sharded projections in front of one layer's attention core, with their column-parallel biases.

    Queries, keys and values; of latent attention the up-projections.
    """
    before = sum(p.weights for p in attention_projections(model) if p.sharded and p.name != "output")
    return before + (model.qkv_width if model.qkv_bias and model.mla is None else 0)


def attention_output_parameters(model: Model) -> int:
    """Weights of the attention output projection of one layer; its bias is replicated."""
    return model.attention_output_width * model.hidden_size


def localized_filtering_parameters(model: Model) -> int:
    """Localized filtering of one layer: convolutions [2, 1, H, H/2] and [2, 1, H/2, H], 2H^2 (Yuan 2.0).

    Source: Yuan 2.0 (arXiv 2311.15786), section 3.1. The norm behind them is counted as replicated.
    """
    return 2 * model.hidden_size**2 if model.localized_filtering else 0


def attention_matrix_parameters(model: Model) -> int:
    """Parameters of one layer's attention that tensor parallelism shards, what belongs to a head included."""
    sinks = model.num_heads if model.attention_sinks else 0
    filtering = localized_filtering_parameters(model)
    return qkv_parameters(model) + attention_output_parameters(model) + sinks + filtering


def qk_norm_parameters(model: Model) -> int:
    """Norms on queries and keys of one layer; they have a scale and no shift."""
    if model.qk_norm == "none":
        return 0
    return 2 * model.head_dim if model.qk_norm == "head" else model.attention_width + model.key_value_width


def latent_parameters(model: Model) -> int:
    """Replicated part of one layer's latent attention: down-projections, their biases, norms behind them."""
    mla = model.mla
    if mla is None:
        return 0
    down = sum(p.weights for p in attention_projections(model) if not p.sharded)
    norms = norm_parameters(model, mla.q_down_width + mla.kv_lora_rank)
    return down + norms + int(model.qkv_bias) * (mla.q_down_width + mla.kv_down_width)


def attention_replicated_parameters(model: Model) -> int:
    """Parameters of one layer's attention that every tensor-parallel rank holds, without the layer's norms."""
    return latent_parameters(model) + qk_norm_parameters(model) + int(model.output_bias) * model.hidden_size


def layer_norm_parameters(model: Model) -> int:
    """Norms over the hidden size in one layer, dense or with experts."""
    num_norms = model.num_norms + int(model.localized_filtering)
    return num_norms * norm_parameters(model, model.hidden_size)


def fc1_parameters(model: Model) -> int:
    """First feed-forward matrix of a dense layer (both branches when gated) and its column-parallel bias."""
    return model.fc1_width * (model.hidden_size + int(model.ffn_bias))


def fc2_parameters(model: Model) -> int:
    """Weights of the second feed-forward matrix of a dense layer; its bias is replicated."""
    return model.ffn_hidden_size * model.hidden_size


def kind_matrix_parameters(model: Model, kind: Kind) -> int:
    """Parameters of one layer of a kind that tensor parallelism shards, without routed experts."""
    ffn = fc1_parameters(model) + fc2_parameters(model) if kind.ffn == "dense" else 0
    ffn += shared_expert_matrix_parameters(model) if kind.ffn == "experts" else 0
    mixer = attention_matrix_parameters(model) if kind.attends else 0
    return ffn + (mamba_parameters(model) if kind.mixer == "mamba" else mixer)


def kind_replicated_parameters(model: Model, kind: Kind) -> int:
    """Parameters of one layer of a kind that every tensor-parallel rank holds; a part alone has one norm."""
    norms = layer_norm_parameters(model) if kind.parts > 1 else norm_parameters(model, model.hidden_size)
    attention = attention_replicated_parameters(model) if kind.attends else 0
    ffn = int(model.ffn_bias) * model.hidden_size if kind.ffn == "dense" else 0
    if kind.ffn == "experts":
        shared = shared_expert_parameters(model) - shared_expert_matrix_parameters(model)
        ffn = shared + router_parameters(model) + expert_projection_parameters(model)
    return norms + attention + ffn


def kind_parameters(model: Model, kind: Kind) -> int:
    """All parameters of one layer of a kind."""
    experts = moe_layer_expert_parameters(model) if kind.ffn == "experts" else 0
    return kind_matrix_parameters(model, kind) + kind_replicated_parameters(model, kind) + experts


def dense_layer_matrix_parameters(model: Model) -> int:
    """Parameters of one dense layer that tensor parallelism shards: matrices and column-parallel biases."""
    return kind_matrix_parameters(model, DENSE)


def dense_layer_replicated_parameters(model: Model) -> int:
    """Parameters of one dense layer that every tensor-parallel rank holds: norms, row-parallel biases, latents."""
    return kind_replicated_parameters(model, DENSE)


def dense_layer_parameters(model: Model) -> int:
    """All parameters of one dense layer."""
    return dense_layer_matrix_parameters(model) + dense_layer_replicated_parameters(model)


def expert_matrix_parameters(model: Model) -> int:
    """Shardable parameters of one routed expert: its matrices and the bias of the first; 0 without experts."""
    if model.moe is None:
        return 0
    width, hidden_size = model.moe.expert_ffn_hidden_size, model.expert_hidden_size
    return width * (model.ffn_branches * (hidden_size + int(model.ffn_bias)) + hidden_size)


def expert_parameters(model: Model) -> int:
    """All parameters of one routed expert, the (replicated) bias of its output included; 0 without experts."""
    output_bias = model.expert_hidden_size if model.moe is not None and model.ffn_bias else 0
    return expert_matrix_parameters(model) + output_bias


def shared_expert_matrix_parameters(model: Model) -> int:
    """Shardable parameters of all shared experts of one layer together."""
    if model.moe is None:
        return 0
    width = model.moe.shared_expert_ffn_hidden_size
    return width * (model.ffn_branches * (model.hidden_size + int(model.ffn_bias)) + model.hidden_size)


def shared_expert_parameters(model: Model) -> int:
    """All parameters of the shared experts of one layer, with one output bias and the gate over them."""
    if model.moe is None:
        return 0
    output_bias = model.ffn_bias and model.moe.num_shared_experts > 0
    vectors = int(output_bias) + int(model.moe.shared_expert_gate)
    return shared_expert_matrix_parameters(model) + vectors * model.hidden_size


def router_parameters(model: Model) -> int:
    """The (replicated) router of one layer: a score per expert, and its bias; 0 without experts."""
    return 0 if model.moe is None else model.moe.num_experts * (model.hidden_size + int(model.moe.router_bias))


def expert_projection_parameters(model: Model) -> int:
    """The (replicated) projections of one layer to the width of the routed experts and back; 0 without them."""
    latent = None if model.moe is None else model.moe.latent_size
    return 0 if latent is None else 2 * model.hidden_size * latent


def moe_layer_matrix_parameters(model: Model) -> int:
    """Parameters of one layer with experts that tensor parallelism shards, without the routed experts."""
    return 0 if model.moe is None else kind_matrix_parameters(model, EXPERTS)


def moe_layer_replicated_parameters(model: Model) -> int:
    """Parameters of one layer with experts that every tensor-parallel rank holds, without the routed experts."""
    return 0 if model.moe is None else kind_replicated_parameters(model, EXPERTS)


def moe_layer_expert_parameters(model: Model) -> int:
    """All routed experts of one layer; 0 without experts."""
    return 0 if model.moe is None else model.moe.num_experts * expert_parameters(model)


def moe_layer_parameters(model: Model) -> int:
    """All parameters of one layer with experts; 0 without experts."""
    outside = moe_layer_matrix_parameters(model) + moe_layer_replicated_parameters(model)
    return outside + moe_layer_expert_parameters(model)


def mtp_projection_parameters(model: Model) -> int:
    """What a multi-token-prediction layer adds to a layer: a projection of two vectors to one, three norms."""
    return 2 * model.hidden_size**2 + 3 * norm_parameters(model, model.hidden_size)


def mtp_parameters(model: Model) -> int:
    """All multi-token-prediction layers: attention each, and a feed-forward part as in the model's last layers.

    Embedding and head are the model's own and not counted again.
    """
    layer = dense_layer_parameters(model) if model.moe is None else moe_layer_parameters(model)
    return mtp_sets(model) * (layer + mtp_projection_parameters(model))


def mtp_sets(model: Model) -> int:
    """Sets of weights of the multi-token-prediction layers; they may share one."""
    return min(model.mtp_layers, 1) if model.mtp_repeated else model.mtp_layers


def layer_matrix_parameters(model: Model) -> int:
    """Parameters of any one layer that tensor parallelism shards: matrices and column-parallel biases.

    Raises:
        BadModel: The model has layers with experts too, so that its layers are not alike.
    """
    _check_alike(model)
    return dense_layer_matrix_parameters(model)


def layer_replicated_parameters(model: Model) -> int:
    """Parameters of any one layer that every tensor-parallel rank holds: norms and row-parallel biases.

    Raises:
        BadModel: As `layer_matrix_parameters`.
    """
    _check_alike(model)
    return dense_layer_replicated_parameters(model)


def layer_parameters(model: Model) -> int:
    """All parameters of any one transformer layer.

    Raises:
        BadModel: As `layer_matrix_parameters`.
    """
    return layer_matrix_parameters(model) + layer_replicated_parameters(model)


def _check_alike(model: Model) -> None:
    if model.moe is not None:
        raise BadModel(
            f"model {model.name!r} has {model.num_moe_layers} layers with experts and {model.num_dense_layers} "
            "dense ones: no one size stands for every layer"
        )


def embedding_rows(model: Model, *, padded: bool = False, tp: int = 1) -> int:
    """Rows of the embedding: the vocabulary, or what training on `tp` ranks allocates for it.

    Padded, it is the model's own `padded_vocab_size` when that splits over `tp`, else `padded_vocabulary`.
    """
    if not padded:
        return model.vocab_size
    stated = model.padded_vocab_size
    if stated is not None and stated % tp == 0:
        return stated
    return padded_vocabulary(model.vocab_size, tp=tp)


def embedding_parameters(model: Model, *, padded: bool = False, tp: int = 1) -> int:
    """The token embedding, with the projections and the norm that may follow it.

    A factorised embedding is projected to the hidden width, and back in front of a tied head (OPT-350M,
    ERNIE): both projections count here when the head is tied.
    """
    table = embedding_rows(model, padded=padded, tp=tp) * model.embedding_width
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


def head_parameters(model: Model, *, padded: bool = False, tp: int = 1) -> int:
    """Weights of the output head that it does not share with the embedding, and its bias."""
    rows = embedding_rows(model, padded=padded, tp=tp)
    weights = 0 if model.tied_embeddings else rows * model.hidden_size
    return weights + rows * int(model.head_bias)


def final_norm_parameters(model: Model) -> int:
    """The norm in front of the output head."""
    return norm_parameters(model, model.hidden_size) if model.final_norm else 0


def parameters(model: Model, *, padded: bool = False, tp: int = 1) -> int:
    """All parameters of the model; those of the published checkpoint when not padded.

        L (12 h^2 + 13 h) + (V + s) h + 2 h  of a GPT of L layers of width h, V tokens and s positions

    Args:
        model: The architecture.
        padded: Count the rows that pad the vocabulary too.
        tp: Tensor ranks that the padded vocabulary is split over.

    Returns:
        Parameters.

    Source:
        [Narayanan21], equation 2.

    >>> from costmodels.model.catalogue import model
    >>> L, h, V, s = 96, 12288, 50257, 2048
    >>> parameters(model("gpt3-175b")) == L * (12 * h**2 + 13 * h) + (V + s) * h + 2 * h
    True
    """
    return (
        parameters_without_embedding(model)
        + embedding_parameters(model, padded=padded, tp=tp)
        + position_parameters(model)
        + head_parameters(model, padded=padded, tp=tp)
    )


def parameters_without_embedding(model: Model) -> int:
    """Parameters without token embedding, position table and output head: the layers and the final norm."""
    layers = sum(count * kind_parameters(model, kind) for kind, count in Counter(layer_kinds(model)).items())
    return layers + mtp_parameters(model) + final_norm_parameters(model)


def active_parameters(model: Model) -> int:
    """Parameters that one token meets: all but the routed experts that it is not sent to.

    Embedding and head count, as in most published figures ("37B activated" of DeepSeek-V3).
    """
    if model.moe is None:
        return parameters(model)
    idle = (model.moe.num_experts - model.moe.top_k) * expert_parameters(model)
    return parameters(model) - (model.num_moe_layers + mtp_sets(model)) * idle


def from_run(shape: Mapping[str, object], *, name: str = "custom", vocab_size: int = 51200) -> Model:
    """The model of a measured run, whose description is often shorter than a model's.

    As `from_shape`, with two gaps closed: an unsaid vocabulary is `vocab_size` (Megatron-LM's GPT-2 tokens,
    padded), and where the description does not say whether the head shares the embedding, `params_b`
    (billions of parameters) decides if the usual answer misses it by more than 3 % and the other is nearer.

    Raises:
        BadModel: As `from_shape`.
    """
    said = dict(shape)
    if said.get("vocab_size") is None:
        said["vocab_size"] = vocab_size
    model, billions = from_shape(said, name=name), said.get("params_b")
    if said.get("tied_embeddings") is not None or not isinstance(billions, int | float) or billions <= 0:
        return model
    other = model.model_copy(update={"tied_embeddings": not model.tied_embeddings})
    miss, other_miss = (abs(parameters(each) / (1e9 * billions) - 1) for each in (model, other))
    return other if miss > 0.03 and other_miss < miss else model
