"""What a measured run says of dropout: by its framework's flags, or in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re

FLAGS: Final = ("hidden_dropout", "attention_dropout", "dropout")
"""Flags of Megatron's and of plain scripts; where fused attention keeps no mask, that of hidden states decides."""

WORDS: Final = r"\b(no|without) dropout\b|(?<!lora )(?<!adapter )(?<!adapters )\bdropout( of| rate)?[ =:]*(\d*\.?\d+)\b"
"""A share in words, or none; not that of adapters."""


def dropout_changes(row: Mapping[str, Any]) -> dict[str, bool]:
    """Whether the run drops anything out; empty where neither its flags nor its notes say.

    Masks are a byte a value, and what unfused attention drops out of its softmax is kept too [Korthikanti22].
    """
    flags = row["stack"].get("flags")
    said = next((flags[name] for name in FLAGS if name in flags), None) if isinstance(flags, Mapping) else None
    if said is None:
        found = re.search(WORDS, str(row["stack"].get("notes")).lower())
        said = found and (found[3] or 0)
    try:
        return {} if said is None else {"dropout": float(said) > 0.0}
    except (TypeError, ValueError):
        return {}
