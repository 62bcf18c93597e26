"""Mechanisms that one family of Hugging Face's table has alone: streams, compressed keys, shared blocks, patterns."""

from __future__ import annotations

from costmodels.model.huggingface_config import Config, Fields
from costmodels.model.huggingface_variants import Part, Reading, count_layers, varied
from costmodels.model.parts import BadModel


def shortcut_experts(read: Reading) -> Fields:
    """Two attention blocks and two dense networks a layer, and experts parallel to the first (LongCat-Flash).

    Each half is a layer here; the first half's dense network runs parallel to the experts as a shared one would.
    """
    count = count_layers(read.fields)
    return {
        "num_layers": 2 * count,
        "ffn_pattern": "E-" * count,
        "moe": {
            "num_experts": read.config.count("n_routed_experts"),
            "top_k": read.config.count("num_experts_per_tok"),
            "expert_ffn_hidden_size": read.config.count("moe_intermediate_size"),
            "num_shared_experts": 1,
            "shared_expert_ffn_hidden_size": read.config.count("intermediate_size"),
            "zero_experts": read.config.count_or_zero("zero_expert_num"),
            "router_steered": True,
        },
    }


def minimax_m3(read: Reading) -> Fields:
    """Dense layers of another width, and indexers that select blocks of keys where a layer is sparse."""
    found: Fields = {"ffn_hidden_size": read.config.count("dense_intermediate_size")}
    moe = read.fields.get("moe")
    if isinstance(moe, dict):
        found["moe"] = moe | {"expert_ffn_hidden_size": read.config.count("intermediate_size")}
    freq = read.config.get("sparse_layers")
    if isinstance(freq, list) and "mixer_pattern" not in read.fields:
        found["mixer_pattern"] = "".join("s" if sparse else "*" for sparse in freq)
    if "s" in str(read.fields.get("mixer_pattern", found.get("mixer_pattern", ""))):
        block = read.config.count("index_block_size")
        found["indexer"] = {
            "num_heads": read.config.count("index_n_heads"),
            "head_dim": read.config.count("index_head_dim"),
            "top_k": block * read.config.count("index_topk_blocks"),
            "per_group": True,
            "block": block,
        }
    return found


COMPRESSION = {0: "w", 4: "x", 128: "c"}
"""Letters of layers by the tokens that a compressed key stands for, in DeepSeek's own files."""


def compressed(read: Reading) -> Fields:
    """Attention in a window and to compressed keys; streams of the residual (DeepSeek-V4)."""
    config, count = read.config, count_layers(read.fields)
    letters, ratios = str(read.fields.get("mixer_pattern", "")), config.get("compress_ratios")
    if isinstance(ratios, list) and not isinstance(config.get("layer_types"), list):
        if strange := [ratio for ratio in ratios[:count] if ratio not in COMPRESSION]:
            raise BadModel(f"{config.label}: compress_ratios: keys of {strange[0]} tokens are not priced")
        letters = "".join(COMPRESSION[ratio] for ratio in ratios[:count])
    if len(letters) != count:  # two of the heavier kind, then both in turn
        letters = "".join("c" if layer < 2 or layer % 2 == 0 else "x" for layer in range(count))
    rates = config.inner("compress_rates")
    return {
        "mixer_pattern": letters,
        "num_query_groups": 1,
        "ffn_hidden_size": config.count("moe_intermediate_size"),
        "rotary_fraction": config.count("qk_rope_head_dim", default=64) / int(str(read.fields["head_dim"])),
        "compressed": {
            "query_rank": config.count("q_lora_rank"),
            "output_groups": config.count("o_groups"),
            "output_rank": config.count("o_lora_rank"),
            "sparse_rate": rates.count("compressed_sparse_attention", default=4),
            "dense_rate": rates.count("heavily_compressed_attention", default=128),
        },
        "indexer": _plain_indexer(config),
        "streams": {"count": config.count("hc_mult"), "kind": "hyper"},
        "sliding_window": config.count("sliding_window"),
    }


def _plain_indexer(config: Config) -> Fields:
    names = {"num_heads": "index_n_heads", "head_dim": "index_head_dim", "top_k": "index_topk"}
    return {field: config.count(key) for field, key in names.items()}


def gemma3n(read: Reading) -> Fields:
    """Four streams of which one is computed, narrow branches, an embedding a layer; late layers share their keys."""
    config, count = read.config, count_layers(read.fields)
    widths = config.get("intermediate_size")
    usual = widths[0] if isinstance(widths, list) else read.fields["ffn_hidden_size"]
    listed = widths if isinstance(widths, list) else [usual] * count
    if len(listed) != count:
        raise BadModel(f"{config.label}: intermediate_size: {len(listed)} entries for num_hidden_layers {count}")
    own = count - config.count_or_zero("num_kv_shared_layers")
    layers: list[Fields] = [
        ({"shared_keys": "all"} if layer >= own else {}) | ({"ffn_hidden_size": width} if width != usual else {})
        for layer, width in enumerate(listed)
    ]
    return {
        "ffn_hidden_size": usual,
        "narrow_branch": config.count("laurel_rank"),
        "streams": {"count": config.count("altup_num_inputs"), "kind": "alternating"},
        **varied([], layers),
    }


def attention_experts(read: Reading) -> Fields:
    """Queries and outputs that a token is routed among; biases behind attention and network (JetMoE)."""
    groups, chosen = read.config.count("num_key_value_heads"), read.config.count("num_experts_per_tok")
    return {
        "num_query_groups": groups,
        "num_heads": groups * chosen,
        "head_dim": read.config.count("head_dim", "kv_channels"),
        "attention_experts": read.config.count("num_local_experts"),
        "layer_vectors": 2 * int(str(read.fields["hidden_size"])),
    }


BLOCKS = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-", "moe": "E"}
"""Names of layers in `layers_block_type`, and their letters in `hybrid_override_pattern`."""


def hybrid_pattern(read: Reading) -> Fields:
    """Layers of one part each, and experts in a narrower width (Nemotron-H).

    A configuration may count experts that no layer has.
    """
    config = read.config
    letters, blocks = config.get("hybrid_override_pattern"), config.get("layers_block_type")
    if isinstance(blocks, list) and not isinstance(letters, str) and all(block in BLOCKS for block in blocks):
        letters = "".join(BLOCKS[block] for block in blocks)
    if not isinstance(letters, str):
        raise config.wrong("hybrid_override_pattern", "a letter of M, *, - or E per layer")
    found: Fields = {"layer_pattern": letters, "num_layers": config.count("num_hidden_layers", default=len(letters))}
    if "-" in letters:
        found["ffn_hidden_size"] = config.count("intermediate_size")
    if "E" not in letters:
        return found
    if config.switch("mlp_bias", default=False):
        raise BadModel(f"{config.label}: mlp_bias: biases everywhere but in routed experts are not priced")
    shared, width = config.count_or_zero("n_shared_experts"), config.count("moe_intermediate_size")
    return found | {
        "moe": {
            "num_experts": config.count("n_routed_experts"),
            "top_k": config.count("num_experts_per_tok"),
            "expert_ffn_hidden_size": width,
            "num_shared_experts": shared,
            "shared_expert_ffn_hidden_size": shared
            * config.count("moe_shared_expert_intermediate_size", default=width),
            "latent_size": None if config.get("moe_latent_size") is None else config.count("moe_latent_size"),
            "router_steered": True,
        }
    }


def receptance(read: Reading) -> Fields:
    """Recurrences by receptance in every layer, behind a norm of the embedding (RWKV)."""
    hidden = int(str(read.fields["hidden_size"]))
    return {
        "mixer_pattern": "W" * count_layers(read.fields),
        "receptance": {"width": read.config.count("attention_hidden_size", default=hidden)},
        "ffn_hidden_size": read.config.count("intermediate_size", default=4 * hidden),
    }


def attended_streams(read: Reading) -> Fields:
    """Sums of so many layers each, which all later blocks read by a softmax; gates straight from the tokens (Kimi K3).

    With such gates there is one A for each channel of a key, not for each head.
    """
    found: Fields = {}
    if size := read.config.count_or_zero("attn_res_block_size"):
        found["streams"] = {"count": 1 - -count_layers(read.fields) // size, "kind": "attended"}
    delta = read.fields.get("delta")
    if isinstance(delta, dict) and read.config.inner("linear_attn_config").switch("use_full_rank_gate", default=False):
        further = delta["key_head_dim"] - delta["num_value_heads"]
        found["delta"] = delta | {"gate_rank": None}
        found["model_vectors"] = str(read.fields["mixer_pattern"]).count("D") * further
    return found


def shared_blocks(read: Reading) -> Fields:
    """Attention of twice the width and a network that layers share, parallel to a scan in some layers (Zamba)."""
    config, heads = read.config, int(str(read.fields["num_heads"]))
    letters, hidden = str(read.fields["mixer_pattern"]), int(str(read.fields["hidden_size"]))
    if config.count("attention_hidden_size", default=2 * hidden) != 2 * hidden:
        raise config.wrong("attention_hidden_size", f"twice hidden_size {hidden}")
    second = config.get("num_mem_blocks") is not None
    adapted = config.switch("use_shared_attention_adapter", default=False)
    rank = config.count("adapter_rank", default=128) if second else 0
    found: Fields = {
        "head_dim": config.count("attention_head_dim", default=2 * hidden // heads),
        "ffn_hidden_size": config.count("intermediate_size", default=4 * hidden),
        "ffn_pattern": "".join("-" if letter in "BP" else "n" for letter in letters),
        "shared_blocks": {
            "count": config.count("num_mem_blocks", default=1),
            "attention_rank": rank * adapted,
            "network_rank": rank,
        },
    }
    return found


MECHANISMS: dict[str, Part] = {
    "attended_streams": attended_streams,
    "attention_experts": attention_experts,
    "compressed": compressed,
    "gemma3n": gemma3n,
    "hybrid_pattern": hybrid_pattern,
    "minimax_m3": minimax_m3,
    "receptance": receptance,
    "shared_blocks": shared_blocks,
    "shortcut_experts": shortcut_experts,
}
"""Name in the table to what reads it."""
