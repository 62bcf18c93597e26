"""A model's sizes and kinds in the words of measured runs, before they are read as those of a model file are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

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
GATES: Final = {"gelu": "geglu", "silu": "swiglu", "relu": "reglu"}
"""Of a network that is said to be gated, and named by the branch that is activated."""
EVERY: Final = (
    (r"^(\d+)\s*:\s*1$|^(\d+) (?:local|sliding)", 1),
    (r"^(\d+)$", 0),
    (r"^(?:every |1 in )(\d+)", 0),
)
"""Words for windows in all layers but every n-th, and what their number lacks of n."""


def as_worded(shape: Mapping[str, Any]) -> dict[str, Any]:
    """The description with kinds under their own names and whole numbers without a point."""
    fields = {name: _whole(value) for name, value in shape.items()}
    if isinstance(kind := fields.get("kind"), str):
        fields["kind"] = kind.lower()
    for field, names in (("position", POSITIONS), ("norm", NORMS), ("activation", ACTIVATIONS)):
        if isinstance(word := fields.get(field), str):
            fields[field] = next((name for words, name in names if re.search(words, word.lower())), word)
    if "sliding_window_pattern" in fields and (every := full_layer_every(fields["sliding_window_pattern"])):
        del fields["sliding_window_pattern"]
        fields.setdefault("sliding_window_every", every)
    if fields.get("gated_ffn") is True:
        fields["activation"] = GATES.get(str(fields.get("activation")), fields.get("activation"))
    return fields


def full_layer_every(pattern: object) -> int | None:
    """Every how many layers one sees the whole sequence: of "5:1" or "5 local : 1 global", 6, a list or "LLLLLG".

    None where the pattern does not tell, or its first layer is the whole one.
    """
    if isinstance(pattern, list) or re.fullmatch(r"[LSlsGFgf]+", str(pattern)):
        kinds = [str(kind).lower()[:1] for kind in cast("Iterable[object]", pattern)]
        whole = next((place for place, kind in enumerate(kinds, start=1) if kind in "gf"), None)
        return whole if whole and whole > 1 else None
    said = str(pattern).lower().strip()
    if re.search(r"alternat|every (other|second)", said):
        return 2
    found = ((re.search(words, said), lacks) for words, lacks in EVERY)
    return next((int(next(n for n in one.groups() if n)) + lacks for one, lacks in found if one), None)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
