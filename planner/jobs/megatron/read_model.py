"""The model that Megatron-LM's arguments describe: ``planner.jobs.megatron.write_model`` backwards."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from costmodels.model.parts import Experts
from planner.errors import BadRequest
from planner.jobs.megatron.options import POSITIONS, Options, count, needed, word
from planner.jobs.megatron.read_pipeline import hybrid_pattern, hybrid_predictions

_ACTIVATIONS: Final = {"swiglu": "swiglu", "quick-geglu": "swiglu", "squared-relu": "squared_relu"}
_VOCABULARY: Final = 50256
"""Tokens of GPT-2's tokenizer, which Megatron-LM's examples use."""
_ROUNDED: Final = 64
"""What the width of a gated network is a multiple of where nothing is said (arguments.py: validate_args)."""


def model_fields(at: Options) -> dict[str, Any]:
    """Fields of ``costmodels.model.model.from_shape``.

    Raises:
        BadRequest: a size is missing or not a number.
    """
    heads, hidden = needed(at, "num-attention-heads"), needed(at, "hidden-size")
    bias = "disable-bias-linear" not in at
    activation = next((name for flag, name in _ACTIVATIONS.items() if flag in at), "gelu")
    usual = word(at, "position-embedding-type", "learned_absolute")
    rotary = "rope" if "use-rotary-position-embeddings" in at else usual
    fields: dict[str, Any] = {
        "name": "given",
        "num_layers": len(hybrid_pattern(at)) or needed(at, "num-layers"),
        "hidden_size": hidden,
        "num_heads": heads,
        "num_query_groups": count(at, "num-query-groups") if "group-query-attention" in at else heads,
        "ffn_hidden_size": count(at, "ffn-hidden-size", _usual_width(hidden, gated="swiglu" in at)),
        "gated_ffn": activation == "swiglu",
        "activation": activation,
        "vocab_size": _vocabulary(at),
        "seq_length": needed(at, "seq-length"),
        "position": POSITIONS[rotary],
        "rotary_scaled": rotary == "yarn",
        "norm": "rmsnorm" if word(at, "normalization") == "RMSNorm" else "layernorm",
        "tied_embeddings": "untie-embeddings-and-output-weights" not in at,
        "qkv_bias": bias or "add-qkv-bias" in at,
        "output_bias": bias,
        "ffn_bias": bias,
        "clamped_activation": "quick-geglu" in at and "activation-func-clamp-value" in at,
        "attention_sinks": word(at, "softmax-type") == "learnable",
        "qk_norm": "head" if "qk-layernorm" in at and "multi-latent-attention" not in at else "none",
    }
    if fields["position"] == "learned":
        fields["max_positions"] = needed(at, "max-position-embeddings")
    if "kv-channels" in at:
        fields["head_dim"] = needed(at, "kv-channels")
    if "mtp-num-layers" in at:
        fields["mtp_layers"] = count(at, "mtp-num-layers", least=0)
    if "rotary-percent" in at and "multi-latent-attention" not in at:
        fields["rotary_fraction"] = _share(at, "rotary-percent")
    return fields | _window(at) | _experts(at, fields, bias=bias) | _latent(at) | _hybrid(at)


def assumed_fields(at: Options) -> tuple[str, ...]:
    """What of the model is assumed, or has no effect."""
    told = {
        f"--vocab-size is not given; {_vocabulary(at):,} tokens are priced": "vocab-size" not in at,
        "--num-query-groups has no effect without --group-query-attention": (
            "num-query-groups" in at and "group-query-attention" not in at
        ),
        "--softmax-type off-by-one is priced as vanilla": word(at, "softmax-type") == "off-by-one",
    }
    return tuple(text for text, holds in told.items() if holds)


def _usual_width(hidden: int, *, gated: bool) -> int:
    """The inner width where none is given: four times the hidden size, of gated networks two thirds of that."""
    return int(4 * hidden * 2 / 3 / _ROUNDED) * _ROUNDED if gated else 4 * hidden


def _hybrid(at: Options) -> dict[str, Any]:
    """Layers by letter, and Mamba's sizes, as of Megatron-Core where nothing is said."""
    pattern, width = hybrid_pattern(at), count(at, "mamba-head-dim", 64)
    if not pattern:
        return {}
    mamba = {
        "num_heads": count(at, "mamba-num-heads", 2 * needed(at, "hidden-size") // width),
        "head_dim": width,
        "state_size": count(at, "mamba-state-dim", 128),
        "num_groups": count(at, "mamba-num-groups", 8),
    }
    ahead = {"mtp_layers": hybrid_predictions(at)} if hybrid_predictions(at) else {}
    return {"layer_pattern": pattern, **ahead, **({"mamba": mamba} if "M" in pattern else {})}


def _vocabulary(at: Options) -> int:
    """Its stand-in tokenizer adds one token."""
    return count(at, "vocab-size", _VOCABULARY) + (word(at, "tokenizer-type") == "NullTokenizer")


def _window(at: Options) -> dict[str, Any]:
    """Tokens that a local layer attends to, the current one beside those on its left, and which layers are global.

    -1 is all of them, no window.
    """
    if "window-size" not in at:
        return {}
    left = re.search(r"-?\d+", "".join(at["window-size"]))
    if left is None or int(left[0]) < -1:
        raise BadRequest(f"--window-size: expected two numbers such as 127,0, got {word(at, 'window-size')!r:.40}")
    if int(left[0]) == -1:
        return {}
    every = {"sliding_window_every": needed(at, "window-attn-skip-freq")} if "window-attn-skip-freq" in at else {}
    return {"sliding_window": int(left[0]) + 1, **every}


def _experts(at: Options, fields: Mapping[str, Any], *, bias: bool) -> dict[str, Any]:
    if "num-experts" not in at:
        return {}
    shared = count(at, "moe-shared-expert-intermediate-size", 0, least=0)
    moe: dict[str, Any] = {
        "num_experts": needed(at, "num-experts"),
        "top_k": count(at, "moe-router-topk", 2),
        "expert_ffn_hidden_size": count(at, "moe-ffn-hidden-size", fields["ffn_hidden_size"]),
        "num_shared_experts": int(shared > 0),
        "shared_expert_ffn_hidden_size": shared,
        "shared_expert_gate": "moe-shared-expert-gate" in at,
        **_places(at, fields["num_layers"]),
        # Megatron-LM's router has a learned bias where its linear layers have one.
        "router_bias": bias or "moe-router-enable-expert-bias" in at,
        "router_groups": count(at, "moe-router-num-groups"),
        "router_group_top_k": count(at, "moe-router-group-topk"),
        **({"latent_size": needed(at, "moe-latent-size")} if "moe-latent-size" in at else {}),
    }
    return {"moe": moe}


def _places(at: Options, layers: int) -> dict[str, int]:
    """Which layers have experts.

    Raises:
        BadRequest: neither all behind some dense ones have, nor every n-th, or it is no pattern of the model's layers.
    """
    text = "".join(at.get("moe-layer-freq", ()))
    if not text or hybrid_pattern(at):
        return {"dense_layers": 0}
    bits = layer_bits(text, layers)
    every = next((place for place, bit in enumerate(bits, 1) if bit), 1)
    for found in ({"dense_layers": bits.count(0)}, {"dense_layers": 0, "moe_every": every}):
        moe = Experts(num_experts=2, top_k=1, expert_ffn_hidden_size=1, **found)
        if bits == [int(moe.is_moe_layer(layer)) for layer in range(layers)]:
            return found
    raise BadRequest(f"--moe-layer-freq {text:.40}: only dense layers in front of others and every n-th are read")


def layer_bits(text: str, layers: int) -> list[int]:
    """A bit a layer of a pattern such as ``([0]*1+[1]*3)*2``, or of one layer in n, the first of them.

    Raises:
        BadRequest: it is neither.
    """
    if text.isascii() and text.isdecimal() and 0 < int(text) <= layers:
        return [int(layer % int(text) == 0) for layer in range(layers)]
    with suppress(SyntaxError, ValueError, MemoryError, RecursionError):
        found = _value(ast.parse(text, mode="eval").body, layers)
        if isinstance(found, list) and set(found) <= {0, 1}:
            return found
    raise BadRequest(f"--moe-layer-freq: expected one layer in n or bits such as ([0]*1+[1]*26), got {text!r:.40}")


def _value(node: ast.expr, most: int) -> Any:
    """Numbers and lists, joined and repeated, up to ``most`` long."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.List(elts=elements):
            return [_value(element, most) for element in elements]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            found = _lists(_value(left, most)) + _lists(_value(right, most))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            one, other = _value(left, most), _value(right, most)
            bits, times = (one, other) if isinstance(one, list) else (other, one)
            if not isinstance(times, int) or times > most:
                raise ValueError(times)
            found = _lists(bits) * times
        case _:
            raise ValueError(node)
    if len(found) > most:
        raise ValueError(len(found))
    return found


def _lists(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(value)  # noqa: TRY004 - one error for all that is no pattern
    return value


def _latent(at: Options) -> dict[str, Any]:
    if "multi-latent-attention" not in at:
        return {}
    rank = {"q_lora_rank": needed(at, "q-lora-rank")} if "q-lora-rank" in at else {}
    return {
        "mla": {
            **rank,
            "kv_lora_rank": count(at, "kv-lora-rank", 32),
            "qk_nope_head_dim": count(at, "qk-head-dim", 128),
            "qk_rope_head_dim": count(at, "qk-pos-emb-head-dim", 64),
            "v_head_dim": count(at, "v-head-dim", 128),
        }
    }


def _share(at: Options, name: str) -> float:
    text = word(at, name)
    if not re.fullmatch(r"0?\.\d+|1(\.0*)?", text):
        raise BadRequest(f"--{name}: expected a share up to 1, got {text!r:.40}")
    return float(text)
