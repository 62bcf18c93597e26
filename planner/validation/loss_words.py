"""Which cross-entropy kernels a measured run had."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

NATIVE: Final = 57
"""Bytes a logit of Megatron-Core's own cross-entropy, which NVIDIA's recipes ran until Megatron-Bridge chose
Transformer Engine's (``cross_entropy_fusion_impl = "te"``)."""


def loss_changes(row: Mapping[str, Any], stack: str) -> dict[str, Any]:
    """Liger's loss, fused with the head's product [Liger]; that of NVIDIA's stacks of before Megatron-Bridge."""
    if re.search(r"\bliger\b", f"{row['stack']}".lower()):
        return {"loss": "fused"}
    older = stack.startswith("nemo") and "megatron-bridge" not in str(row["stack"].get("framework")).lower()
    return {"cross_entropy_traffic": NATIVE} if older else {}
