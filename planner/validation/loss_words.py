"""Which cross-entropy kernels a measured run had."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

NATIVE: Final = 57
"""Bytes a logit of Megatron-Core's own cross-entropy, which NVIDIA's recipes ran until Megatron-Bridge chose
Transformer Engine's (``cross_entropy_fusion_impl = "te"``)."""

COMPILED: Final = 38
"""The same where ``cross_entropy_loss_fusion`` compiles it (fused_cross_entropy.py): to fp32 and the largest, 6 bytes;
less that, its exponential and the sum, 8; divided by it, 8; the gradient, 10: at 0.85 of the bandwidth as others.
NeMo 2 has it by default, and so have the recipes of NVIDIA's benchmark [dgxc-bench], but GPT-3's and Grok's."""


def loss_changes(row: Mapping[str, Any], stack: str) -> dict[str, Any]:
    """Liger's loss, fused with the head's product [Liger]; that of NVIDIA's stacks of before Megatron-Bridge."""
    if re.search(r"\bliger\b", f"{row['stack']}".lower()):
        return {"loss": "fused"}
    framework, source = (str(words).lower() for words in (row["stack"].get("framework"), row.get("source")))
    if not stack.startswith("nemo") or "megatron-bridge" in framework:
        return {}
    recipe = re.search(r"dgxc-benchmarking v[\d.]+, (?!gpt3|grok)", source)
    compiled = recipe or re.search(r"nemo 2\.", framework)
    return {"cross_entropy_traffic": COMPILED if compiled else NATIVE}
