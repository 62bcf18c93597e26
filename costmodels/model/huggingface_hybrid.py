"""Adapters of the Hugging Face families with Mamba-2 mixers."""

from collections.abc import Callable

from costmodels.model.huggingface_config import (
    Config,
    Fields,
    even_heads,
    partial_rotary,
    sequence,
    stated_biases,
    tied,
)
from costmodels.model.parts import BadModel

BLOCKS = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-", "moe": "E"}
"""Names of layers in `layers_block_type`, and their letters in `hybrid_override_pattern`."""


def _pattern(config: Config) -> str:
    """One letter per layer, from either spelling."""
    letters, blocks = config.get("hybrid_override_pattern"), config.get("layers_block_type")
    if isinstance(letters, str):
        return letters
    if not isinstance(blocks, list) or not all(block in BLOCKS for block in blocks):
        raise config.wrong("hybrid_override_pattern", "a letter of M, *, - or E per layer")
    return "".join(BLOCKS[block] for block in blocks)


def _nemotron_h(config: Config) -> Fields:
    shared, num_heads, pattern = _hybrid(config), config.count("num_attention_heads"), _pattern(config)
    if "E" in pattern and config.switch("mlp_bias", default=False):
        raise BadModel(f"{config.label}: mlp_bias: biases everywhere but in routed experts are not priced")
    biased = config.switch("use_bias", default=False)
    return {
        **shared,
        "num_layers": config.count("num_hidden_layers", default=len(pattern)),
        "layer_pattern": pattern,
        "num_heads": num_heads,
        "num_query_groups": config.count("num_key_value_heads", default=num_heads),
        "head_dim": config.count("head_dim", "attention_head_dim", default=128),
        "activation": config.activation("mlp_hidden_act", default="relu2", gated=False),
        "position": "none",
        "mamba": {
            "num_heads": config.count("mamba_num_heads"),
            "head_dim": config.count("mamba_head_dim"),
            "state_size": config.count("ssm_state_size"),
            "num_groups": config.count("n_groups", "mamba_n_groups", default=8),
            "conv_kernel": config.count("conv_kernel", default=4),
            "chunk_size": config.count("chunk_size", default=128),
            "conv_bias": config.switch("use_conv_bias", default=True),
            "input_bias": biased,
            "output_bias": biased,
        },
        # A configuration may count experts that no layer has.
        "moe": _latent_experts(config) if "E" in pattern else None,
    }


def _hybrid(config: Config) -> Fields:
    """What both families say alike."""
    return {
        "hidden_size": config.count("hidden_size"),
        "ffn_hidden_size": config.count("intermediate_size"),
        **sequence(config.reach("max_position_embeddings")),
        "norm": "rmsnorm",
        **stated_biases(config),
        **tied(config, default=False),
    }


def _latent_experts(config: Config) -> Fields:
    shared = config.count_or_zero("n_shared_experts")
    each = config.count("moe_shared_expert_intermediate_size", default=config.count("moe_intermediate_size"))
    return {
        "num_experts": config.count("n_routed_experts"),
        "top_k": config.count("num_experts_per_tok"),
        "expert_ffn_hidden_size": config.count("moe_intermediate_size"),
        "num_shared_experts": shared,
        "shared_expert_ffn_hidden_size": shared * each,
        "latent_size": None if config.get("moe_latent_size") is None else config.count("moe_latent_size"),
        "router_steered": True,
    }


def _bamba(config: Config) -> Fields:
    """Every layer is a mixer and a gated feed-forward network: two letters."""
    count, hidden_size, num_heads = map(config.count, ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    attending = config.get("attn_layer_indices") or []
    if not isinstance(attending, list):
        raise config.wrong("attn_layer_indices", "a list of layers")
    return {
        **_hybrid(config),
        "num_layers": 2 * count,
        "layer_pattern": "".join("*-" if layer in attending else "M-" for layer in range(count)),
        **even_heads(config, hidden_size, num_heads, config.count("num_key_value_heads", default=num_heads)),
        "gated_ffn": True,
        "activation": config.activation("hidden_act", default="silu", gated=True),
        "position": "rotary",
        "rotary_fraction": partial_rotary(config, default=0.5),
        "mamba": {
            "num_heads": config.count("mamba_n_heads", default=128),
            "head_dim": config.count("mamba_d_head", default=64),
            "state_size": config.count("mamba_d_state", default=256),
            "num_groups": config.count("mamba_n_groups", default=1),
            "conv_kernel": config.count("mamba_d_conv", default=4),
            "chunk_size": config.count("mamba_chunk_size", default=256),
            "conv_bias": config.switch("mamba_conv_bias", default=True),
            "input_bias": config.switch("mamba_proj_bias", default=False),
            "output_bias": config.switch("mamba_proj_bias", default=False),
        },
    }


HYBRID_ADAPTERS: dict[str, Callable[[Config], Fields]] = {"bamba": _bamba, "nemotron_h": _nemotron_h}
"""Family to adapter; see `costmodels.model.huggingface.ADAPTERS`."""
