"""Which cross-entropy kernels a measured run had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re
from run_words.dated import container, month

NATIVE: Final = 57
"""Bytes a logit of Megatron-Core's own cross-entropy, which NVIDIA's recipes ran until Megatron-Bridge chose
Transformer Engine's (``cross_entropy_fusion_impl = "te"``)."""

FUSED: Final = 12
"""The same of Transformer Engine's, as the stack ``nemo`` has it."""

COMPILED: Final = 38
"""The same where ``cross_entropy_loss_fusion`` compiles it (fused_cross_entropy.py): to fp32 and the largest, 6 bytes;
less that, its exponential and the sum, 8; divided by it, 8; the gradient, 10: at 0.85 of the bandwidth as others.
NeMo 2 has it by default."""

COPIED: Final = 10
"""Bytes held per logit where the largest is subtracted into a further tensor in fp32: Megatron-Core's cross-entropy
from its first days (commit 55817ec9b9) until "in-place operation" (9634c0e4a3), in its release 0.8."""
COPIED_SINCE, COPIED_UNTIL = "2022-09", "2024-06"
"""Months of the two."""
COPIED_RELEASES: Final = r"core[_ ]v?0\.[2-7]\b|\bnemo (23|24\.0[1-5])\b|megatron-lm-2404"
"""Releases in between, as frameworks name them."""

IN_BLOCKS: Final = r"\bliger\b|\bchunked[ _-](nll|loss|cross)|\bloss in \w+ (chunk|block)s|\bcut[ _-]cross[ _-]ent"
"""Words for logits that are made, judged and let go block by block."""

BRIDGE_SINCE: Final = "2025-10"
"""Month from which the stack ``nemo`` is Megatron-Bridge, whatever a run that names no older container calls it."""


def loss_changes(row: Mapping[str, Any], stack: str) -> dict[str, Any]:
    """A loss by blocks of tokens, fused with the head's product [Liger]; that of NVIDIA's before Megatron-Bridge.

    And what Megatron-Core's own holds, by its release or the month of the run.
    """
    if re.search(IN_BLOCKS, f"{row['stack']}".lower()):
        return {"loss": "fused"}
    copied = {"cross_entropy_bytes": COPIED} if _copied(row, stack) else {}
    return copied | _traffic(row, stack)


def _copied(row: Mapping[str, Any], stack: str) -> bool:
    """Whether the cross-entropy is Megatron-Core's of between the two commits."""
    if stack not in ("megatron-core", "nemo"):
        return False
    when = month(row)
    named = re.search(COPIED_RELEASES, str(row["stack"].get("framework")).lower())
    return bool(named) or (when is not None and COPIED_SINCE < when < COPIED_UNTIL)


def _traffic(row: Mapping[str, Any], stack: str) -> dict[str, Any]:
    """Bytes per logit of the kernel that the run's flags name, and of NVIDIA's stacks of before Megatron-Bridge."""
    flags = row["stack"].get("flags") or {}
    if str(flags.get("cross_entropy_fusion")).startswith("te"):
        return {"cross_entropy_traffic": FUSED}
    framework = str(row["stack"].get("framework")).lower()
    bridged = "megatron-bridge" in framework or (container(row) is None and (month(row) or "") >= BRIDGE_SINCE)
    if bridged or not stack.startswith("nemo"):
        return {}
    return {"cross_entropy_traffic": COMPILED if re.search(r"nemo 2\.", framework) else NATIVE}
