"""Which release of cuDNN attends in a measured run, and in how many bits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from planner.validation.dated import month

CONTAINER: Final = re.compile(r"\b(?:nemo|ngc|nvidia)\b[^\d()]{0,20}\b(2[3-9])\.(0[1-9]|1[0-2])\b", re.IGNORECASE)
"""A monthly container by name: "NeMo 26.02.01 container", "NGC PyTorch 26.05", "NVIDIA 26.01 family"."""
RELEASED: Final = (26, 1)
"""First of them with cuDNN 9.18: NeMo 25.11 has 9.13.1, 26.02 has 9.18.0, 26.04 has 9.20.0 [Megatron-Bridge]."""
SINCE: Final = "2026-02"
"""Month from which a run has it whose source names no container."""
IN_8_BITS: Final = re.compile(
    r"fp8_(dpa|dot_product_attention|mha|multi_head_attention)|\bfp8[ _-]attention", re.IGNORECASE
)
"""How sources say that attention multiplies in 8 bits too: Megatron-Core's settings, Transformer Engine's words."""


def cudnn_changes(row: Mapping[str, Any]) -> dict[str, bool]:
    """Whether cuDNN's attention is that of January 2026 or later, and in 8 bits where the run says so."""
    told = f"{row['stack']} {row['strategy'].get('precision_note')} {row.get('notes')}"
    fp8 = {"fp8_attention": True} if IN_8_BITS.search(told) else {}
    return {"recent_cudnn": _recent(row)} | fp8


def _recent(row: Mapping[str, Any]) -> bool:
    said = CONTAINER.search(f"{row['stack'].get('framework')} {row.get('source')}")
    if said:
        return (int(said[1]), int(said[2])) >= RELEASED
    return (month(row) or "") >= SINCE
