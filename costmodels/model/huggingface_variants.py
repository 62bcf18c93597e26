"""What single families of Hugging Face's table do in their own way: sizes that differ by layer, widths by formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from costmodels.model.huggingface_config import Config, Fields
from costmodels.model.parts import BadModel

Known = Mapping[str, Any]


class Reading(NamedTuple):
    """What a mechanism is read from."""

    config: Config
    """The file under common names."""
    known: Known
    """The family's entry in the table."""
    fields: Fields
    """What is read so far."""


Part = Callable[[Reading], Fields]


def _count_layers(fields: Fields) -> int:
    return int(str(fields["num_layers"]))


def _letters(fields: Fields, count: int) -> str:
    """A letter a layer, whichever way the fields say it."""
    if pattern := fields.get("mixer_pattern"):
        return str(pattern)
    if not fields.get("sliding_window"):
        return "*" * count
    every = fields.get("sliding_window_every")
    return "".join("*" if every and (layer + 1) % int(str(every)) == 0 else "w" for layer in range(count))


def _varied(variants: list[Fields], per_layer: list[Fields]) -> Fields:
    """The fields of layers that each have further sizes; those without any are the model itself."""
    for sizes in per_layer:
        if sizes and sizes not in variants:
            variants.append(sizes)
    if not variants:
        return {}
    places = [variants.index(sizes) + 1 if sizes else 0 for sizes in per_layer]
    return {"variants": tuple(variants), "variant_pattern": tuple(places)}


def norm_behind_experts(read: Reading) -> Fields:
    """Layers with experts have a norm more, of the hidden width."""
    moe, count = read.fields.get("moe"), _count_layers(read.fields)
    if not isinstance(moe, dict):
        return {}
    first = int(str(moe.get("dense_layers", 0)))
    return _varied(
        [], [{"layer_vectors": read.fields["hidden_size"]} if layer >= first else {} for layer in range(count)]
    )


def dynamic_mask(read: Reading) -> Fields:
    """A decay of keys out of the values: a matrix from all values to a number a head of them (Doge)."""
    if read.config.switch("is_moe", default=False):
        raise BadModel(f"{read.config.label}: is_moe: experts by product keys are not priced")
    groups = int(str(read.fields["num_query_groups"]))
    vectors = groups + groups * groups * int(str(read.fields["head_dim"])) + 2 * int(str(read.fields["hidden_size"]))
    vectors += groups * int(bool(read.fields["qkv_bias"]))
    return {"layer_vectors": vectors}


def gemma4(read: Reading) -> Fields:
    """Global layers have wider heads, perhaps fewer of them, and values that are the keys; late layers share theirs."""
    count, letters = _count_layers(read.fields), _letters(read.fields, _count_layers(read.fields))
    shared = count - read.config.count_or_zero("num_kv_shared_layers")
    same = read.config.switch("attention_k_eq_v", default=False)
    wide = read.config.switch("use_double_wide_mlp", default=False)
    listed = read.config.inner("per_layer_config").entries
    everywhere: Fields = {"head_dim": read.config.count("global_head_dim", default=512)}
    groups = read.config.get("num_global_key_value_heads")
    if same and isinstance(groups, int):
        everywhere["num_query_groups"] = groups
    layers: list[Fields] = []
    for layer, letter in enumerate(letters):
        sizes: Fields = dict(everywhere) if letter == "*" else {}
        own = listed.get(f"{layer:02d}", listed.get(str(layer)))
        if isinstance(own, Mapping) and letter == "*":
            names = {"head_dim": "head_dim", "num_key_value_heads": "num_query_groups"}
            sizes |= {names[name]: value for name, value in own.items() if name in names}
        if same and letter == "*":
            sizes["shared_keys"] = "values"
        if layer >= shared:
            sizes["shared_keys"] = "all"
            if wide:
                sizes["ffn_hidden_size"] = 2 * int(str(read.fields["ffn_hidden_size"]))
        layers.append(sizes)
    found = _varied([], layers)
    if not read.fields.get("per_layer_embedding"):
        found["per_layer_vocab_size"] = 0
    if "moe" in read.fields:  # norms before and behind either network, and a scale of the router's input
        found["layer_vectors"] = 4 * int(str(read.fields["hidden_size"]))
        if not read.config.switch("enable_moe_block", default=False):
            found["moe"] = None
            found.pop("layer_vectors")
    return found


def multiple_width(read: Reading) -> Fields:
    """A width as a multiple of the hidden size; the last layer alone has a bias of attention (GPT-NeoX Japanese)."""
    hidden = int(str(read.fields["hidden_size"]))
    times = read.config.count("intermediate_multiple_size", default=4)
    return {"ffn_hidden_size": times * hidden, "model_vectors": hidden}


def shared_alone(read: Reading) -> Fields:
    """Without routed experts the shared one is the layer's network; positions are rotated only where that is said."""
    position = "rotary" if read.config.get("position_embedding_type") == "rope" else "none"
    found: Fields = {"position": position}
    if "mixer_pattern" not in read.fields or "M" not in str(read.fields["mixer_pattern"]):
        found["mamba"] = None
    if "moe" not in read.fields:
        found["ffn_hidden_size"] = read.config.count("shared_intermediate_size")
    return found


def heads_per_layer(read: Reading) -> Fields:
    """Attention heads listed layer by layer; the gate has one number a head or one a value."""
    gate = {True: "head", "per-head": "head"}.get(read.config.get("gating"), "value")
    listed = read.config.get("num_attention_heads_per_layer")
    if not isinstance(listed, list):
        return {"attention_gate": gate}
    usual = read.fields["num_heads"]
    return {"attention_gate": gate} | _varied([], [{"num_heads": n} if n != usual else {} for n in listed])


def adjusted_width(read: Reading) -> Fields:
    """Two thirds of what is said, times a factor, rounded up to a multiple (LFM2)."""
    width = int(str(read.fields["ffn_hidden_size"]))
    if not read.config.switch("block_auto_adjust_ff_dim", default=True):
        return {}
    width = 2 * width // 3
    factor = read.config.get("block_ffn_dim_multiplier")
    if isinstance(factor, int | float):
        width = int(factor * width)
    multiple = read.config.count("block_multiple_of", default=256)
    return {"ffn_hidden_size": -(-width // multiple) * multiple}


def shortcut_experts(read: Reading) -> Fields:
    """Two attention blocks and two dense networks a layer, and experts beside the first (LongCat-Flash).

    Each half is a layer here; the first half's dense network runs beside the experts as a shared one would.
    """
    count = _count_layers(read.fields)
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


def mimo(read: Reading) -> Fields:
    """Layers in the window have twice the keys and values, and sinks (MiMo-V2)."""
    groups = int(str(read.fields["num_query_groups"]))
    near: Fields = {"num_query_groups": 2 * groups, "attention_sinks": True}
    letters = _letters(read.fields, _count_layers(read.fields))
    found = _varied([], [near if letter == "w" else {} for letter in letters])
    if read.config.get("sliding_window_size") is not None:  # without the token itself
        found["sliding_window"] = read.config.count("sliding_window_size") + 1
    return found


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


def no_window(read: Reading) -> Fields:
    """A window that is only used where that is said."""
    if read.config.switch("use_sliding_window", default=False):
        return {}
    return {"sliding_window": None, "sliding_window_every": None, "mixer_pattern": ""}


def halved_width(read: Reading) -> Fields:
    """Both branches of a gated network together are as wide as is said."""
    return {"ffn_hidden_size": int(str(read.fields["ffn_hidden_size"])) // 2}


def sliding_heads(read: Reading) -> Fields:
    """Layers in the window have heads of a number of their own (Step 3.5)."""
    heads, groups = read.config.get("sliding_heads"), read.config.get("sliding_groups")
    near = {"num_heads": heads, "num_query_groups": groups}
    near = {name: value for name, value in near.items() if value is not None and value != read.fields[name]}
    letters = _letters(read.fields, _count_layers(read.fields))
    return _varied([], [near if letter == "w" else {} for letter in letters]) if near else {}


def block_configs(read: Reading) -> Fields:
    """Heads of keys and widths listed block by block, some without attention or network (Nemotron-NAS)."""
    blocks, hidden = read.config.get("block_configs"), int(str(read.fields["hidden_size"]))
    if not isinstance(blocks, list) or len(blocks) != _count_layers(read.fields):
        raise read.config.wrong("block_configs", "one entry a layer")
    per_layer: list[Fields] = []
    mixers, networks = "", ""
    for block in blocks:
        inner = Config(block, f"{read.config.label}: block_configs")
        attention, ffn = inner.inner("attention"), inner.inner("ffn")
        if attention.get("replace_with_linear") or ffn.get("replace_with_linear") or attention.get("window_length"):
            raise BadModel(f"{inner.label}: blocks of a single matrix or with a window are not priced")
        sizes: Fields = {}
        if not attention.get("no_op"):
            sizes["num_query_groups"] = int(str(read.fields["num_heads"])) // attention.count("n_heads_in_group")
        times = ffn.get("ffn_mult")
        if not ffn.get("no_op") and isinstance(times, int | float):
            sizes["ffn_hidden_size"] = -(-int(2 * times * hidden / 3) // 256) * 256
        mixers += "n" if attention.get("no_op") else "*"
        networks += "n" if ffn.get("no_op") else "-"
        per_layer.append(sizes)
    usual = next((sizes for sizes in per_layer if len(sizes) == 2), per_layer[0])
    varied = _varied([], [{n: v for n, v in sizes.items() if usual.get(n) != v} for sizes in per_layer])
    return usual | varied | {"mixer_pattern": mixers, "ffn_pattern": networks}


def openelm(read: Reading) -> Fields:
    """Heads and widths listed layer by layer (OpenELM)."""
    config, hidden = read.config, int(str(read.fields["hidden_size"]))
    heads, groups, times = (config.get(name) for name in ("num_query_heads", "num_kv_heads", "ffn_multipliers"))
    if not isinstance(heads, list) or not isinstance(groups, list) or not isinstance(times, list):
        raise config.wrong("num_query_heads", "lists of heads, of key heads and of multipliers")
    divisor = config.count("ffn_dim_divisor", default=256)
    widths = [max(divisor, int(factor * hidden + divisor / 2) // divisor * divisor) for factor in times]
    per_layer: list[Fields] = [
        {"num_heads": n, "num_query_groups": g, "ffn_hidden_size": w}
        for n, g, w in zip(heads, groups, widths, strict=True)
    ]
    return per_layer[-1] | _varied([], [sizes if sizes != per_layer[-1] else {} for sizes in per_layer])


COMPRESSION = {0: "w", 4: "x", 128: "c"}
"""Letters of layers by the tokens that a compressed key stands for, in DeepSeek's own files."""


def compressed(read: Reading) -> Fields:
    """Attention in a window and to compressed keys; streams of the residual (DeepSeek-V4)."""
    config, count = read.config, _count_layers(read.fields)
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
    config, count = read.config, _count_layers(read.fields)
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
        **_varied([], layers),
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


def receptance(read: Reading) -> Fields:
    """Recurrences by receptance in every layer, behind a norm of the embedding (RWKV)."""
    hidden = int(str(read.fields["hidden_size"]))
    return {
        "mixer_pattern": "W" * _count_layers(read.fields),
        "receptance": {"width": read.config.count("attention_hidden_size", default=hidden)},
        "ffn_hidden_size": read.config.count("intermediate_size", default=4 * hidden),
    }


def attended_streams(read: Reading) -> Fields:
    """Sums of so many layers each, which all later blocks read by a softmax; gates straight from the tokens (Kimi K3).

    With such gates there is one A for each channel of a key, not for each head.
    """
    found: Fields = {}
    if size := read.config.count_or_zero("attn_res_block_size"):
        found["streams"] = {"count": 1 - -_count_layers(read.fields) // size, "kind": "attended"}
    delta = read.fields.get("delta")
    if isinstance(delta, dict) and read.config.inner("linear_attn_config").switch("use_full_rank_gate", default=False):
        further = delta["key_head_dim"] - delta["num_value_heads"]
        found["delta"] = delta | {"gate_rank": None}
        found["model_vectors"] = str(read.fields["mixer_pattern"]).count("D") * further
    return found


def shared_blocks(read: Reading) -> Fields:
    """Attention of twice the width and a network that layers share, beside a scan in some layers (Zamba)."""
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


FURTHER_PARTS: dict[str, Part] = {
    "norm_behind_experts": norm_behind_experts,
    "dynamic_mask": dynamic_mask,
    "gemma4": gemma4,
    "multiple_width": multiple_width,
    "shared_alone": shared_alone,
    "heads_per_layer": heads_per_layer,
    "block_configs": block_configs,
    "sliding_heads": sliding_heads,
    "openelm": openelm,
    "adjusted_width": adjusted_width,
    "shortcut_experts": shortcut_experts,
    "mimo": mimo,
    "minimax_m3": minimax_m3,
    "no_window": no_window,
    "halved_width": halved_width,
    "compressed": compressed,
    "gemma3n": gemma3n,
    "attended_streams": attended_streams,
    "attention_experts": attention_experts,
    "receptance": receptance,
    "shared_blocks": shared_blocks,
}
"""Name in the table to what reads it."""
