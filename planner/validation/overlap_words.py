"""Which traffic between data ranks a run says that it does not hide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodels.stack import Stack

HIDES = {"overlap_grad_reduce": "gradients", "overlap_param_gather": "parameters"}
"""Megatron-Core's flags, and what the stack calls what they hide."""


def overlap_changes(row: Mapping[str, Any], chosen: Stack) -> dict[str, Any]:
    """Fields of the stack that the run's flags settle.

    Without an overlap of gradients Megatron-Core has no buckets: all of them travel at once.
    """
    flags = row["stack"].get("flags")
    listed = flags if isinstance(flags, Mapping) else {}
    off = {field: False for flag, field in HIDES.items() if listed.get(flag) is False}
    if not off:
        return {}
    whole = {"bucket_parameters": 0.0} if "gradients" in off else {}
    return {"overlap": chosen.overlap.model_copy(update=off), **whole}
