"""The model of a measured run, by its sizes, its name and its words."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from costmodels.model.catalogue import aliases, names
from costmodels.model.catalogue import model as catalogued
from costmodels.model.model import Experts, Model
from costmodels.model.shape import full_layer_every
from run_words import heard as re
from run_words.machines import Unpriceable
from run_words.row_fields import FIELDS
from run_words.shape_words import as_worded, from_run
from run_words.stack_words import stack_of

Row = Mapping[str, Any]

OF_THE_FORK = ("zero-bubble", "vocabulary-parallel")
"""Stacks whose scripts train with a vocabulary of as many tokens as follow."""
SENTENCEPIECE = 32_000
"""Tokens of the tokenizer that the scripts of sail-sg's fork download, as in its authors' later paper [Yeung24]; the
stated parameters of their models agree."""
SAME_SHAPE: Final = ("num_layers", "hidden_size", "num_heads", "ffn_hidden_size", "gated_ffn")
ROUTING: Final = ("router_bias", "router_groups", "router_group_top_k", "shared_expert_gate")
"""Of the catalogue alone: what a row may note of its groups does not say how many of them a token goes to."""
SAID_AS: Final = {
    "qk_norm": "qk_layernorm",
    "num_norms": "num_norms",
    "activation": "activation",
    "position": "position",
    "rotary_fraction": "position",
    "norm": "norm",
    "norm_bias": "norm",
    "tied_embeddings": "tied_embeddings",
}
"""What a model is, and the word of a row that would say so."""
ASSUMED: Final = ("ffn_hidden_size", "gated_ffn", "vocab_size", "num_query_groups")
"""Sizes that a run may leave out, and that usual ones stand for then."""
NAMED: Final = ("ffn_hidden_size", "gated_ffn", "vocab_size", "num_query_groups", "head_dim")
"""Sizes that its name gives, where a run leaves them out."""
LEFT_OUT: Final = (
    "rotary_scaled",
    "chunked_attention",
    "qkv_bias",
    "output_bias",
    "ffn_bias",
    "clamped_activation",
    "attention_sinks",
)


def model_of(row: Row, notes: list[str]) -> Model:
    """The model as described; of the catalogue by its name where sizes, or a hybrid's mixers, are not said."""
    shape = _unsaid_by_forks(row, notes)
    hybrid = "mamba" in str(shape.get("kind")) and shape.get("mamba") is None
    unsaid = [field for field in ("num_layers", "hidden_size", "num_heads") if shape.get(field) is None]
    if not hybrid and not unsaid:
        shape = _with_named_sizes(shape, notes)
        sizes = {field: value for field, value in shape.items() if field not in ROUTING}
        model = as_catalogued(from_run(sizes), shape)
        notes += [f"{name} {_plain(getattr(model, name))} assumed" for name in ASSUMED if shape.get(name) is None]
        return as_described(model, shape, notes)
    found = _named(shape)
    if found is None:
        reason = f"the model's {unsaid[0]} is not stated" if unsaid else "the model's Mamba-2 mixers are not stated"
        raise Unpriceable(f"{reason}, and {_not_found(shape)}")
    notes.append(f"sizes of the catalogue's {found.name}, by its name")
    said = {field: shape[field] for field in ("seq_length", "mtp_layers") if shape.get(field) is not None}
    return found.model_copy(update=said)


def _with_named_sizes(shape: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """The sizes that a run leaves out, where the catalogue's model of that name has its depth, width and heads."""
    known = by_name(_plain_name(shape))
    unsaid = [field for field in NAMED if shape.get(field) is None]
    if known is None or not unsaid or any(shape[field] != getattr(known, field) for field in SAME_SHAPE[:3]):
        return shape
    found = {field: getattr(known, field) for field in unsaid}
    told = ", ".join(f"{field} {_plain(value)}" for field, value in found.items())
    notes.append(f"{told}: of the catalogue's {known.name}, by its name")
    return shape | found


def _plain_name(shape: Mapping[str, Any]) -> str:
    return re.sub(r"[\s_]+", "-", str(shape.get("name") or "").lower()).removeprefix("nvidia-")


def _plain(value: object) -> str:
    """As a run would say it."""
    return str(value).lower()


def _not_found(shape: Row) -> str:
    """Why the name of a model is none of the catalogue's: it is not there, or has other layers."""
    known = by_name(_plain_name(shape))
    if not shape.get("name"):
        return "neither is its name"
    if known is None:
        return f"no model of the catalogue is called {shape.get('name')!r}"
    return f"the catalogue's {known.name} has {known.num_layers} layers, not {shape.get('num_layers')}"


def _unsaid_by_forks(row: Row, notes: list[str]) -> dict[str, Any]:
    """The model as described, with what scripts of a known repository say where its paper does not."""
    shape = as_worded({name: value for name, value in row["model"].items() if name in FIELDS["model"]})
    if (pattern := shape.get("sliding_window_pattern")) is not None and full_layer_every(pattern) is None:
        notes.append(f"a window in every layer: {shape.pop('sliding_window_pattern')!r:.40} names no other pattern")
    if shape.get("vocab_size") is None and shape.get("padded_vocab_size"):
        shape["vocab_size"] = shape["padded_vocab_size"]
        notes.append(f"vocabulary {shape['vocab_size']}, as padded")
    if shape.get("vocab_size") is None and stack_of(row) in OF_THE_FORK:
        shape |= {"vocab_size": SENTENCEPIECE, "tied_embeddings": bool(shape.get("tied_embeddings"))}
        notes.append(f"vocabulary of {SENTENCEPIECE} tokens, untied, as the fork's scripts have it")
    return shape


def _named(shape: Row) -> Model | None:
    """The catalogue's model of that name, capitals, spaces and a maker in front apart; None if its layers differ.

    A size alone ("70B") is no name: sources mean models of their own by it.
    """
    name = _plain_name(shape)
    found = None if re.fullmatch(r"[\d.]+[bm]", name) else by_name(name)
    return found if found and shape.get("num_layers") in (None, found.num_layers) else None


def as_described(model: Model, shape: Mapping[str, Any], notes: list[str]) -> Model:
    """The model with what the run's notes on it say: attention and MLP side by side, a window, a head's width."""
    said = str(shape.get("notes") or "").lower()
    changes: dict[str, Any] = {}
    if re.search(r"parallel (attention ?\+ ?mlp )?block\b", said):
        changes["parallel_block"] = True
        notes.append("attention and MLP of a layer side by side, by the notes")
    stated = re.search(r"sliding[- ]window\w* (?:of |= ?)?(\d[\d,]{2,})", said)
    if stated and model.sliding_window is None and (tokens := int(stated[1].replace(",", ""))) < model.seq_length:
        changes["sliding_window"] = tokens
        notes.append(f"sliding window of {tokens} tokens, by the notes")
    if str(shape.get("name")).startswith("OPT-") and not model.gated_ffn:
        changes["activation"] = "relu"  # of every model of that name (arXiv 2205.01068, section 2.1)
    if (width := re.search(r"head dimension (\d+)", said)) and shape.get("head_dim") is None:
        changes["head_dim"] = int(width[1])
    return Model.model_validate(model.model_dump() | changes) if changes else model


def as_catalogued(model: Model, shape: Mapping[str, Any]) -> Model:
    """The model with the switches that the run leaves out, where a catalogue model has its name and its sizes."""
    known = by_name(str(shape.get("name") or "").lower())
    if known is None or any(getattr(known, size) != getattr(model, size) for size in SAME_SHAPE):
        return model
    unsaid = [field for field in LEFT_OUT if field not in shape and "linear_bias" not in shape]
    unsaid += [field for field, word in SAID_AS.items() if shape.get(word) is None]
    changes: dict[str, Any] = {field: getattr(known, field) for field in unsaid}
    if changes.get("position", model.position) != model.position:
        changes["max_positions"] = known.max_positions
    if model.moe is not None and known.moe is not None and _routed_alike(model.moe, known.moe):
        changes["moe"] = model.moe.model_copy(update={field: getattr(known.moe, field) for field in ROUTING})
    return model.model_copy(update=changes)


def _routed_alike(one: Experts, other: Experts) -> bool:
    return (one.num_experts, one.top_k) == (other.num_experts, other.top_k)


@cache
def by_name(name: str) -> Model | None:
    """The catalogue's model of that name, if there is one; a corpus asks for the same few again and again."""
    return catalogued(name) if name in names() or name in aliases() else None
