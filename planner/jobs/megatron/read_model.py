"""The model that Megatron-LM's arguments describe: ``planner.jobs.megatron.write_model`` backwards."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from costmodels.model.parts import Experts
from planner.errors import BadRequest
from planner.jobs.megatron.read_pipeline import empty_layers, hybrid_pattern
from planner.jobs.options import Arguments, applicable
from planner.jobs.values import data

_ACTIVATIONS: Final = {"swiglu": "swiglu", "quick_geglu": "swiglu", "squared_relu": "squared_relu"}
_VOCABULARY: Final = 50256
"""Tokens of GPT-2's tokenizer, which Megatron-LM's examples use."""
_VOCABULARIES: Final[Mapping[str, int]] = data("megatron/words")["vocabularies"]
"""Rows of the embedding by what a tokenizer's name has in it, the first that fits: ``vocab_size`` in config.json of the
makers' models (Qwen2.5-72B: of Pai-Megatron-Patch's example). What Megatron-LM builds is the tokenizer's own length,
padded, which may be some hundreds less."""
_ROUNDED: Final = 64
"""What the width of a gated network is a multiple of where nothing is said (arguments.py: validate_args)."""


def model_fields(at: Arguments) -> dict[str, Any]:
    """Fields of ``costmodels.model.model.from_shape``."""
    heads, hidden = at.needed("num_heads"), at.needed("hidden_size")
    bias = not at.given("disable_bias_linear")
    activation = next((name for field, name in _ACTIVATIONS.items() if at.given(field)), "gelu")
    latent = at.given("multi_latent_attention")
    fields: dict[str, Any] = {
        "name": "given",
        "num_layers": len(hybrid_pattern(at)) or at.needed("num_layers") - len(empty_layers(at)),
        "hidden_size": hidden,
        "num_heads": heads,
        "num_query_groups": at("num_query_groups") if at.given("group_query_attention") else heads,
        "ffn_hidden_size": at("ffn_hidden_size") or _usual_width(at, hidden),
        "gated_ffn": activation == "swiglu",
        "activation": activation,
        "vocab_size": _vocabulary(at),
        "seq_length": at.needed("seq_length"),
        "position": _position(at),
        "rotary_scaled": at.text("position") == "yarn" and not at.given("use_rotary_position_embeddings"),
        "norm": at("norm"),
        "tied_embeddings": not at.given("untied_embeddings"),
        "qkv_bias": bias or at.given("add_qkv_bias"),
        **dict.fromkeys(("output_bias", "ffn_bias"), bias),
        "clamped_activation": at.given("quick_geglu") and at.given("activation_func_clamp_value"),
        "attention_sinks": at("attention_sinks"),
        "embedding_norm": at.given("embedding_norm"),
        "parallel_block": at.given("parallel_block"),
        "qk_norm": "head" if at.given("qk_norm") and not latent else "none",
    }
    if fields["position"] == "learned":
        fields["max_positions"] = at.needed("max_positions")
    if at.given("head_dim") and not latent:  # of latent attention its own sizes say it
        fields["head_dim"] = at.needed("head_dim")
    if at.given("mtp_layers"):
        fields |= {"mtp_layers": at("mtp_layers"), "mtp_repeated": at.given("mtp_repeated")}
    if at.given("rotary_fraction") and not latent:
        fields["rotary_fraction"] = _share(at)
    return fields | _window(at) | _experts(at, fields, bias=bias) | _latent(at) | _hybrid(at)


def assumed_fields(at: Arguments) -> tuple[str, ...]:
    """What of the model is assumed, or has no effect."""
    return applicable({
        f"--vocab-size is not given; {_vocabulary(at):,} is priced": (
            not at.given("vocab_size") and not at.given("padded_vocab_size")
        ),
        "--num-query-groups has no effect without --group-query-attention": (
            at.given("num_query_groups") and not at.given("group_query_attention")
        ),
        "--softmax-type off-by-one is priced like vanilla": at.text("attention_sinks") == "off-by-one",
    })  # fmt: skip


def _position(at: Arguments) -> str:
    """How positions enter; none where they are switched off and no other kind is said, as older versions have it."""
    if at.given("use_rotary_position_embeddings"):
        return "rotary"
    return "none" if at.given("no_position_embedding") and not at.given("position") else str(at("position"))


def _usual_width(at: Arguments, hidden: int) -> int:
    """The inner width where none is given: four times the hidden size, of gated networks two thirds of that."""
    if multiple := at("width_multiple"):  # FlagScale's, as in Llama's own code
        width = int((at.real("width_factor") or 1.0) * int(8 * hidden / 3))
        return int(multiple * -(-width // multiple))
    return int(4 * hidden * 2 / 3 / _ROUNDED) * _ROUNDED if at.given("swiglu") else 4 * hidden


def _hybrid(at: Arguments) -> dict[str, Any]:
    """Layers by letter, Mamba's sizes, and how many modules, each behind a slash, predict further tokens."""
    pattern, width = hybrid_pattern(at), at("mamba_head_dim")
    if not pattern:
        return {}
    heads = at("mamba_num_heads") or 2 * at.needed("hidden_size") // width
    mamba = {"num_heads": heads, **{name: at(f"mamba_{name}") for name in ("head_dim", "state_size", "num_groups")}}
    predicting = "".join(at.words("layer_pattern")).count("/")
    ahead = {"mtp_layers": predicting} if predicting else {}
    return {"layer_pattern": pattern, **ahead, **({"mamba": mamba} if "M" in pattern else {})}


def _vocabulary(at: Arguments) -> int:
    """Its stand-in tokenizer adds one token."""
    if at.given("vocab_size"):
        return int(at("vocab_size")) + (at.text("tokenizer_type") == "NullTokenizer")
    named = f"{at.text('tokenizer_model')} {at.text('tokenizer_type')}".lower()
    known = next((size for name, size in _VOCABULARIES.items() if name in named), _VOCABULARY)
    return int(at("padded_vocab_size") or known)


def _window(at: Arguments) -> dict[str, Any]:
    """Tokens that a local layer attends to, the current one and those on its left, and which layers are global.

    -1 is all of them, no window.
    """
    if not at.given("sliding_window"):
        return {}
    left = re.search(r"-?\d+", "".join(at.words("sliding_window")))
    if left is None or int(left[0]) < -1:
        raise BadRequest(f"--window-size: expected two numbers such as 127,0, got {at.text('sliding_window')!r:.40}")
    if int(left[0]) == -1:
        return {}
    return {"sliding_window": int(left[0]) + 1, **_full_layers(at)}


def _full_layers(at: Arguments) -> dict[str, int]:
    """Every how many layers one attends to all tokens, by a number or by bits, of which 0 is such a layer."""
    text = "".join(at.words("sliding_window_every"))
    if not text:
        return {}
    if text.isdecimal():
        return {"sliding_window_every": int(text)}
    layers = at.needed("num_layers")
    bits = layer_bits(text, layers, at.word_of("sliding_window_every"))
    every = bits.index(0) + 1 if 0 in bits else 0
    if every and bits == [int((layer + 1) % every > 0) for layer in range(layers)]:
        return {"sliding_window_every": every}
    if not every and len(bits) == layers:
        return {}
    read = "only one full-attention layer after every few others can be read"
    raise BadRequest(f"--window-attn-skip-freq {text:.40}: {read}")


def _experts(at: Arguments, fields: Mapping[str, Any], *, bias: bool) -> dict[str, Any]:
    if not at.given("num_experts"):
        return {}
    width = at("expert_ffn_hidden_size") or fields["ffn_hidden_size"]
    shared = at("shared_expert_ffn_hidden_size") or at("shared_experts") * width
    moe: dict[str, Any] = {
        "num_experts": at.needed("num_experts"),
        "top_k": at("top_k"),
        "expert_ffn_hidden_size": width,
        "num_shared_experts": int(shared > 0),
        "shared_expert_ffn_hidden_size": shared,
        "shared_expert_gate": at.given("shared_expert_gate"),
        **_places(at, fields["num_layers"]),
        # Megatron-LM's router has a learned bias where its linear layers have one.
        "router_bias": bias or at.given("router_bias"),
        **at.each("router_groups", "router_group_top_k"),
        **({"latent_size": at.needed("latent_size")} if at.given("latent_size") else {}),
    }
    return {"moe": moe}


_EVERY: Final = frozenset({"", "1", "-1"})
"""Frequencies of which every layer has experts."""


def _places(at: Arguments, layers: int) -> dict[str, int]:
    """Which layers have experts."""
    text = "".join(at.words("moe_layer_freq"))
    dense = at.text("dense_layers")
    if dense.isdecimal() and text in _EVERY:
        return {"dense_layers": int(dense)}
    if at.given("expert_interval"):
        return {"dense_layers": 0, "moe_every": at("expert_interval")}
    if text in _EVERY or hybrid_pattern(at):
        return {"dense_layers": 0}
    bits = layer_bits(text, layers)
    every = next((place for place, bit in enumerate(bits, 1) if bit), 1)
    for found in ({"dense_layers": bits.count(0)}, {"dense_layers": 0, "moe_every": every}):
        moe = Experts(num_experts=2, top_k=1, expert_ffn_hidden_size=1, **found)
        if bits == [int(moe.is_moe_layer(layer)) for layer in range(layers)]:
            return found
    raise BadRequest(f"--moe-layer-freq {text:.40}: only leading dense layers and every n-th layer can be read")


def layer_bits(text: str, layers: int, word: str = "moe-layer-freq") -> list[int]:
    """A bit a layer of a pattern such as ``([0]*1+[1]*3)*2``, or of one layer in n, the first of them."""
    if text.isascii() and text.isdecimal() and 0 < int(text) <= layers:
        return [int(layer % int(text) == 0) for layer in range(layers)]
    with suppress(SyntaxError, ValueError, MemoryError, RecursionError):
        found = _value(ast.parse(text, mode="eval").body, layers)
        if isinstance(found, list) and set(found) <= {0, 1}:
            return found
    raise BadRequest(f"--{word}: expected one layer in n or bits such as ([0]*1+[1]*26), got {text!r:.40}")


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


def _latent(at: Arguments) -> dict[str, Any]:
    if not at.given("multi_latent_attention"):
        return {}
    rank = {"q_lora_rank": at.needed("q_lora_rank")} if at.given("q_lora_rank") else {}
    return {"mla": {**rank, **at.each("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")}}


def _share(at: Arguments) -> float:
    text = at.text("rotary_fraction")
    if not re.fullmatch(r"0?\.\d+|1(\.0*)?", text):
        raise BadRequest(f"--rotary-percent: expected a share up to 1, got {text!r:.40}")
    return float(text)
