"""What a measured run says of its model in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from costmodels.model import Model

WINDOW: Final = 1024
"""Tokens of a sliding window that a source speaks of without a size: MegaScale's printed efficiencies count the FLOP of
about so many (arXiv 2402.15627, table 2)."""


def as_described(model: Model, shape: Mapping[str, Any], notes: list[str]) -> Model:
    """The model with what the run's notes on it say: attention and MLP side by side, a window, a head's width."""
    said = str(shape.get("notes") or "").lower()
    changes: dict[str, Any] = {}
    if re.search(r"parallel (attention ?\+ ?mlp )?block\b", said):
        changes["parallel_block"] = True
        notes.append("attention and MLP of a layer side by side, by the notes")
    if "sliding" in said and model.sliding_window is None and model.seq_length > WINDOW:
        changes["sliding_window"] = WINDOW
        notes.append(f"sliding window of {WINDOW} tokens assumed")
    if (width := re.search(r"head dimension (\d+)", said)) and shape.get("head_dim") is None:
        changes["head_dim"] = int(width[1])
    return Model.model_validate(model.model_dump() | changes) if changes else model
