"""A model as arguments of Megatron-LM's ``pretrain_gpt.py``, as of Megatron-Core 0.17."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

from costmodels.model.model import Experts, LatentAttention, Mamba, Model

_ACTIVATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "gelu": (),
    "swiglu": ("--swiglu",),
    "squared_relu": ("--squared-relu",),
}
_CLAMPED: Final = ("--quick-geglu", "--glu-linear-offset", "1.0", "--activation-func-clamp-value", "7.0")
"""GPT-OSS's: x sigmoid(1.702 x) times a linear branch plus one, both clamped at seven (its config's `swiglu_limit`)."""
_STEERED: Final = ("--moe-router-score-function", "sigmoid", "--moe-router-enable-expert-bias")
_POSITIONS: Final[Mapping[str, str]] = {"rotary": "rope", "learned": "learned_absolute", "none": "none"}
_NORMS: Final[Mapping[str, str]] = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}


def model_arguments(model: Model, *, seq_length: int) -> tuple[list[str], tuple[str, ...]]:
    """Sizes and switches of a model, and remarks on what the arguments cannot say of it.

    The tokenizer is a stand-in that has the vocabulary's size, an end of document of its own included; a later
    --tokenizer-type replaces it.
    """
    words = [
        *_sizes(model, seq_length),
        *_attention(model),
        *_feed_forward(model),
        *(_experts(model, model.moe) if model.moe else ()),
        *(_STEERED if model.router_steered else ()),
        *(_latent(model.mla) if model.mla else ()),
        *(_mamba(model.mamba) if model.mamba else ()),
        *(("--mtp-num-layers", str(model.mtp_layers)) if model.mtp_layers and not model.layer_pattern else ()),
    ]
    return words, tuple(f"the model is not whole: Megatron-LM's arguments have no {lack}" for lack in _lacks(model))


def _sizes(model: Model, seq_length: int) -> Iterator[str]:
    yield from () if model.layer_pattern else ("--num-layers", str(model.num_layers))
    yield from ("--hidden-size", str(model.hidden_size), "--ffn-hidden-size", str(model.ffn_hidden_size))
    yield from ("--seq-length", str(seq_length))
    yield from ("--max-position-embeddings", str(max(seq_length, model.max_positions)))
    yield from ("--position-embedding-type", _POSITIONS.get(model.position, "none"))
    # Of latent attention Megatron rotates the part that is there for it, and takes a share of that.
    if model.position == "rotary" and model.rotary_fraction < 1.0 and model.mla is None:
        yield from ("--rotary-percent", f"{model.rotary_fraction:g}")
    yield from ("--tokenizer-type", "NullTokenizer", "--vocab-size", str(model.vocab_size - 1))
    if model.padded_vocab_size:
        yield from ("--padded-vocab-size", str(model.padded_vocab_size))
    yield from () if model.tied_embeddings else ("--untie-embeddings-and-output-weights",)


def _attention(model: Model) -> Iterator[str]:
    yield from ("--num-attention-heads", str(model.num_heads))
    if model.num_query_groups < model.num_heads and model.mla is None:
        yield from ("--group-query-attention", "--num-query-groups", str(model.num_query_groups))
    if model.mla is None and model.head_dim * model.num_heads != model.hidden_size:
        yield from ("--kv-channels", str(model.head_dim))
    yield from () if model.qk_norm == "none" and model.mla is None else ("--qk-layernorm",)
    if model.sliding_window is not None and not model.chunked_attention:
        yield from ("--window-size", f"{model.sliding_window - 1},0")
        every = model.sliding_window_every
        yield from ("--window-attn-skip-freq", str(every)) if every else ()
    yield from ("--softmax-type", "learnable") if model.attention_sinks else ()


def _feed_forward(model: Model) -> Iterator[str]:
    yield from ("--normalization", _NORMS[model.norm])
    yield from (
        _CLAMPED
        if model.clamped_activation and model.activation == "swiglu"
        else _ACTIVATIONS.get(model.activation, ())
    )
    if not (model.output_bias or model.ffn_bias):
        yield "--disable-bias-linear"
        yield from ("--add-qkv-bias",) if model.qkv_bias and model.mla is None else ()


def _experts(model: Model, moe: Experts) -> Iterator[str]:
    yield from ("--num-experts", str(moe.num_experts), "--moe-router-topk", str(moe.top_k))
    yield from ("--moe-ffn-hidden-size", str(moe.expert_ffn_hidden_size), "--moe-grouped-gemm")
    if not model.layer_pattern and model.num_moe_layers < model.num_layers:
        yield from ("--moe-layer-freq", _frequency([moe.is_moe_layer(layer) for layer in range(model.num_layers)]))
    if moe.num_shared_experts:
        yield from ("--moe-shared-expert-intermediate-size", str(moe.shared_expert_ffn_hidden_size))
        yield from ("--moe-shared-expert-gate",) if moe.shared_expert_gate else ()
    if moe.router_groups > 1:
        yield from ("--moe-router-num-groups", str(moe.router_groups))
        yield from ("--moe-router-group-topk", str(moe.router_group_top_k))
    yield from ("--moe-latent-size", str(moe.latent_size)) if moe.latent_size else ()


def _frequency(layers: list[bool]) -> str:
    """Which layers have experts, as a Python expression of a list."""
    return "+".join(f"[{int(has)}]*{len(list(same))}" for has, same in groupby(layers))


def _latent(mla: LatentAttention) -> Iterator[str]:
    yield "--multi-latent-attention"
    yield from ("--q-lora-rank", str(mla.q_lora_rank)) if mla.q_lora_rank else ()
    yield from ("--kv-lora-rank", str(mla.kv_lora_rank), "--qk-head-dim", str(mla.qk_nope_head_dim))
    yield from ("--qk-pos-emb-head-dim", str(mla.qk_rope_head_dim), "--v-head-dim", str(mla.v_head_dim))


def _mamba(mamba: Mamba) -> Iterator[str]:
    yield from ("--mamba-num-heads", str(mamba.num_heads), "--mamba-head-dim", str(mamba.head_dim))
    yield from ("--mamba-state-dim", str(mamba.state_size), "--mamba-num-groups", str(mamba.num_groups))


def _lacks(model: Model) -> Iterator[str]:
    yield from (f"activation {model.activation}",) if model.activation not in _ACTIVATIONS else ()
    yield from (f"positions of kind {model.position}",) if model.position not in _POSITIONS else ()
    lacks = {
        "factor on rotary positions (YaRN) outside latent attention": model.rotary_scaled and model.mla is None,
        "clamps of an activation other than SwiGLU": model.clamped_activation and model.activation != "swiglu",
        "norm of queries and keys over all heads together": model.qk_norm == "full",
        "attention in chunks": model.chunked_attention and model.sliding_window is not None,
        "block whose two halves run in parallel": model.parallel_block,
        "norms behind a block": model.num_norms > 2,
        "norm behind the embedding": model.embedding_norm,
        "factorised embedding": model.embedding_size is not None,
        "bias of the output head": model.head_bias,
        "localized filtering": model.localized_filtering,
        "norms without weights": not model.norm_weight,
        "biases of only some projections": model.output_bias != model.ffn_bias,
    }
    yield from (name for name, holds in lacks.items() if holds)
