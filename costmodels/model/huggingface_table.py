"""Hugging Face configurations read by a table: what a family is made of, and under which names it says so.

`huggingface_families.toml` has one entry a family: what its implementation fixes (`fixed`), what its switches choose
(`choose`), its own names of common keys (`keys`), what is not priced where a key asks for it (`refuse`), which letters
its kinds of layer are (`layers`), what is fixed of its experts (`experts`), the mechanisms it has (`parts`), and why it
is refused where it is (`refused`). Where a file is silent, `huggingface_defaults.toml` has what the configuration
classes fill in; of families whose files say all their sizes (`plain`) it does so only with a vision tower, and
`defaults` has the rest.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from costmodels.model.huggingface_config import (
    Config,
    Entries,
    Fields,
    UnsupportedFamily,
    partial_rotary,
    rotary_scaled,
    sequence,
)
from costmodels.model.huggingface_parts import PARTS
from costmodels.model.huggingface_variants import Reading
from costmodels.model.parts import BadModel

FOLDER = Path(__file__).parent
SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
"""Common keys that a file of its own must say; with a vision tower files leave out what is the default."""


@cache
def families() -> dict[str, dict[str, Any]]:
    """Every family of the table, what it is like put in."""
    table = tomllib.loads((FOLDER / "huggingface_families.toml").read_text())
    return {name: _completed(table, name) for name in table}


@cache
def defaults() -> dict[str, dict[str, Any]]:
    """What the families' configuration classes fill in, by family."""
    return tomllib.loads((FOLDER / "huggingface_defaults.toml").read_text())


def _completed(table: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    own = table[name]
    if "like" not in own:
        return own
    base = dict(_completed(table, own["like"]))
    for key, value in own.items():
        base[key] = {**base.get(key, {}), **value} if isinstance(value, dict) else value
    return base


ARCHITECTURAL = re.compile(
    "expert|moe|conv|ssm|mamba|index|window|sparse|lora|linear_attn|gating|gate_|hybrid|recurr|mixer|latent|altup|cross"
)
"""What names of keys have in common that say what a model is made of."""
UNUSED = frozenset(
    {"max_window_layers", "mamba_ssm_dtype", "mamba_ssm_cache_dtype", "mamba_hidden_act", "experts_per_token"}
    | {"num_mtp_modules", "mtp_hybrid_override_pattern", "moe_router_dtype", "cross_attention_hidden_size"}
    | {"index_skip_topk_offset", "index_topk_freq", "index_topk_pattern", "index_share_for_mtp_iteration"}
    | {"indexer_rope_interleave", "block_use_xavier_init", "conv_use_xavier_init", "conv_dim", "conv_dim_out"}
    | {"ssm_multipliers", "ssm_in_multiplier", "ssm_out_multiplier", "mixer_rms_eps", "mamba_use_mlp"}
    | {"mla_scale_q_lora", "mla_scale_kv_lora", "zero_expert_type", "shared_moe_mode", "use_mixed_mlp_moe"}
    | {"moe_norm_min", "moe_routed_scaling_factor", "expert_selection_fn", "shared_expert_combination_strategy"}
    | {"router_aux_loss_coef", "moe_router_scaling_factor", "use_moe_router_bias", "output_gate_type", "ignore_index"}
    | {"moe_router_activation_func"}
    | {"expert_dtype", "n_mamba_heads", "use_mamba_kernels", "hidden_mamba_act", "hybrid_layer_ids"}
)
"""Keys that say nothing of sizes that another one does not: formats, losses, initial values."""


def not_understood(entries: Entries, family: str) -> tuple[str, ...]:
    """Keys that look as if they said what a model is made of, are set, and are read by nothing.

    What a family's own configuration class has is known to change nothing that is counted where it is not read.
    """
    spelled = {name for own in families().get(family, {}).get("keys", {}).values() for name in _names(own)}
    known = UNUSED | spelled | set(defaults().get(family, {}))
    return tuple(
        sorted(
            name
            for name, value in entries.items()
            if ARCHITECTURAL.search(name)
            and name not in known | entries.asked
            and value not in (None, False, 0, [], {})
        )
    )


def own_names(family: str) -> dict[str, str]:
    """Common names of keys, and the first that a family's files spell each by."""
    keys = families().get(family, {}).get("keys", {})
    return {common: own if isinstance(own, str) else own[0] for common, own in keys.items()}


def _names(spellings: str | list[str]) -> set[str]:
    """First names of a key's spellings."""
    return {own.partition(".")[0] for own in ([spellings] if isinstance(spellings, str) else spellings)}


def table_config(config: Mapping[str, object], family: str, *, nested: bool) -> Mapping[str, object]:
    """A family's configuration under common names, with what its class fills in.

    Args:
        config: The parsed file, or the part of it that describes the decoder.
        family: Its family.
        nested: Whether it stands within another one, where sizes that are the default are left out too.
    """
    known = families().get(family, {})
    keys: dict[str, Any] = known.get("keys", {})
    filled = {name: value for name, value in defaults().get(family, {}).items() if nested or name not in SIZES}
    if known.get("plain") and not nested:
        filled = {}
    return {**known.get("defaults", {}), **_renamed(filled, keys), **_renamed(config, keys)}


def _renamed(config: Mapping[str, object], keys: Mapping[str, Any]) -> dict[str, object]:
    """The entries with common names in addition to the family's own; a dot leads into an inner object."""
    named = {name: value for name, value in config.items() if value is not None}
    for common, spellings in keys.items():
        for own in [spellings] if isinstance(spellings, str) else spellings:
            value = _inner(named, own)
            if value is not None and (own != common):
                named[common] = value
                break
    return named


def _inner(config: Mapping[str, object], path: str) -> object:
    found: object = config
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def refuse_mechanism(config: Mapping[str, object], label: str) -> None:
    """Refuse a configuration of a family whose mechanism is not priced.

    Raises:
        UnsupportedFamily: It is; the mechanism is named.
    """
    family = str(config.get("model_type"))
    if "refused" in (known := families().get(family, {})):
        raise UnsupportedFamily(f"{label or family}: model_type {family!r}: {known['refused']}")


def read_by_table(config: Config, family: str) -> Fields:
    """The fields of the model that a configuration of a family of the table describes.

    Raises:
        BadModel: A field is missing or wrong, or the family has a mechanism that is not priced.
    """
    known = families()[family]
    for key, mechanism in known.get("refuse", {}).items():
        if config.get(key) not in (None, False, 0):
            raise BadModel(f"{config.label}: {key}: {mechanism} not priced")
    fields = _sizes(config, known, family) | known.get("fixed", {}) | _chosen(config, known.get("choose", {}))
    if "activation" not in fields:
        fields |= _activation(config, fields)
    if fields["position"] == "learned":
        reach = config.count("max_position_embeddings", default=config.seq_length)
        fields |= {"max_positions": reach + known.get("positions", 0), "seq_length": reach, "reach": None}
    if "ffn" in known:
        fields["ffn_pattern"] = known["ffn"] * int(str(fields["num_layers"]))
    for part in ("layers", *known.get("parts", ())):
        fields |= PARTS[part](Reading(config, known, fields))
    if "model_vectors" in known:
        fields["model_vectors"] = prod(config.count_or_zero(key) for key in known["model_vectors"])
    if "vectors" in known:
        fields["layer_vectors"] = sum(times * int(str(fields[size])) for size, times in known["vectors"].items())
    return fields


def _sizes(config: Config, known: Mapping[str, Any], family: str) -> Fields:
    plain, hidden_size = known.get("plain", False), config.count("hidden_size")
    attends = plain or "num_attention_heads" in defaults().get(family, {})
    num_heads = config.count("num_attention_heads", default=None if attends else 1)
    head_dim = config.count("head_dim", default=max(hidden_size // num_heads, 1))
    rotates = known.get("fixed", {}).get("position", "rotary") == "rotary"
    if plain and config.get("head_dim") is None and hidden_size % num_heads and "latent" not in known.get("parts", ()):
        raise BadModel(f"{config.label}: {num_heads} heads do not divide a hidden size of {hidden_size}")
    rotated = known["rotary_fraction"] if "rotary_fraction" in known else _rotated(config, head_dim)
    attention = config.switch("attention_bias", default=False)
    sizes = {
        "num_layers": config.count("num_hidden_layers", default=_listed_layers(config)),
        "hidden_size": hidden_size,
        "num_heads": num_heads,
        "num_query_groups": config.count("num_key_value_heads", default=num_heads),
        "head_dim": head_dim,
        "ffn_hidden_size": _width(config, known, hidden_size),
        "position": "rotary" if rotates else "none",
        "rotary_fraction": partial_rotary(config, default=rotated) if rotates else 1.0,
        "rotary_scaled": rotates and rotary_scaled(config),
        "gated_ffn": True,
        "norm": "rmsnorm",
        "qkv_bias": attention,
        "output_bias": attention,
        "ffn_bias": config.switch("mlp_bias", default=False),
        "tied_embeddings": config.switch("tie_word_embeddings", default=True),
    }
    # Last, for want of it a length that is asked for stands in: what is wrong is said before.
    return sizes | sequence(config.reach(*known.get("reach", ("max_position_embeddings",))))


def _listed_layers(config: Config) -> int | None:
    """Layers that a list of them names; None where there is no list."""
    listed = config.get("layers_block_type") or config.get("hybrid_override_pattern")
    return len(listed) if isinstance(listed, list | str) else None


def _rotated(config: Config, head_dim: int) -> float:
    """Share of a head that is rotated, where it is given as a width."""
    return min(config.count("rotary_dim", default=head_dim) / head_dim, 1.0)


def _width(config: Config, known: Mapping[str, Any], hidden_size: int) -> int:
    """Of a dense network; where none is said no layer has one, and what experts have stands in."""
    if "width" in known:
        return config.count("intermediate_size", default=known["width"] * hidden_size)
    if known.get("listed_width") and isinstance(config.get("intermediate_size"), list):
        return hidden_size  # a part of the family reads them
    plain, dense = known.get("plain", False), config.get("first_k_dense_replace") or config.get("mlp_only_layers")
    spelled = ("intermediate_size",) if plain and dense else ("intermediate_size", "moe_intermediate_size")
    return config.count(*spelled, default=None if plain else hidden_size)


def _chosen(config: Config, choices: Mapping[str, list[Any]]) -> Fields:
    """Fields that a key decides: its name, what it means where it is true, and perhaps where it is not.

    Without a meaning the key's own value is the field's.
    """
    found: Fields = {}
    for field, (key, *meanings) in choices.items():
        if not meanings:
            if config.get(key) is not None:
                found[field] = config.get(key)
            continue
        said = bool(config.get(key))
        if said or len(meanings) > 1:
            found[field] = meanings[0] if said else meanings[1]
    return found


def _activation(config: Config, fields: Fields) -> Fields:
    gated = fields["gated_ffn"] is True
    spelled = ("hidden_act", "hidden_activation", "activation_function", "ffn_act_fn")
    field = next((name for name in spelled if isinstance(config.get(name), str)), "hidden_act")
    return {"activation": config.activation(field, default="silu", gated=gated)}
