"""Floating-point operations of training.

A multiplication and an addition count as two operations. An efficiency only means something together with
the definition of the operations it counts; `scripts/flop_definitions.py` names those that publications use.

Symbols of the papers: L layers, H hidden size, S sequence length, V vocabulary, N parameters (of experts,
those that a token meets).
"""

from collections import Counter
from functools import lru_cache
from typing import Literal

from costmodels.model.further import entries_of, further_projections, scored_keys, stream_ends
from costmodels.model.layer_kinds import DENSE, Kind, layer_kinds, mtp_kind, reach_of
from costmodels.model.mixers import mixer_of
from costmodels.model.model import Model
from costmodels.model.parameters import (
    attention_projections,
    embedding_projection_parameters,
    expert_projection_parameters,
    experts_of,
    localized_filtering_parameters,
)
from costmodels.primitives.kernels import attention_flops as pair_flops

Recompute = Literal["none", "selective", "full"]


FORWARD_AND_BACKWARD = 3
"""The backward pass multiplies twice per forward multiplication: by the weight and by the input."""


def attention_matmul_weights(model: Model) -> int:
    """Weights of one layer's attention projections, and of localized filtering."""
    projections = sum(projection.weights for projection in attention_projections(model))
    return projections + localized_filtering_parameters(model)


def kind_matmul_weights(model: Model, kind: Kind) -> int:
    """Weights of one layer of a kind that multiply a token."""
    model = model.with_sizes_of(kind.variant)
    mixer = attention_matmul_weights(model) if kind.attends else 0
    mixer += sum(projection.weights for projection in further_projections(model, kind))
    mixer += mixer_of(model, kind.other_mixer).matmul_weights if kind.other_mixer else 0
    dense = (model.fc1_width + model.ffn_hidden_size) * model.hidden_size
    return mixer + (dense if kind.ffn == "dense" else expert_matmul_weights(model) if kind.ffn == "experts" else 0)


def expert_matmul_weights(model: Model) -> int:
    """Weights of one layer's router and experts that multiply a token: of the experts, those it is routed to.

    Router, projections to and from the experts' width, `top_k` routed experts, shared experts and their gate; no token
    is dropped.
    """
    moe, h = experts_of(model), model.hidden_size
    matrices = model.ffn_branches + 1
    each = matrices * moe.expert_ffn_hidden_size * model.expert_hidden_size
    routed = int(moe.computed_experts * each) if moe.zero_experts else moe.top_k * each
    shared = matrices * moe.shared_expert_ffn_hidden_size * h + int(moe.shared_expert_gate) * h
    scores = (moe.num_experts + moe.zero_experts) * h
    return scores + expert_projection_parameters(model) + routed + shared


def layers_matmul_weights(model: Model) -> int:
    """Weights of all layers together that multiply a token, multi-token-prediction layers included, without logits."""
    layers = sum(count * kind_matmul_weights(model, kind) for kind, count in Counter(layer_kinds(model)).items())
    mtp = kind_matmul_weights(model, mtp_kind(model)) + 2 * model.hidden_size**2
    return layers + model.mtp_layers * mtp


def logit_matmul_weights(model: Model) -> int:
    """Weights that multiply every token outside the layers: the output head, and embedding projections.

    Every multi-token-prediction layer passes the head once more.
    """
    width = model.embedding_width if model.tied_embeddings else model.hidden_size
    ends = sum(stream_ends(model)) + embedding_projection_parameters(model)
    return (1 + model.mtp_layers) * model.vocab_size * width + ends


def _attending(model: Model, seq_length: int, *, causal: bool, windowed: bool) -> list[tuple[Kind, int, float]]:
    """Every kind of layer that attends, how many there are, and the tokens that one token attends to there."""
    kinds = Counter(kind for kind in layer_kinds(model) if kind.attends)
    found = [
        (kind, count, _attended(model, kind, seq_length, causal=causal, windowed=windowed))
        for kind, count in kinds.items()
    ]
    if model.mtp_layers:
        found.append((DENSE, model.mtp_layers, seq_length / 2 if causal else float(seq_length)))
    return found


def _attended(model: Model, kind: Kind, seq_length: int, *, causal: bool, windowed: bool) -> float:
    """Tokens that one token attends to in a layer of a kind, averaged over the sequence.

    A global layer counts S, or S/2 when `causal`. A local layer with window w <= S counts w, or
    w - w^2 / 2S when `causal` (the first tokens have fewer predecessors), which meets S/2 at w = S; one that
    attends in chunks of w, w or w/2. `windowed` honours the window; otherwise every layer is global.
    """
    entries = entries_of(model, kind)
    if entries is not None and windowed:
        keys = _within(seq_length / entries[0], entries[1], causal=causal)
        return keys + _within(float(seq_length), model.sliding_window, causal=causal)
    every = seq_length / 2 if causal else float(seq_length)
    reach = reach_of(model, kind)
    if not windowed or reach is None:
        return every
    window = min(reach, seq_length)
    if model.chunked_attention and kind.mixer == "local":
        whole, rest = divmod(seq_length, window)
        return (whole * window**2 + rest**2) / seq_length / (2 if causal else 1)
    return _within(float(seq_length), window, causal=causal)


def _within(seq_length: float, reach: int | None, *, causal: bool) -> float:
    """Keys of ``seq_length`` that one query attends to on average, of at most ``reach``."""
    window = seq_length if reach is None else min(reach, seq_length)
    return window - window**2 / (2 * seq_length) if causal else float(window)


def attention_flops(model: Model, *, seq_length: int, causal: bool = False, windowed: bool = True) -> float:
    """Forward FLOP per token of scores and weighted values in all layers.

    Per attended token, 2 for each element of a query (scores) and 2 for each of a value: 4 times the
    attention width where both are as wide.
    """
    return sum(
        count
        * (
            _pair_flops(model.with_sizes_of(kind.variant), span)
            + windowed * _indexer_flops(model, kind, seq_length, causal=causal)
        )
        for kind, count, span in _attending(model, seq_length, causal=causal, windowed=windowed)
    )


def _pair_flops(model: Model, span: float) -> float:
    """Of one layer and token that attends to ``span`` others."""
    widths = {"key_width": model.attention_width, "value_width": model.attention_output_width}
    return float(pair_flops(pairs=span, **widths))


def _indexer_flops(model: Model, kind: Kind, seq_length: int, *, causal: bool) -> float:
    """Of one token whose keys a layer's indexer selects, out of all of them; 0 without one."""
    if model.indexer is None:
        return 0.0
    keys = (2.0 if causal else 4.0) * scored_keys(model, kind, float(seq_length))
    return keys * model.indexer.num_heads * model.indexer.head_dim


@lru_cache(maxsize=64)
def forward_flops(
    model: Model, *, seq_length: int, causal: bool = False, windowed: bool = True, logits: bool = True
) -> float:
    """FLOP per token of one forward pass: 2 per weight that multiplies it, plus attention and Mamba-2 scans."""
    weights = layers_matmul_weights(model)
    weights += logit_matmul_weights(model) if logits else 0
    attention = attention_flops(model, seq_length=seq_length, causal=causal, windowed=windowed)
    mixers = Counter(kind.other_mixer for kind in layer_kinds(model) if kind.other_mixer)
    return 2.0 * weights + attention + sum(count * mixer_of(model, name).flops for name, count in mixers.items())


def model_flops(model: Model, *, seq_length: int, causal: bool = False, windowed: bool = False) -> float:
    """FLOP per token of training without recomputation: one forward and one backward pass with logits.

    For a plain GPT it is 72 L H^2 (1 + S/6H + V/12LH) (Narayanan et al. 2021, arXiv 2104.04473, without
    its recomputed forward pass), equally 6 x weights + 12 L S H (PaLM, arXiv 2204.02311, appendix B);
    here for any head width, grouped queries, gated feed-forward networks, latent attention, the experts that
    a token is routed to, and multi-token-prediction layers.

    Args:
        model: The architecture.
        seq_length: Sequence length S, tokens.
        causal: Count only the pairs that causal attention needs, about half.
        windowed: Count only the pairs inside the sliding window.

    Returns:
        FLOP per token.

    >>> from costmodels.model.catalogue import model
    >>> gpt, L, H, S = model("gpt3-175b"), 96, 12288, 2048
    >>> round(model_flops(gpt, seq_length=S) / (72 * L * H**2 * (1 + S / (6 * H) + gpt.vocab_size / (12 * L * H))), 9)
    1.0
    """
    return FORWARD_AND_BACKWARD * forward_flops(model, seq_length=seq_length, causal=causal, windowed=windowed)


def recomputed_flops(model: Model, *, seq_length: int, recompute: Recompute, windowed: bool = False) -> float:
    """FLOP per token that the backward pass spends on repeating the forward pass.

    "selective" repeats scores and weighted values (Korthikanti et al. 2022, arXiv 2205.05198, section 5),
    "full" whole layers; logits are never repeated.
    """
    if recompute == "none":
        return 0.0
    if recompute == "selective":
        return attention_flops(model, seq_length=seq_length, windowed=windowed)
    return forward_flops(model, seq_length=seq_length, windowed=windowed, logits=False)


def module_flops(model: Model, *, seq_length: int, modules: tuple[str, ...], windowed: bool = False) -> float:
    """FLOP per token that repeating named modules of every layer adds; norms and activations multiply nothing.

    ``modules`` are names of ``costmodels.names.MODULES``.
    """
    matrices, h, moe = model.ffn_branches + 1, model.hidden_size, model.moe
    shared = matrices * moe.shared_expert_ffn_hidden_size * h if moe else 0
    up = sum(p.weights for p in attention_projections(model) if p.name in {"q_up", "kv_up"})
    weights = {
        "mlp": model.num_dense_layers * (model.fc1_width + model.ffn_hidden_size) * h,
        "moe": model.num_moe_layers * expert_matmul_weights(model) if moe else 0,
        "shared_experts": model.num_moe_layers * shared,
        "mla_up_proj": model.num_layers * up,
    }
    core = attention_flops(model, seq_length=seq_length, windowed=windowed) if "core_attn" in modules else 0.0
    return core + 2.0 * sum(weights.get(name, 0) for name in modules)


def frozen_flops(model: Model) -> float:
    """FLOP per token of all weights' gradients: what a run with frozen weights leaves out."""
    return 2.0 * (layers_matmul_weights(model) + logit_matmul_weights(model))


def utilization(*, flops: float, seconds: float, gpus: int, peak: float) -> float:
    """Share of the accelerators' peak that an iteration uses: of model FLOP MFU, of hardware FLOP HFU.

        F / (t n P)

    Args:
        flops: F, of the iteration.
        seconds: t, of the iteration.
        gpus: n, accelerators.
        peak: P, dense FLOP per second of one.

    Returns:
        A share.

    Source:
        [Chowdhery22], appendix B.

    >>> round(utilization(flops=4.5e18, seconds=30.0, gpus=1024, peak=312e12), 3)
    0.47
    """
    return flops / (seconds * gpus * peak)
