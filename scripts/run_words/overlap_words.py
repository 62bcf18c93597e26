"""What a run says of its gradients: which of their traffic it does not hide, and whether products add them up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodels.stack.stack import stack
from run_words import heard as re

HIDES = {"overlap_grad_reduce": "overlap.gradients", "overlap_param_gather": "overlap.parameters"}
"""Megatron-Core's flags, and what the stack calls what they hide."""

_OFF = r" ?[=:]? ?(?:is )?(?:off|disabled|false|no)\b"
_NO = r"\b(?:no|without)(?: any)?"
_NOTHING = rf"{_NO}(?: comm\w*)? overlap(?:ping)?\W*(?:$|;)|^(?:comm\w* )?overlap{_OFF}"


def _denial(what: str, flag: str) -> str:
    """A pattern of words that leave the traffic of that name unhidden."""
    before = rf"{_NO} overlap\w* (?:of )?[^;.]*\b{what}|{_NO} {what}\w*[^;,.]*overlap"
    return rf"{before}|\b{what}\w*[^;,.]*overlap{_OFF}|{flag}{_OFF}|{_NOTHING}"


DENIED = {
    "overlap_grad_reduce": _denial("grad", "overlap grad reduce"),
    "overlap_param_gather": _denial("param", "overlap param gather"),
    "tp_comm_overlap": _denial("(?:tp|tensor[ -]parallel)", "tp comm overlap"),
}
"""Words on overlap that say of a flag that it is off, where the run lists no flags."""

ADDED = 10
"""Bytes per parameter where a product writes its gradient in 16 bits, which is then read and added to one in 32."""


def accumulation_changes(row: Mapping[str, Any]) -> dict[str, Any]:
    """Gradients that no product adds up (Megatron's --no-gradient-accumulation-fusion): none waits for it either."""
    words = f"{row['stack'].get('notes')} {row.get('notes')}"
    apart = re.search(r"no gradient.accumulation.fusion", words) is not None
    return {"accumulate_traffic": ADDED, "idle_gradients": False} if apart else {}


def overlap_changes(row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the stack that the run's flags settle.

    A bucket is as large as they say. Without an overlap of gradients Megatron-Core has no buckets: all of them travel
    at once. Without user buffers (``tp_comm_overlap``) tensor ranks hide what Megatron-Core itself hides, behind the
    weights' gradients, and gathers last by their bytes, which are in 8 bits where products take 8 bits.
    """
    flags = row["stack"].get("flags")
    listed = denied(row) | dict(flags if isinstance(flags, Mapping) else {})
    off: dict[str, Any] = {field: False for flag, field in HIDES.items() if listed.get(flag) is False}
    whole: dict[str, Any] = {"bucket_parameters": 0.0} if "overlap.gradients" in off else _bucket(listed)
    if listed.get("tp_comm_overlap") is False:
        plain = stack("megatron-core").overlap
        off |= {"overlap.tp_forward": plain.tp_forward, "overlap.tp_backward": plain.tp_backward}
        whole["fp8_tensor_gather"] = True
    return off | whole


def denied(row: Mapping[str, Any]) -> dict[str, bool]:
    """Flags that the run's words on overlap say are off."""
    said = str(row["stack"].get("overlap") or "").lower().replace("_", " ")
    return {flag: False for flag, words in DENIED.items() if "overlap" in said and re.search(words, said)}


def _bucket(flags: Mapping[str, Any]) -> dict[str, float]:
    """Parameters of one bucket, as Megatron-Core's --ddp-bucket-size and NeMo's ``bucket_size`` count them."""
    size = flags.get("bucket_size", flags.get("ddp_bucket_size"))
    said = isinstance(size, int | float) and not isinstance(size, bool) and size > 0
    return {"bucket_parameters": float(size)} if said else {}
