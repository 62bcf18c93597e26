"""A model as arguments of Megatron-LM's ``pretrain_gpt.py``, as of Megatron-Core 0.19."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from costmodels.model.model import Experts, LatentAttention, Model
from planner.frameworks.megatron import POSITIONS, model_lacks
from planner.jobs.models import model_constants

_ACTIVATIONS: Final[dict[str, dict[str, Any]]] = {
    "gelu": {},
    "swiglu": {"swiglu": True},
    "squared_relu": {"squared_relu": True},
}
_CLAMPED: Final = {"quick_geglu": True, "glu_linear_offset": "1.0", "activation_func_clamp_value": "7.0"}
"""GPT-OSS's: x sigmoid(1.702 x) times a linear branch plus one, both clamped at seven (its config's `swiglu_limit`)."""
_STEERED: Final = {"moe_router_score_function": "sigmoid", "router_bias": True}


def model_values(model: Model, *, seq_length: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Sizes and switches of a model by the fields of Megatron-LM's options, and remarks on what these cannot say of it.

    The tokenizer is a stand-in that has the vocabulary's size, an end of document of its own included; a later
    --tokenizer-type replaces it.
    """
    values = _sizes(model, seq_length) | _attention(model) | _feed_forward(model) | _constants(model)
    values |= _experts(model, model.moe) if model.moe else {}
    values |= _STEERED if model.router_steered else {}
    values |= _latent(model.mla) if model.mla else {}
    if model.mamba:
        sizes = ("num_heads", "head_dim", "state_size", "num_groups")
        values |= {f"mamba_{name}": getattr(model.mamba, name) for name in sizes}
    values |= {"mtp_layers": model.mtp_layers} if model.mtp_layers and not model.layer_pattern else {}
    return values, tuple(
        f"the model is not complete: Megatron-LM's options have no {lack}" for lack in model_lacks(model)
    )


def _sizes(model: Model, seq_length: int) -> dict[str, Any]:
    # Of latent attention Megatron rotates the part that is there for it, and takes a share of that.
    part = model.position == "rotary" and model.rotary_fraction < 1.0 and model.mla is None
    return {
        "num_layers": None if model.layer_pattern else model.num_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.ffn_hidden_size,
        "seq_length": seq_length,
        "max_positions": max(seq_length, model.max_positions),
        "position": model.position if model.position in POSITIONS else "none",
        "rotary_fraction": model.rotary_fraction if part else None,
        "tokenizer_type": "NullTokenizer",
        "vocab_size": model.vocab_size - 1,
        "padded_vocab_size": model.padded_vocab_size or None,
        "untied_embeddings": not model.tied_embeddings,
    }


def _constants(model: Model) -> dict[str, Any]:
    """Bases and epsilons of a model that the catalogue knows, of which Megatron-LM's own are few models' of today."""
    known = model_constants(model.name)
    values: dict[str, Any] = {"norm_epsilon": f"{known['norm_epsilon']:g}"} if known else {}
    if not known or model.position != "rotary":
        return values
    values["rotary_base"] = known["rotary_base"]
    if factor := known.get("rotary_scaling"):
        values |= {"use_rope_scaling": True, "rope_scaling_factor": factor}
    if model.mla and (yarn := known.get("yarn")):
        values |= {"rotary_scaling_factor": yarn[0], "mscale": yarn[1], "mscale_all_dim": yarn[1]}
    return values


def _attention(model: Model) -> dict[str, Any]:
    plain = model.mla is None
    window = None if model.chunked_attention else model.sliding_window
    grouped = model.num_query_groups < model.num_heads and plain
    # Of latent attention its own sizes count, but the heads have to divide the hidden size unless a width is given.
    wide = model.head_dim * model.num_heads != model.hidden_size if plain else model.hidden_size % model.num_heads > 0
    return {
        "num_heads": model.num_heads,
        "group_query_attention": grouped,
        "num_query_groups": model.num_query_groups if grouped else None,
        "head_dim": model.head_dim if wide else None,
        "qk_norm": model.qk_norm != "none" or not plain,
        "sliding_window": None if window is None else f"{window - 1},0",
        "sliding_window_every": None if window is None else model.sliding_window_every or None,
        "attention_sinks": True if model.attention_sinks else None,
    }


def _feed_forward(model: Model) -> dict[str, Any]:
    clamped = model.clamped_activation and model.activation == "swiglu"
    unbiased = not (model.output_bias or model.ffn_bias)
    return {
        "norm": model.norm,
        **(_CLAMPED if clamped else _ACTIVATIONS.get(model.activation, {})),
        "disable_bias_linear": unbiased,
        "add_qkv_bias": unbiased and model.qkv_bias and model.mla is None,
    }


def _experts(model: Model, moe: Experts) -> dict[str, Any]:
    some = not model.layer_pattern and model.num_moe_layers < model.num_layers
    kinds = groupby(moe.is_moe_layer(layer) for layer in range(model.num_layers))
    frequency = "+".join(f"[{int(has)}]*{len(list(same))}" for has, same in kinds)  # a list as Python writes it
    shared, grouped = moe.num_shared_experts, moe.router_groups > 1
    return {
        "num_experts": moe.num_experts,
        "top_k": moe.top_k,
        "expert_ffn_hidden_size": moe.expert_ffn_hidden_size,
        "moe_grouped_gemm": True,
        "router_pre_softmax": moe.top_k == 1 and not model.router_steered,  # of one score a softmax has no gradient
        "moe_layer_freq": frequency if some else None,
        "shared_expert_ffn_hidden_size": moe.shared_expert_ffn_hidden_size if shared else None,
        "shared_expert_gate": bool(shared and moe.shared_expert_gate),
        "router_groups": moe.router_groups if grouped else None,
        "router_group_top_k": moe.router_group_top_k if grouped else None,
        "latent_size": moe.latent_size or None,
    }


def _latent(mla: LatentAttention) -> dict[str, Any]:
    return {
        "multi_latent_attention": True,
        "q_lora_rank": mla.q_lora_rank or None,
        **{name: getattr(mla, name) for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")},
    }
