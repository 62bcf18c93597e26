"""Adapters of the Hugging Face families with mixture-of-experts layers or latent attention."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from costmodels.model.huggingface_config import Config, Fields, biases, llama_decoder, tied, upper_window, window
from costmodels.model.huggingface_towers import left_out_parts
from costmodels.model.parts import BadModel

# Families whose configuration holds the decoder beside a vision tower, where that does not name its own family.
STANDING_ALONE = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}
"""Families whose files may hold the decoder's entries themselves."""
TEXT_PARTS = {"llama4": "llama4_text", "gemma3": "gemma3_text", "minimax_m3_vl": "minimax_m3", "step3p7": "step3p5"}

LATENT_FIELDS = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def text_part(config: Mapping[str, object]) -> Mapping[str, object]:
    """The decoder's own configuration, where the file describes a vision tower too; else the file."""
    inner = config.get("text_config")
    if not isinstance(inner, Mapping):
        flat = STANDING_ALONE.get(str(config.get("model_type")))
        return {**config, "model_type": flat} if flat and "num_hidden_layers" in config else config
    whole = str(config.get("model_type"))
    family = TEXT_PARTS.get(whole) or inner.get("model_type") or STANDING_ALONE.get(whole)
    outer = {"tie_word_embeddings": config["tie_word_embeddings"]} if "tie_word_embeddings" in config else {}
    return {**inner, **outer, "model_type": family} if family else config


def left_out(config: Mapping[str, object]) -> str:
    """What of a configuration is no part of its model: towers of unknown kind, layers that predict further tokens."""
    parts = left_out_parts(config)
    mtp = text_part(config).get("num_nextn_predict_layers")
    layers = f"layers that predict further tokens (--set model.mtp_layers={mtp})" if mtp else ""
    return " and ".join(filter(None, (*parts, layers)))


def _routed(config: Config, *, experts: str, width: str, top_k: int | None, **more: object) -> Fields:
    """The `moe` fields under the family's spellings; `top_k` is the family's default."""
    return {
        "num_experts": config.count(experts),
        "top_k": config.count("num_experts_per_tok", default=top_k),
        "expert_ffn_hidden_size": config.count(width),
        **more,
    }


def _all_experts(config: Config, *, experts: str = "num_local_experts", top_k: int = 2) -> Fields:
    """A LLaMA-like decoder whose every layer has experts of `intermediate_size`."""
    moe = _routed(config, experts=experts, width="intermediate_size", top_k=top_k)
    return llama_decoder(config) | {"moe": moe}


def _phimoe(config: Config) -> Fields:
    return {
        **_all_experts(config),
        **window(config, every=None),
        "norm": "layernorm",
        "norm_bias": True,
        "head_bias": config.switch("lm_head_bias", default=False),
    }


def _leading(config: Config, field: str) -> int:
    """How many leading layers a list of layer numbers names; a gap in it cannot be described."""
    listed = config.get(field) or []
    if not isinstance(listed, list) or listed != list(range(len(listed))):
        raise config.wrong(field, "a list of leading layers 0, 1, ...")
    return len(listed)


def _sparse(config: Config) -> Fields:
    """Which layers have experts in the Qwen families."""
    return {
        "dense_layers": _leading(config, "mlp_only_layers"),
        "moe_every": config.count("decoder_sparse_step", default=1),
    }


def _qwen2_moe(config: Config) -> Fields:
    shared = {
        "num_shared_experts": 1,
        "shared_expert_ffn_hidden_size": config.count("shared_expert_intermediate_size"),
        "shared_expert_gate": True,
    }
    moe = _routed(config, experts="num_experts", width="moe_intermediate_size", top_k=4, **shared, **_sparse(config))
    fields = llama_decoder(config) | {"qkv_bias": config.switch("qkv_bias", default=True), "moe": moe}
    return fields | upper_window(config)


def _qwen3_moe(config: Config) -> Fields:
    experts = "num_experts" if config.get("num_experts") is not None else "num_local_experts"
    moe = _routed(config, experts=experts, width="moe_intermediate_size", top_k=8, **_sparse(config))
    fields = llama_decoder(config) | {"qk_norm": "head", "moe": moe}
    return fields | upper_window(config)


def _deepseek(config: Config, *, router_steered: bool) -> Fields:
    """The prediction layers whose number a configuration states are not part of the instantiated model."""
    if config.switch("mlp_bias", default=False):
        raise BadModel(f"{config.label}: mlp_bias: biases everywhere but in routed experts are not supported")
    if config.count("moe_layer_freq", default=1) != 1:
        raise config.wrong("moe_layer_freq", "1")
    latent = {field: config.count(field) for field in LATENT_FIELDS}
    queries = None if config.get("q_lora_rank") in (None, 0) else config.count("q_lora_rank")
    rotated, width = latent["qk_rope_head_dim"], latent["qk_rope_head_dim"] + latent["qk_nope_head_dim"]
    # Files state no head width, or that of a part of it.
    whole = replace(config, entries={**config.entries, "head_dim": width})
    return llama_decoder(whole) | {
        "num_query_groups": config.count("num_attention_heads"),
        "rotary_fraction": rotated / width,
        "mla": latent | {"q_lora_rank": queries},
        "moe": _deepseek_experts(config, router_steered=router_steered),
    }


def _deepseek_experts(config: Config, *, router_steered: bool) -> Fields:
    shared, width = config.count_or_zero("n_shared_experts"), config.count("moe_intermediate_size")
    return _routed(
        config,
        experts="n_routed_experts",
        width="moe_intermediate_size",
        top_k=None,
        num_shared_experts=shared,
        shared_expert_ffn_hidden_size=shared * width,
        dense_layers=config.count_or_zero("first_k_dense_replace"),
        router_steered=router_steered,
        **_groups(config),
    )


def _groups(config: Config) -> Fields:
    """How many groups of experts there are and how many a token may go to; plain selection has one of one."""
    limited = config.get("topk_method") != "greedy" and config.get("n_group") is not None
    return {
        "router_groups": config.count("n_group") if limited else 1,
        "router_group_top_k": config.count("topk_group") if limited else 1,
    }


def _dbrx(config: Config) -> Fields:
    attention, ffn = config.inner("attn_config"), config.inner("ffn_config")
    shape = {
        "num_hidden_layers": config.count("n_layers"),
        "hidden_size": config.count("d_model"),
        "num_attention_heads": config.count("n_heads"),
        "num_key_value_heads": attention.count("kv_n_heads", default=1),
        "intermediate_size": ffn.count("ffn_hidden_size"),
        "max_position_embeddings": config.reach("max_seq_len"),
        "num_experts_per_tok": ffn.count("moe_top_k", default=1),
        "num_local_experts": ffn.count("moe_num_experts", default=4),
    }
    return {
        **_all_experts(Config(shape, config.label)),
        "norm": "layernorm",
        "norm_bias": False,
        **tied(config, default=False),
    }


def _gpt_oss(config: Config) -> Fields:
    attention_bias = config.switch("attention_bias", default=True)
    moe = _routed(config, experts="num_local_experts", width="intermediate_size", top_k=4, router_bias=True)
    return {
        **llama_decoder(config),
        **biases(qkv=attention_bias, output=attention_bias, ffn=True),
        **window(config, every=2),
        "attention_sinks": True,
        "clamped_activation": True,
        "moe": moe,
    }


def _llama4(config: Config) -> Fields:
    every = config.count("interleave_moe_layer_step", default=1)
    num_layers, width = config.count("num_hidden_layers"), config.count("intermediate_size")
    layers = list(range(every - 1, num_layers, every))
    if config.get("moe_layers") not in (None, [], layers):
        raise config.wrong("moe_layers", f"every layer chosen by interleave_moe_layer_step {every}")
    moe = _routed(
        config,
        experts="num_local_experts",
        width="intermediate_size",
        top_k=1,
        num_shared_experts=1,
        shared_expert_ffn_hidden_size=width,
        moe_every=every,
    )
    return {
        **llama_decoder(config),
        # Its norm on queries and keys has no weights.
        "ffn_hidden_size": config.count("intermediate_size_mlp", default=2 * width),
        **window(config, every=config.count("no_rope_layer_interval", default=4), field="attention_chunk_size"),
        "chunked_attention": True,
        "moe": moe,
    }


EXPERT_ADAPTERS: dict[str, Callable[[Config], Fields]] = {
    "dbrx": _dbrx,
    "deepseek_v2": partial(_deepseek, router_steered=False),
    "deepseek_v3": partial(_deepseek, router_steered=True),
    "gpt_oss": _gpt_oss,
    "granitemoe": _all_experts,
    "kimi_k2": partial(_deepseek, router_steered=True),
    "llama4_text": _llama4,
    "mixtral": lambda config: _all_experts(config) | window(config, every=None),
    "olmoe": lambda config: _all_experts(config, experts="num_experts", top_k=8) | {"qk_norm": "full"},
    "phimoe": _phimoe,
    "qwen2_moe": _qwen2_moe,
    "qwen3_moe": _qwen3_moe,
    "qwen3_omni_moe_text": _qwen3_moe,
    "qwen3_vl_moe_text": _qwen3_moe,
}
"""Family to adapter; see `costmodels.model.huggingface.ADAPTERS`."""
