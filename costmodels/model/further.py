"""What a layer has besides mixer and network: indexers, compressed keys, narrow branches, residual streams.

All of it is whole on every tensor rank, over the rank's own tokens, and in one form: matrices, further learned
numbers, values moved through memory, values kept.

[DeepSeek-V3.2]: DeepSeek-AI, arXiv 2512.02556, section 2.1.
[DeepSeek-V4]: DeepSeek-AI, technical report, sections 2.2 (residual streams) and 2.3 (compressed keys), as implemented
    in transformers' deepseek_v4.
[Gemma3n]: Google, as implemented in transformers' gemma3n; residual streams of AltUp, arXiv 2301.13310; narrow branches
    of LAuReL, arXiv 2411.07501.
[KimiK3]: Kimi Team, arXiv 2607.24653, section 2.2, equations 8 to 10.
[Zamba]: P. Glorioso et al., "Zamba", arXiv 2405.16712, and "Zamba2", arXiv 2411.15242.
[JetMoE]: Y. Shen et al., "JetMoE", arXiv 2404.07413, section 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from costmodels.model.mixers import Projection

if TYPE_CHECKING:
    from costmodels.model.layer_kinds import Kind
    from costmodels.model.model import Model


class Further(NamedTuple):
    """One mechanism of a layer; values are per token and of the whole width."""

    projections: tuple[Projection, ...]
    vectors: int = 0
    """Learned numbers in addition to the matrices."""
    moved: float = 0.0
    """Values that its forward pass moves through memory; the backward pass moves twice as many."""
    kept: float = 0.0
    """Values kept for the backward pass."""


def norm_parameters(model: Model, width: int) -> int:
    """Parameters of one norm over `width` values."""
    return width * (int(model.norm_weight) + int(model.norm_bias))


def further_parts(model: Model, kind: Kind) -> tuple[Further, ...]:
    """What a layer of a kind has, in the order of the forward pass; most models have none."""
    found = (
        _shared_block(model, kind),
        _attention_experts(model, kind),
        _compressor(model, kind),
        _indexer(model, kind),
        _branch(model, model.per_layer_embedding),
        _branch(model, model.narrow_branch),
        _streams(model),
    )
    return tuple(part for part in found if part is not None)


def further_projections(model: Model, kind: Kind) -> tuple[Projection, ...]:
    """All their matrices."""
    return tuple(projection for part in further_parts(model, kind) for projection in part.projections)


def further_parameters(model: Model, kind: Kind) -> int:
    """All their parameters."""
    return sum(sum(p.weights for p in part.projections) + part.vectors for part in further_parts(model, kind))


def entries_of(model: Model, kind: Kind) -> tuple[int, int | None] | None:
    """Tokens that one compressed key stands for, and how many of them a query attends to at most; None without any."""
    if model.compressed is None or kind.mixer not in ("compressed", "compressed_sparse"):
        return None
    if kind.mixer == "compressed":
        return model.compressed.dense_rate, None
    return model.compressed.sparse_rate, None if model.indexer is None else model.indexer.top_k


def scored_keys(model: Model, kind: Kind, seq_length: float) -> float:
    """Keys of an indexer that one query of it is multiplied with on average; 0 without one."""
    if model.indexer is None or kind.mixer not in ("sparse", "compressed_sparse"):
        return 0.0
    entries = entries_of(model, kind)
    return seq_length / 2.0 / (1 if entries is None else entries[0])


def _shared_block(model: Model, kind: Kind) -> Further | None:
    """What a layer has for itself of a block that others run too: a matrix behind it, low-rank additions [Zamba]."""
    blocks, h = model.shared_blocks, model.hidden_size
    if blocks is None or not kind.attends:
        return None
    parts = [Projection("behind", h, h, sharded=False)]
    if rank := blocks.attention_rank:
        parts += 3 * [Projection("down", 2 * h, rank, sharded=False), Projection("up", rank, 2 * h, sharded=False)]
    if rank := blocks.network_rank:
        parts += [Projection("down", h, rank, sharded=False), Projection("up", rank, model.fc1_width, sharded=False)]
    return Further(tuple(parts), moved=2.0 * h, kept=3.0 * h + 3.0 * blocks.attention_rank + blocks.network_rank)


def _attention_experts(model: Model, kind: Kind) -> Further | None:
    """The router of attention's experts [JetMoE]; every token is copied to its experts and their outputs are summed."""
    if not model.attention_experts or not kind.attends:
        return None
    h, chosen = model.hidden_size, model.num_heads // model.num_query_groups
    return Further((Projection("attention_router", h, model.attention_experts, sharded=False),), moved=4.0 * chosen * h)


def _compressor(model: Model, kind: Kind) -> Further | None:
    """Keys of so many tokens each by a learned softmax over them [DeepSeek-V4].

    Where few of them are selected there are two series that overlap.
    """
    entries = entries_of(model, kind)
    if entries is None:
        return None
    series, d = 1 if kind.mixer == "compressed" else 2, model.head_dim
    return _pooled(model, "compressed", series * d, rate=entries[0], norm=d)


def _pooled(model: Model, name: str, width: int, *, rate: int, norm: int) -> Further:
    """A value and a weight of every token, summed over ``rate`` tokens."""
    h = model.hidden_size
    two = Projection(f"{name}_keys", h, width, sharded=False), Projection(f"{name}_gates", h, width, sharded=False)
    return Further(two, rate * width + norm, moved=2.0 * width + 2.0 * width / rate, kept=2.0 * width)


def _indexer(model: Model, kind: Kind) -> Further | None:
    """What selects keys: queries, one key for all heads, and a weight a head [DeepSeek-V3.2].

    Queries come out of the queries' latent vector where there is one; keys may be compressed as attention's are.
    """
    if model.indexer is None or kind.mixer not in ("sparse", "compressed_sparse"):
        return None
    indexer, h, rank = model.indexer, model.hidden_size, None
    if model.compressed is not None:
        rank = model.compressed.query_rank
    elif model.mla is not None:
        rank = model.mla.q_lora_rank
    queries = Projection("index_queries", rank or h, indexer.num_heads * indexer.head_dim, sharded=False)
    weights = Projection("index_weights", h, indexer.num_heads, sharded=False)
    if kind.mixer == "compressed_sparse" and model.compressed is not None:
        rate = model.compressed.sparse_rate
        pooled = _pooled(model, "index", 2 * indexer.head_dim, rate=rate, norm=indexer.head_dim)
        return pooled._replace(projections=(queries, *pooled.projections, weights))
    names = (queries, Projection("index_key", h, indexer.head_dim, sharded=False), weights)
    return Further(names[:2] if indexer.per_group else names, 2 * indexer.head_dim)


def _branch(model: Model, width: int) -> Further | None:
    """Into a narrow width and back, with a norm behind it [Gemma3n]; None where it is 0."""
    h = model.hidden_size
    if not width:
        return None
    both = Projection("narrow", h, width, sharded=False), Projection("wide", width, h, sharded=False)
    return Further(both, norm_parameters(model, h), kept=2.0 * width)


def _streams(model: Model) -> Further | None:
    """Copies of the residual stream, read and added to by weights out of all of them or of one.

    "hyper" [DeepSeek-V4]: each of two blocks reads n streams twice to weigh and to sum them up, and writes n streams
    that it mixed and added to, where an ordinary one moves three values; a third is kept. "alternating" [Gemma3n]: once
    a layer n streams are predicted out of all n, and corrected by what one of them came to. "attended" [KimiK3]: each
    of two blocks reads the streams so far, half of them on average, by a norm and a learned query.
    """
    streams, h = model.streams, model.hidden_size
    if streams is None:
        return None
    n = streams.count
    if streams.kind == "attended":
        return Further((), 4 * h, moved=(n + 3.0) * h, kept=2.0 * h)
    if streams.kind == "hyper":
        weights = n * (n + 2)
        each = Projection("streams", n * h, weights, sharded=False)
        return Further((each, each), 2 * (weights + 3), moved=2.0 * (4.0 * n - 1.0) * h, kept=2.0 * n * h)
    router = Projection("streams", h, n, sharded=False)
    small = n * n * n + n * n + h + norm_parameters(model, h)
    return Further((router,), small, moved=(4.0 * n + 2.0 * (n - 1.0) + 1.0) * h, kept=2.0 * n * h)


def stream_ends(model: Model) -> tuple[int, int]:
    """Parameters in front of the layers and behind them that make streams of one and one of streams; 0 without any.

    "hyper" copies in front and weighs behind; "attended" reads once more behind; "alternating" has a square matrix for
    every further one at both ends.
    """
    streams, h = model.streams, model.hidden_size
    if streams is None:
        return 0, 0
    if streams.kind == "attended":
        return 0, 2 * h
    if streams.kind == "hyper":
        return 0, streams.count * (streams.count * h + 1) + 1
    return (streams.count - 1) * h * h, (streams.count - 1) * h * h


def stream_width(model: Model) -> int:
    """Values of a token between two layers: of all residual streams, or on average of those so far and their sum."""
    if model.streams is None:
        return model.hidden_size
    count = model.streams.count
    return model.hidden_size * (count // 2 + 1 if model.streams.kind == "attended" else count)
