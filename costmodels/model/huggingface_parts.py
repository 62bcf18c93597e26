"""Mechanisms that families of Hugging Face's table are made of: kinds of layer, experts, latent attention, mixers."""

from __future__ import annotations

from collections.abc import Sequence

from costmodels.model.huggingface_config import Config, Fields
from costmodels.model.huggingface_mechanisms import MECHANISMS
from costmodels.model.huggingface_variants import VARIANTS, Known, Part, Reading
from costmodels.model.parts import BadModel

LAYER_LETTERS = {
    "full_attention": "*",
    "attention": "*",
    "global_attention": "*",
    "sliding_attention": "w",
    "chunked_attention": "w",
    "indexed_attention": "s",
    "deepseek_sparse_attention": "s",
    "conv": "C",
    "recurrent": "R",
}
"""Letters of kinds that all families name alike."""
BOTH = ("mamba_proj_bias", "use_bias")
"""Keys of the biases of both projections of a Mamba-2 mixer."""
RULES = frozenset({"usual", "other", "offset", "offset_key"})
"""Of what a family says of its layers, rules rather than kinds."""
LISTS = ("layer_types", "layers_block_type", "block_types", "attention_layers")
"""Keys that list the kinds of layers."""


def layers(read: Reading) -> Fields:
    """What mixes the tokens of every layer, from a list of kinds or the family's rhythm."""
    said = read.known.get("layers", {})
    letters = _listed(read.config, said, int(str(read.fields["num_layers"]))) or _rhythm(
        read.config, said, int(str(read.fields["num_layers"]))
    )
    found: Fields = {}
    if "w" in letters:
        size = read.config.get("sliding_window") or read.config.get("attention_chunk_size")
        if size is None:
            letters = letters.replace("w", "*")
        else:
            found["sliding_window"] = read.config.count("sliding_window", "attention_chunk_size")
    if set(letters) == {"*"}:
        return {}
    every = regular(letters, "*", "w")
    if every is not None:
        return found | {"sliding_window_every": every or None}
    return found | {"mixer_pattern": letters}


def _listed(config: Config, said: Known, count: int) -> str:
    """A letter a layer out of a list of kinds; empty where there is none."""
    key = next((name for name in LISTS if isinstance(config.get(name), list)), "")
    kinds = config.get(key) if key else None
    if not isinstance(kinds, list) or said.get("unlisted"):
        return ""
    own = {name: said[name] for name in said.keys() - RULES if isinstance(said[name], str)}
    known = {**LAYER_LETTERS, **own}
    if strange := sorted({str(kind) for kind in kinds if not (isinstance(kind, str) and kind in known)}):
        raise BadModel(
            f"{config.label}: {key}: layers of kind {', '.join(strange)} are not priced; {', '.join(known)} are"
        )
    if key == "block_types" and len(kinds) < count:
        kinds = [kinds[place % len(kinds)] for place in range(count)]
    if len(kinds) != count:
        raise BadModel(f"{config.label}: {key}: {len(kinds)} entries for num_hidden_layers {count}; give one per layer")
    return "".join(known[kind] for kind in kinds)


def _rhythm(config: Config, said: Known, count: int) -> str:
    """A letter a layer by the family's rule: every n-th is another, the first or the last of n; or lists of indices."""
    usual, other = said.get("usual", "*"), said.get("other", "*")
    for key, codes in said.get("codes", {}).items():
        listed = config.get(key)
        if isinstance(listed, list) and len(listed) == count and all(str(code) in codes for code in listed):
            return "".join(codes[str(code)] for code in listed)
    for key in said.get("indices", ()):
        listed = config.get(key)
        if isinstance(listed, list):
            start = said.get("counted_from", 0)
            return "".join(other if layer + start in listed else usual for layer in range(count))
    if said.get("listed"):
        raise BadModel(f"{config.label}: layer_types: missing from the Hugging Face configuration; give one per layer")
    if "every" not in said:
        return usual * count
    pattern = config.get("sliding_window_pattern")
    if isinstance(pattern, str):  # of L, which sees the window, and G, which sees all, over and over
        return "".join("w" if pattern[layer % len(pattern)] == "L" else "*" for layer in range(count))
    every = config.count(*said.get("every_keys", ("sliding_window_pattern",)), default=said["every"])
    offset = every - 1 if said.get("offset", "last") == "last" else 0
    if (key := said.get("offset_key")) and config.get(key) is not None:
        offset = config.count_or_zero(key)
    letters = [other if layer % every == offset else usual for layer in range(count)]
    for place in said.get("also", ()):
        letters[place] = other
    return "".join(letters)


def regular(letters: str, one: str, rest: str) -> int | None:
    """Every how many letters one is ``one``, the last of so many; 0 where none is; None where that is not regular."""
    if one not in letters:
        return 0 if set(letters) == {rest} else None
    every = letters.index(one) + 1
    wanted = "".join(one if (place + 1) % every == 0 else rest for place in range(len(letters)))
    return every if letters == wanted else None


def latent(read: Reading) -> Fields:
    """Latent attention; a query of no latent vector where its rank is 0 or unsaid."""
    ranks = {name: read.config.count(name) for name in ("kv_lora_rank", "qk_nope_head_dim", "v_head_dim")}
    unrotated = read.config.get("qk_rope_head_dim") == 0
    ranks["qk_rope_head_dim"] = 0 if unrotated else read.config.count("qk_rope_head_dim")
    queries = None if read.config.get("q_lora_rank") in (None, 0) else read.config.count("q_lora_rank")
    width = ranks["qk_nope_head_dim"] + ranks["qk_rope_head_dim"]
    return {
        "num_query_groups": read.fields["num_heads"],
        "head_dim": width,
        "rotary_fraction": ranks["qk_rope_head_dim"] / width,
        "qk_norm": "none",
        "mla": ranks | {"q_lora_rank": queries},
    }


def experts(read: Reading) -> Fields:
    """Experts and which layers have them; none where a file counts none or one."""
    said = dict(read.known.get("experts", {}))
    if read.config.get("mlp_bias") is True or (read.fields["ffn_bias"] is True and not said.get("router_bias")):
        raise BadModel(f"{read.config.label}: mlp_bias: biases everywhere but in routed experts are not priced")
    count = _uniform(read.config, "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    needed, one_counts = said.pop("needed", False), said.pop("one_counts", False)
    if needed and not count:
        raise BadModel(f"{read.config.label}: num_local_experts: missing from the Hugging Face configuration")
    if not count or (count == 1 and not one_counts):
        return {}
    widths = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    width = read.config.count(widths[0]) if said.pop("own_width", False) else _uniform(read.config, *widths)
    moe: dict[str, object] = {
        "num_experts": count,
        "top_k": _uniform(read.config, "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k"),
        "expert_ffn_hidden_size": width,
        **_shared(read.config, said, width or 0),
        **_groups(read.config),
        **_latent_width(read.config),
    }
    for name, (key, *meanings) in said.pop("choose", {}).items():
        value = read.config.get(key)
        moe[name] = (meanings[0] if value else meanings[1]) if meanings else value
    said.pop("shared", None)
    where = _sparse_layers(read.config, said.pop("dense", 0), int(str(read.fields["num_layers"])))
    return _placed(moe | said, where) if any(where) else {}


def _uniform(config: Config, *names: str) -> int | None:
    """A count that may be listed layer by layer, where all layers agree."""
    said = {name: config.get(name) for name in names}
    name = next((name for name in names if said[name] is not None), names[0])
    value = said[name]
    if isinstance(value, list):
        if len(set(map(str, value))) > 1:
            raise BadModel(f"{config.label}: {name}: layers that differ in their experts are not priced")
        value = value[0]
        return int(value) if isinstance(value, int) else None
    return None if value is None else config.count_or_zero(name)


def _shared(config: Config, said: Known, width: int) -> Fields:
    """Shared experts: their width together, by its own key or as many times an expert's."""
    rule = said.get("shared", "count")
    if rule == "none":
        return {}
    whole = _uniform(config, "shared_expert_intermediate_size", "shared_intermediate_size")
    number = _uniform(config, "n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
    if rule == "dense":  # a dense network of its own in addition to the routed ones
        number, whole = 1, config.count("intermediate_size")
    elif rule == "whole":
        number = 1 if whole else 0
    elif rule == "each":
        each = _uniform(config, "moe_shared_expert_intermediate_size", "shared_expert_intermediate_size") or width
        whole = (number or 0) * each
    elif rule == "one":
        number, whole = 1, width
    else:
        whole = (number or 0) * width
    return {"num_shared_experts": number, "shared_expert_ffn_hidden_size": whole} if number and whole else {}


def _latent_width(config: Config) -> Fields:
    """Width that tokens are projected to in front of routed experts, where a file says one."""
    width = _uniform(config, "moe_latent_size", "routed_expert_hidden_size")
    norm = config.switch("latent_moe_use_norm", default=False)
    return {"latent_size": width, "latent_norm": norm} if width else {}


def _groups(config: Config) -> Fields:
    """How many groups of experts there are and how many a token may go to; plain selection has one of one."""
    groups = config.get("n_group")
    limited = config.get("topk_method") != "greedy" and isinstance(groups, int) and groups > 1
    if not limited:
        return {}
    return {"router_groups": config.count("n_group"), "router_group_top_k": config.count("topk_group")}


def _sparse_layers(config: Config, usual: int, count: int) -> list[bool]:
    """Which layers have experts, by whichever key says it; all but so many leading ones where none does."""
    kinds, switches = config.get("mlp_layer_types"), config.get("moe_layer_freq")
    if isinstance(kinds, list):
        return [kind != "dense" for kind in kinds]
    listed = config.get("moe_layers") or config.get("moe_layers_enum")
    if isinstance(listed, str):
        listed = [int(layer) for layer in listed.split(",") if layer.strip().isdigit()]
    if isinstance(listed, list):
        return [layer in listed for layer in range(count)]
    if isinstance(switches, list):
        return [bool(switch) for switch in switches]
    dense = config.get("mlp_only_layers")
    leading = _key(config, "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
    first = usual if config.get(leading) is None else config.count_or_zero(leading)
    every, offset = 1, 0
    for name in ("decoder_sparse_step", "moe_layer_interval", "expert_layer_period", "interleave_moe_layer_step"):
        every = config.count(name, default=every)
    if isinstance(switches, int):
        every = config.count("moe_layer_freq")
    elif "expert_layer_offset" in config.entries:
        offset = config.count_or_zero("expert_layer_offset")
    elif every > 1:
        offset = every - 1
    last = config.get("moe_layer_end_index")
    last = last if isinstance(last, int) and last >= 0 else count - 1
    if not isinstance(dense, list | None):
        raise config.wrong("mlp_only_layers", "a list of layers")
    but = dense or []
    return [first <= layer <= last and layer % every == offset and layer not in but for layer in range(count)]


def _key(config: Config, *names: str) -> str:
    return next((name for name in names if config.get(name) is not None), names[0])


def _placed(moe: Fields, where: Sequence[bool]) -> Fields:
    """The experts, and where they are: leading dense layers and a rhythm where that says it, else a letter a layer."""
    first = where.index(True)
    if all(where[first:]):
        return {"moe": moe | {"dense_layers": first}}
    letters = "".join("E" if sparse else "-" for sparse in where)
    if every := regular(letters, "E", "-"):
        return {"moe": moe | {"moe_every": every}}
    return {"moe": moe, "ffn_pattern": letters}


def delta(read: Reading) -> Fields:
    """A delta rule; nothing where no layer has one."""
    if "D" not in str(read.fields.get("mixer_pattern", "")):
        return {}
    heads = read.config.count("linear_num_value_heads", "linear_num_heads")
    width = read.config.count("linear_value_head_dim", "linear_head_dim")
    return {
        "delta": {
            "num_value_heads": heads,
            "num_key_heads": read.config.count("linear_num_key_heads", default=heads),
            "key_head_dim": read.config.count("linear_key_head_dim", default=width),
            "value_head_dim": width,
            "conv_kernel": read.config.count("linear_conv_kernel_dim", "short_conv_kernel_size", default=4),
            **{name: width if rank == "head" else rank for name, rank in read.known.get("delta", {}).items()},
        }
    }


def mamba(read: Reading) -> Fields:
    """Mamba-2 mixers."""
    hidden, said = read.config.count("hidden_size"), read.known.get("mamba", {})
    inner = read.config.count("mamba_d_ssm", default=read.config.count("mamba_expand", "expand", default=2) * hidden)
    heads = read.config.count("mamba_n_heads", "mamba_num_heads", "n_mamba_heads")
    width = read.config.get("mamba_d_head")
    found = {
        "num_heads": heads,
        "head_dim": width
        if isinstance(width, int)
        else read.config.count("mamba_head_dim", "mamba_headdim", default=inner // heads),
        "state_size": read.config.count("mamba_d_state", "ssm_state_size", "state_size"),
        "num_groups": read.config.count("mamba_n_groups", "n_groups", "mamba_ngroups", default=1),
        "conv_kernel": read.config.count("mamba_d_conv", "conv_kernel", default=4),
        "chunk_size": read.config.count("mamba_chunk_size", "chunk_size", default=256),
        "conv_bias": read.config.switch(_key(read.config, "mamba_conv_bias", "use_conv_bias"), default=True),
        "input_bias": read.config.switch(_key(read.config, "mamba_proj_bias", "use_bias"), default=False),
        "output_bias": read.config.switch(_key(read.config, *said.get("output_bias", BOTH)), default=False),
    }
    if "gated_norm" in said:
        found["gated_norm"] = read.config.switch(said["gated_norm"], default=True)
    return {"mamba": found}


def selective(read: Reading) -> Fields:
    """Selective scans."""
    hidden = read.config.count("hidden_size")
    inner = read.config.count("mamba_inner", default=read.config.count("mamba_expand", "expand", default=2) * hidden)
    rank = read.config.get("mamba_dt_rank") or read.config.get("time_step_rank")
    return {
        "selective": {
            "inner_width": inner,
            "state_size": read.config.count("mamba_d_state", "state_size", default=16),
            "step_rank": rank if isinstance(rank, int) else -(-hidden // 16),
            "conv_kernel": read.config.count("mamba_d_conv", "conv_kernel", default=4),
            "conv_bias": read.config.switch(_key(read.config, "mamba_conv_bias", "use_conv_bias"), default=True),
            "projection_bias": read.config.switch(_key(read.config, "mamba_proj_bias", "use_bias"), default=False),
            **read.known.get("selective", {}),
        }
    }


def linear(read: Reading) -> Fields:
    """Linear attention of a fixed decay."""
    return {
        "linear": {
            "num_heads": read.fields["num_heads"],
            "head_dim": read.fields["head_dim"],
            "chunk_size": read.config.count("block_size", default=256),
        }
    }


def convolution(read: Reading) -> Fields:
    """Short convolutions."""
    if "C" not in str(read.fields.get("mixer_pattern", "")):
        return {}
    kernel = read.config.count("conv_L_cache", default=3)
    return {"convolution": {"kernel": kernel, "bias": read.config.switch("conv_bias", default=False)}}


def recurrent(read: Reading) -> Fields:
    """Gated linear recurrences."""
    return {
        "recurrent": {
            "width": read.config.count("lru_width", default=read.config.count("hidden_size")),
            "num_blocks": read.fields["num_heads"],
            "conv_kernel": read.config.count("conv1d_width", default=4),
        }
    }


def indexer(read: Reading) -> Fields:
    """Sparse attention's indexer; every layer has one unless kinds are listed."""
    found: Fields = {
        "indexer": {
            "num_heads": read.config.count("index_n_heads"),
            "head_dim": read.config.count("index_head_dim"),
            "top_k": read.config.count("index_topk"),
        }
    }
    letters = str(read.fields.get("mixer_pattern", "s" * int(str(read.fields["num_layers"]))))
    kinds = read.config.get("indexer_types")
    if isinstance(kinds, list) and len(kinds) == len(letters):  # some layers take what an earlier one selected
        letters = "".join("t" if kind == "shared" else letter for kind, letter in zip(kinds, letters, strict=True))
    return found | {"mixer_pattern": letters}


PARTS: dict[str, Part] = {
    "layers": layers,
    "latent": latent,
    "experts": experts,
    "delta": delta,
    "mamba": mamba,
    "selective": selective,
    "linear": linear,
    "convolution": convolution,
    "recurrent": recurrent,
    "indexer": indexer,
    **MECHANISMS,
    **VARIANTS,
}
"""Name in the table to what reads it."""
