"""What the release of a measured run decides of its attention, where no word of the run does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

UNEQUAL: Final = frozenset({"b200", "b300", "gb200", "gb300"})
"""Devices on which cuDNN before 9.11 has no backward pass for queries of 192 and values of 128 [TE]."""
CONTAINERS: Final = (("dgxc", (25, 8)), ("nemo", (25, 7)))
"""First release with a container that has it, by words of the run: NVIDIA's benchmarks run NeMo 25.04 up to their
release 25.07, and recompute the attention core on these devices up to then."""


def attention_changes(row: Mapping[str, Any]) -> dict[str, Any]:
    """Kernels of latent attention: batched products and a softmax where the release had no fused backward pass."""
    mla = row["model"].get("mla") or {}
    if row["cluster"].get("accelerator") not in UNEQUAL or mla.get("qk_nope", 0) + mla.get("qk_rope", 0) <= 128:
        return {}
    words = f"{row.get('source')} {row['stack'].get('framework')}".lower()
    released = re.search(r"\bv?(2[4-9])\.(0[1-9]|1[0-2])\b", words)
    first = next((since for word, since in CONTAINERS if word in words), None)
    if released is None or first is None or (int(released[1]), int(released[2])) >= first:
        return {}
    return {"attention": ("unfused",)}
