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


def count_layers(fields: Fields) -> int:
    """Layers of what is read so far."""
    return int(str(fields["num_layers"]))


def letters_of(fields: Fields, count: int) -> str:
    """A letter a layer, whichever way the fields say it."""
    if pattern := fields.get("mixer_pattern"):
        return str(pattern)
    if not fields.get("sliding_window"):
        return "*" * count
    every = fields.get("sliding_window_every")
    return "".join("*" if every and (layer + 1) % int(str(every)) == 0 else "w" for layer in range(count))


def varied(variants: list[Fields], per_layer: list[Fields]) -> Fields:
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
    moe, count = read.fields.get("moe"), count_layers(read.fields)
    if not isinstance(moe, dict):
        return {}
    first = int(str(moe.get("dense_layers", 0)))
    return varied(
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
    count, letters = count_layers(read.fields), letters_of(read.fields, count_layers(read.fields))
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
    found = varied([], layers)
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
    return {"attention_gate": gate} | varied([], [{"num_heads": n} if n != usual else {} for n in listed])


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


def mimo(read: Reading) -> Fields:
    """Layers in the window have sinks, and a number of keys and values of their own, usually twice as many (MiMo)."""
    usual = 2 * int(str(read.fields["num_query_groups"]))
    groups = read.config.count("swa_num_key_value_heads", default=usual)
    near: Fields = {"num_query_groups": groups, "attention_sinks": True}
    letters = letters_of(read.fields, count_layers(read.fields))
    found = varied([], [near if letter == "w" else {} for letter in letters])
    if read.config.get("sliding_window_size") is not None:  # without the token itself
        found["sliding_window"] = read.config.count("sliding_window_size") + 1
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
    letters = letters_of(read.fields, count_layers(read.fields))
    return varied([], [near if letter == "w" else {} for letter in letters]) if near else {}


def block_configs(read: Reading) -> Fields:
    """Heads of keys and widths listed block by block, some without attention or network (Nemotron-NAS)."""
    blocks, hidden = read.config.get("block_configs"), int(str(read.fields["hidden_size"]))
    if not isinstance(blocks, list) or len(blocks) != count_layers(read.fields):
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
    differing = varied([], [{n: v for n, v in sizes.items() if usual.get(n) != v} for sizes in per_layer])
    return usual | differing | {"mixer_pattern": mixers, "ffn_pattern": networks}


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
    return per_layer[-1] | varied([], [sizes if sizes != per_layer[-1] else {} for sizes in per_layer])


def falcon(read: Reading) -> Fields:
    """Keys for one head or for groups of them, norms and positions by the generation of the architecture (Falcon)."""
    config, heads = read.config, read.fields["num_heads"]
    grouped = config.switch("new_decoder_architecture", default=False)
    one = config.switch("multi_query", default=True) and not grouped
    parallel = grouped or config.switch("parallel_attn", default=True)
    norms = config.count("num_ln_in_parallel_attn", default=2) if grouped else 1
    groups = config.count("num_kv_heads", "n_head_kv", default=int(str(heads))) if grouped else heads
    return {
        "num_query_groups": 1 if one else groups,
        "position": "alibi" if config.switch("alibi", default=False) else "rotary",
        "parallel_block": parallel,
        "num_norms": norms if parallel else 2,
    }


def opt(read: Reading) -> Fields:
    """A factorised embedding, and a norm behind all layers where norms are in front of each (OPT)."""
    hidden = int(str(read.fields["hidden_size"]))
    width = read.config.count("word_embed_proj_dim", default=hidden)
    in_front = read.config.switch("do_layer_norm_before", default=True)
    removed = read.config.switch("_remove_final_layer_norm", default=False)
    return {"embedding_size": None if width == hidden else width, "final_norm": in_front and not removed}


def mpt(read: Reading) -> Fields:
    """Positions, norms of queries and biases by switches of its own, some of them nested (MPT)."""
    config, attention = read.config, read.config.inner("attn_config")
    hidden, biased = int(str(read.fields["hidden_size"])), not config.switch("no_bias", default=True)
    found: Fields = {
        "ffn_hidden_size": config.count("expansion_ratio", default=4) * hidden,
        "qk_norm": "full" if attention.switch("qk_ln", default=False) else "none",
        **dict.fromkeys(("norm_bias", "qkv_bias", "output_bias", "ffn_bias"), biased),
    }
    if attention.switch("alibi", default=True):
        found["position"] = "alibi"
    elif config.switch("learned_pos_emb", default=True):
        found |= {"position": "learned", "max_positions": config.reach("max_position_embeddings")}
    return found


def llama4(read: Reading) -> Fields:
    """The width of dense layers, of which `intermediate_size` is the experts' (Llama 4)."""
    return {
        "ffn_hidden_size": read.config.count(
            "intermediate_size_mlp", default=2 * read.config.count("intermediate_size")
        )
    }


def upper_window(read: Reading) -> Fields:
    """A window in the layers from `max_window_layers` on, if `use_sliding_window` asks for it (Qwen)."""
    config, count = read.config, count_layers(read.fields)
    if config.get("sliding_window") is None or not config.switch("use_sliding_window", default=False):
        return {"sliding_window": None, "sliding_window_every": None, "mixer_pattern": ""}
    if isinstance(config.get("layer_types"), list):
        return {}
    first = 28 if config.get("max_window_layers") is None else config.count_or_zero("max_window_layers")
    if first >= count:
        return {}
    found: Fields = {"sliding_window": config.count("sliding_window")}
    return found | {"mixer_pattern": "*" * first + "w" * (count - first)} if first else found


VARIANTS: dict[str, Part] = {
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
    "mimo": mimo,
    "no_window": no_window,
    "halved_width": halved_width,
    "falcon": falcon,
    "llama4": llama4,
    "mpt": mpt,
    "opt": opt,
    "upper_window": upper_window,
}
"""Name in the table to what reads it."""
