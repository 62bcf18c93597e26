"""What a run says of its gradients: which of their traffic it does not hide, and whether products add them up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from costmodels.stack import Stack, stack

HIDES = {"overlap_grad_reduce": "gradients", "overlap_param_gather": "parameters"}
"""Megatron-Core's flags, and what the stack calls what they hide."""


ADDED = 10
"""Bytes per parameter where a product writes its gradient in 16 bits, which is then read and added to one in 32."""


def accumulation_changes(row: Mapping[str, Any]) -> dict[str, Any]:
    """Gradients that no product adds up (Megatron's --no-gradient-accumulation-fusion): none waits for it either."""
    words = f"{row['stack'].get('notes')} {row.get('notes')}"
    apart = re.search(r"no gradient.accumulation.fusion", words) is not None
    return {"accumulate_traffic": ADDED, "idle_gradients": False} if apart else {}


def overlap_changes(row: Mapping[str, Any], chosen: Stack) -> dict[str, Any]:
    """Fields of the stack that the run's flags settle.

    Without an overlap of gradients Megatron-Core has no buckets: all of them travel at once. Without user buffers
    (``tp_comm_overlap``) tensor ranks hide what Megatron-Core itself hides, behind the weights' gradients, and gathers
    last by their bytes, which are in 8 bits where products take 8 bits.
    """
    flags = row["stack"].get("flags")
    listed = flags if isinstance(flags, Mapping) else {}
    off: dict[str, Any] = {field: False for flag, field in HIDES.items() if listed.get(flag) is False}
    whole: dict[str, Any] = {"bucket_parameters": 0.0} if "gradients" in off else {}
    if listed.get("tp_comm_overlap") is False:
        plain = stack("megatron-core").overlap
        off |= {"tp_forward": plain.tp_forward, "tp_backward": plain.tp_backward}
        whole["fp8_tensor_gather"] = True
    return {"overlap": chosen.overlap.model_copy(update=off), **whole} if off else {}
