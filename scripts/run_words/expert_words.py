"""What a measured run says of its experts: dispatcher, overlap, CUDA graphs, load, capacity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.stack.switches import LARGEST_CAPACITY
from planner.errors import BadRequest
from run_words import heard as re

WHOLE: Final = "cuda graphs of whole layers"
"""Words for graphs that hold all of a layer."""
UNITS: Final = 32 / 148
"""Share of a Blackwell's units that dispatch and combine take from overlapped computation
(``moe_hybridep_num_sms`` of Megatron-Bridge's performance recipes; NCCL's exchanges have up to as many channels)."""
COMBINED: Final = 1.45
"""Launches of a layer that overlaps another micro-batch's over those of one that does not: its parts go through
autograd one by one, weight gradients apart. 256 B200 train Qwen3 235B-A22B in mxfp8 at 21.4 ms a layer with the
overlap and 14.8 without, both with graphs of the router, both bound by the host [Together26]."""


def expert_changes(row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the stack that the words of the run decide."""
    stack = row["stack"]
    words = f"{stack.get('overlap') or ''} {stack.get('notes') or ''}".lower()
    flags = stack.get("flags") if isinstance(stack.get("flags"), Mapping) else {}
    listed = re.search(r"nemo 2\d?[. ]", f"{stack.get('framework') or ''} ".lower()) is not None
    changes = _graphs(words, listed=listed) | _load(row, flags)
    if re.search(r"deepep|hybridep", words):
        changes |= {"dispatch": "once-per-domain", "gathered_routes": "hybridep" in words}
    elif listed or flags.get("moe_dispatcher") == "alltoall":
        changes["dispatch"] = "every-copy"  # what NVIDIA's scripts run where a recipe names no other
    overlapped = re.search(r"ep a2a.*overlap", words)
    if flags.get("moe_shared_expert_overlap"):
        changes["shared_expert_overlap"] = True
    return changes | _overlap(overlapped=bool(overlapped), listed=listed)


def _overlap(*, overlapped: bool, listed: bool) -> dict[str, Any]:
    """What experts' traffic takes from the work it overlaps, and what overlapping it costs the host."""
    if overlapped:
        return {"overlap.ep": UNITS, "combined_launches": COMBINED}
    return {"overlap.ep": 1.0} if listed else {}


def _graphs(words: str, *, listed: bool) -> dict[str, Any]:
    """Graphs of the whole iteration, or of the parts of a layer that are named.

    A whole iteration of dropless tokens is captured with fused experts only. A release of NVIDIA's recipes lists
    what it switches on, and what it does not list is off.
    """
    off: dict[str, Any] = {"cuda_graphs": False, "fused_experts": False} if listed else {}
    if "cuda graph" not in words:
        return off
    if WHOLE in words:
        return off | {"graphs": ("attn", "moe")}
    if parts := [part for part in ("attn", "mamba", "moe_router", "moe_preprocess") if part in words]:
        return off | {"graphs": tuple(parts)}
    return {"cuda_graphs": True, "fused_experts": "full_iteration" in words}


def _load(row: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Forced balance is a load of one; a padded capacity is that load, and spares the host from asking."""
    notes = str(row.get("notes") or "").lower()
    changes: dict[str, Any] = {}
    if re.search(r"force-balanced|forced load balance|balanced fake gate", notes):
        changes["expert_imbalance"] = 1.0
    factor = re.search(r"capacity factor (?:of )?(\d+(?:\.\d+)?)", notes)
    if factor or re.search(r"(^|; *)token[- ]?drop", notes):
        changes["expert_capacity"] = _capacity(factor[1]) if factor else 1.0
    if flags.get("moe_pad_expert_input_to_capacity") and flags.get("moe_capacity_factor"):
        changes["expert_capacity"] = _capacity(flags["moe_capacity_factor"])
    return changes


def _capacity(said: Any) -> float:
    factor = float(said)
    if not 0.0 < factor <= LARGEST_CAPACITY:
        raise BadRequest(f"capacity factor {said}: expected above 0 and at most {LARGEST_CAPACITY:g}")
    return factor
