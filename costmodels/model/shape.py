"""Descriptions of models as people write them, completed to the fields of a `Model`."""

import re
from collections.abc import Mapping

from costmodels.model.parts import GATED_ACTIVATIONS, BadModel, Position

REMARKS = frozenset({"notes", "description"})
"""What a description may say of a model in addition to its fields, for people."""

POSITION_NAMES: dict[str, Position] = {
    "learned": "learned",
    "rotary": "rotary",
    "rope": "rotary",
    "alibi": "alibi",
    "none": "none",
    # A relative bias of a few hundred numbers costs nothing that is counted here.
    "relative": "none",
}

EXPERT_SPELLINGS = {
    "experts": "num_experts",
    "top_k": "top_k",
    "expert_ffn": "expert_ffn_hidden_size",
    "shared_experts": "num_shared_experts",
    "shared_expert_ffn": "shared_expert_ffn_hidden_size",
    "shared_expert_ffn_total": "shared_expert_ffn_hidden_size",
    "dense_layers": "dense_layers",
    "moe_every": "moe_every",
    "moe_latent": "latent_size",
}
EVERY = (
    (r"^(\d+)\s*:\s*1$|^(\d+) (?:local|sliding)", 1),
    (r"^(\d+)$", 0),
    (r"^(?:every |1 in )(\d+)", 0),
)
"""Words for windows in all layers but every n-th, and what their number lacks of n."""
LATENT_SPELLINGS = {
    "q_lora": "q_lora_rank",
    "kv_lora": "kv_lora_rank",
    "qk_nope": "qk_nope_head_dim",
    "qk_rope": "qk_rope_head_dim",
    "v": "v_head_dim",
}


def complete(shape: Mapping[str, object], *, label: str) -> dict[str, object]:
    """All fields of the model that `shape` describes, the unsaid filled; see `costmodels.model.model.from_shape`.

    Raises:
        BadModel: A size is missing or of the wrong type, or a pattern of windows is none that is known. One line.
    """
    said = {key: value for key, value in shape.items() if value is not None and key not in REMARKS}
    return _usual(_spelled_out(said, label) | {"name": label}, label)


def _spelled_out(said: Mapping[str, object], label: str) -> dict[str, object]:
    fields = dict(said)
    position = fields.get("position")
    if isinstance(position, str):
        fields["position"] = POSITION_NAMES.get(position, position)
    if "linear_bias" in fields:
        both = fields.pop("linear_bias")
        fields.setdefault("output_bias", both)
        fields.setdefault("ffn_bias", both)
    if "qk_layernorm" in fields:
        # Latent attention always norms its latent vectors, and has no other norm on queries and keys.
        heads = fields.pop("qk_layernorm") is True and "mla" not in fields
        fields["qk_norm"] = "head" if heads else "none"
    if (pattern := fields.pop("sliding_window_pattern", None)) is not None:
        fields.setdefault("sliding_window_every", _every(pattern, label))
    _spell_out_experts(fields)
    _spell_out_latent(fields)
    layers = fields.get("layer_pattern")
    if isinstance(layers, str) and layers:
        fields.setdefault("num_layers", len(layers))
    return fields


def _every(pattern: object, label: str) -> int:
    if (every := full_layer_every(pattern)) is None:
        known = '6, "5:1", "5 local : 1 global" or "LLLLLG"'
        raise BadModel(f"model {label!r}: sliding_window_pattern: expected such as {known}, got {pattern!r:.40}")
    return every


def full_layer_every(pattern: object) -> int | None:
    """Every how many layers one sees the whole sequence: of "5:1", "5 local : 1 global", a list or "LLLLLG", 6 or 2.

    None where the pattern does not tell, is not regular, or begins with a layer that sees all.
    """
    if isinstance(pattern, list):
        return _period([str(kind).lower() for kind in pattern])
    said = str(pattern).lower().strip()
    if re.fullmatch(r"[lsgf]+", said):
        return _period(list(said))
    if re.search(r"alternat|every (other|second)", said):
        return 2
    found = ((re.search(words, said), lacks) for words, lacks in EVERY)
    return next((int(next(n for n in one.groups() if n)) + lacks for one, lacks in found if one), None)


def _period(kinds: list[str]) -> int | None:
    """Every how many kinds one is "global" or "full", where that is regular."""
    whole = [kind.startswith(("g", "f")) for kind in kinds]
    every = whole.index(True) + 1 if True in whole else 0
    regular = all(one == (place % every == 0) for place, one in enumerate(whole, start=1)) if every > 1 else False
    return every if regular else None


def _spell_out_experts(fields: dict[str, object]) -> None:
    apart = {EXPERT_SPELLINGS[key]: _whole(fields.pop(key)) for key in EXPERT_SPELLINGS if key in fields}
    table = fields.get("moe", {})
    if not isinstance(table, Mapping) or not (apart or table):
        return
    moe = {key: value for key, value in {**table, **apart}.items() if value is not None}
    shared, width = moe.get("num_shared_experts", 0), moe.get("expert_ffn_hidden_size")
    if isinstance(shared, int) and isinstance(width, int):
        moe.setdefault("shared_expert_ffn_hidden_size", shared * width)
    if "num_shared_experts" not in moe and moe.get("shared_expert_ffn_hidden_size"):
        moe["num_shared_experts"] = 1
    fields["moe"] = moe


def _spell_out_latent(fields: dict[str, object]) -> None:
    table = fields.get("mla")
    if not isinstance(table, Mapping):
        return
    mla = {LATENT_SPELLINGS.get(key, key): _whole(value) for key, value in table.items()}
    if mla.get("q_lora_rank") == 0:  # as some files say that queries are not compressed
        mla["q_lora_rank"] = None
    fields["mla"] = mla
    unrotated, rotated = mla.get("qk_nope_head_dim"), mla.get("qk_rope_head_dim")
    if isinstance(unrotated, int) and isinstance(rotated, int):
        # Descriptions variously state the width with or without the rotated part, or that of the values.
        width = fields["head_dim"] = unrotated + rotated
        fields.setdefault("rotary_fraction", rotated / max(width, 1))


def _whole(value: object) -> object:
    """Some files write counts as 8.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _usual(fields: Mapping[str, object], label: str) -> dict[str, object]:
    hidden_size, num_heads = _count(fields, "hidden_size", label), _count(fields, "num_heads", label)
    if "head_dim" not in fields and hidden_size % num_heads:
        raise BadModel(
            f"model {label!r}: num_heads {num_heads} does not divide hidden_size {hidden_size}; give head_dim"
        )
    gated = fields.get("gated_ffn", str(fields.get("activation")) in GATED_ACTIVATIONS) is True
    filled: dict[str, object] = {
        "title": label,
        "num_query_groups": num_heads,
        "head_dim": hidden_size // num_heads,
        **(_like_llama(hidden_size) if gated else _like_gpt(hidden_size)),
        **_without_dense_layers(fields.get("moe"), str(fields.get("layer_pattern", ""))),
    }
    filled |= fields
    filled.setdefault("norm_bias", filled["norm"] == "layernorm")
    if filled["position"] == "learned":
        filled.setdefault("max_positions", filled.get("seq_length"))
    return filled


def _without_dense_layers(moe: object, pattern: str) -> dict[str, object]:
    """Where every layer has experts, the width of a dense layer is of no consequence; an expert's stands in."""
    if not isinstance(moe, Mapping) or moe.get("dense_layers") or moe.get("moe_every", 1) != 1 or "-" in pattern:
        return {}
    width = moe.get("expert_ffn_hidden_size")
    return {} if width is None else {"ffn_hidden_size": width}


def _count(fields: Mapping[str, object], field: str, label: str) -> int:
    value = fields.get(field)
    if value is None:
        raise BadModel(f"model {label!r}: {field}: missing")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadModel(f"model {label!r}: {field}: expected a positive whole number, got {value!r:.60}")
    return value


def _like_gpt(hidden_size: int) -> dict[str, object]:
    return {
        "ffn_hidden_size": 4 * hidden_size,
        "gated_ffn": False,
        "activation": "gelu",
        "position": "learned",
        "tied_embeddings": True,
        "norm": "layernorm",
        "qkv_bias": True,
        "output_bias": True,
        "ffn_bias": True,
    }


def _like_llama(hidden_size: int) -> dict[str, object]:
    multiple = 256
    return {
        "ffn_hidden_size": -(-8 * hidden_size // (3 * multiple)) * multiple,
        "gated_ffn": True,
        "activation": "swiglu",
        "position": "rotary",
        "tied_embeddings": False,
        "norm": "rmsnorm",
    }
