"""A model's sizes and kinds in the words of measured runs, before they are read as those of a model file are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re

POSITIONS: Final = (
    (r"nope|none|sinusoid|relative", "none"),
    (r"rope|rotary|yarn", "rotary"),
    (r"learn|absolute", "learned"),
    (r"alibi", "alibi"),
)
"""First match of the words; waves that are added to what the embedding returns cost nothing that is counted here."""
NORMS: Final = ((r"rms", "rmsnorm"), (r"layer", "layernorm"))
ACTIVATIONS: Final = (
    (r"swiglu", "swiglu"),
    (r"geglu", "geglu"),
    (r"reglu", "reglu"),
    (r"squared[ _-]?relu|relu[ _-]?(2|squared)|sqrelu", "squared_relu"),
    (r"relu", "relu"),
    (r"gelu", "gelu"),
    (r"silu|swish", "silu"),
)
KINDS: Final = (
    (r"\bmoe\b|mixture[ -]of[ -]experts|\bsparse\b", "moe"),
    (r"\bdense\b|\bdecoder|\btransformer|\b(gpt|llama|bert|encoder)\b", "dense"),
)
GATES: Final = {"gelu": "geglu", "silu": "swiglu", "relu": "reglu"}
"""Of a network that is said to be gated, and named by the branch that is activated."""


def as_worded(shape: Mapping[str, Any]) -> dict[str, Any]:
    """The description with kinds under their own names and whole numbers without a point."""
    fields = {name: _whole(value) for name, value in shape.items()}
    if isinstance(kind := fields.get("kind"), str):
        fields["kind"] = _kind(kind.lower())
    for field, names in (("position", POSITIONS), ("norm", NORMS), ("activation", ACTIVATIONS)):
        if isinstance(word := fields.get(field), str):
            fields[field] = next((name for words, name in names if re.search(words, word.lower())), word)
    if fields.get("gated_ffn") is True:
        fields["activation"] = GATES.get(str(fields.get("activation")), fields.get("activation"))
    return fields


def _kind(said: str) -> str:
    """A kind of model under its own name; a hybrid's, and what nothing is known of, as it is."""
    if re.search(r"mamba|hybrid|ssm|state[ -]space|rwkv|diffusion|vision|multimodal", said):
        return said
    return next((kind for words, kind in KINDS if re.search(words, said)), said)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
