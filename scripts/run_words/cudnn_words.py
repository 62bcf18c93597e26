"""Which release of cuDNN, and of its kernels in Python, a measured run has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re
from run_words.dated import of_its_time

IN_8_BITS: Final = re.compile(
    r"fp8_(dpa|dot_product_attention|mha|multi_head_attention)|\bfp8[ _-]attention", re.IGNORECASE
)
"""How sources say that attention multiplies in 8 bits too: Megatron-Core's settings, Transformer Engine's words."""


def cudnn_changes(row: Mapping[str, Any]) -> dict[str, Any]:
    """Attention of cuDNN: not of 2026 where nothing dates the run, in 8 bits where it says so."""
    told = f"{row['stack']} {row['strategy'].get('precision_note')} {row.get('notes')}"
    fp8 = {"fp8_attention": True} if IN_8_BITS.search(told) else {}
    return fp8 if of_its_time(row) else fp8 | {"recent_cudnn": False}
