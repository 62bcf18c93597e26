"""Exact parameter counts of a model, split as the memory and communication formulas need them.

All counts are whole numbers of parameters. "Sharded" means split over the tensor-parallel ranks by a
column- or row-parallel layer as in Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053, section 3);
"replicated" means that every tensor-parallel rank holds the whole thing.
"""

from collections.abc import Mapping

from costmodels.model import Model, from_shape


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


def qkv_parameters(model: Model) -> int:
    """Query, key and value projections of one layer, with their (column-parallel) biases."""
    return model.qkv_width * (model.hidden_size + int(model.qkv_bias))


def attention_output_parameters(model: Model) -> int:
    """Weights of the attention output projection of one layer; its bias is replicated."""
    return model.attention_width * model.hidden_size


def fc1_parameters(model: Model) -> int:
    """First feed-forward matrix of one layer (both branches when gated) and its column-parallel bias."""
    return model.fc1_width * (model.hidden_size + int(model.ffn_bias))


def fc2_parameters(model: Model) -> int:
    """Weights of the second feed-forward matrix of one layer; its bias is replicated."""
    return model.ffn_hidden_size * model.hidden_size


def localized_filtering_parameters(model: Model) -> int:
    """Localized filtering of one layer: convolutions [2, 1, H, H/2] and [2, 1, H/2, H], 2H^2 (Yuan 2.0).

    Source: Yuan 2.0 (arXiv 2311.15786), section 3.1. The norm behind them is counted as replicated.
    """
    return 2 * model.hidden_size**2 if model.localized_filtering else 0


def layer_matrix_parameters(model: Model) -> int:
    """Parameters of one layer that tensor parallelism shards: matrices and column-parallel biases."""
    return (
        qkv_parameters(model)
        + attention_output_parameters(model)
        + fc1_parameters(model)
        + fc2_parameters(model)
        + localized_filtering_parameters(model)
    )


def qk_norm_parameters(model: Model) -> int:
    """Norms on queries and keys of one layer; they have a scale and no shift."""
    if model.qk_norm == "none":
        return 0
    return 2 * model.head_dim if model.qk_norm == "head" else model.attention_width + model.key_value_width


def layer_replicated_parameters(model: Model) -> int:
    """Parameters of one layer that every tensor-parallel rank holds: norms and row-parallel biases."""
    row_parallel_biases = model.hidden_size * (int(model.output_bias) + int(model.ffn_bias))
    num_norms = model.num_norms + int(model.localized_filtering)
    norms = num_norms * norm_parameters(model, model.hidden_size)
    return row_parallel_biases + norms + qk_norm_parameters(model)


def layer_parameters(model: Model) -> int:
    """All parameters of one transformer layer."""
    return layer_matrix_parameters(model) + layer_replicated_parameters(model)


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
    """All parameters of the model; those of the published checkpoint when not padded."""
    return (
        parameters_without_embedding(model)
        + embedding_parameters(model, padded=padded, tp=tp)
        + position_parameters(model)
        + head_parameters(model, padded=padded, tp=tp)
    )


def parameters_without_embedding(model: Model) -> int:
    """Parameters without token embedding, position table and output head: the layers and the final norm."""
    return model.num_layers * layer_parameters(model) + final_norm_parameters(model)


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
