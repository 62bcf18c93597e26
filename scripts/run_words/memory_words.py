"""What a run's words say of its memory figure: its unit, which reading of a device it is, and of which stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from run_words import heard as re

Row = Mapping[str, Any]

MEMORY_KINDS: tuple[tuple[str, float, str], ...] = (
    (r"max_memory_allocated", 2.0**30, "allocated"),
    (r"max_(memory_)?reserved", 2.0**30, "reserved"),
    (r"largest total", 1e9, "device"),  # bytes in its files [Sailor]
    (r"nvidia[-_ ]smi|nvml|nvtop|nvitop|gpustat|dcgm|real use|\b(rocm|amd|npu|hl|xpu)-smi|driver", 2.0**30, "device"),
    (r"\bmax[ _]ca\b", 2.0**30, "reserved"),  # DeepSpeed's see_memory_usage, as the next
    (r"\bmax[ _]ma\b|see_memory_usage", 2.0**30, "allocated"),
    (r"converted to gb|converted from gib|decimal gb|converted to 1e9", 1e9, "allocated"),
    (r"peak gb|max post-optimizer|rank-0|per-gpu", 1e9, "allocated"),
    (r"unit mb is read as mib", 1e9, "allocated"),
    (r"gb or gib not stated", 1e9, "allocated"),  # the zero-bubble fork counts in millions of bytes throughout
    (r"reserved or allocated not stated", 2.0**30, "reserved"),
    (r"^(?!.*not stated).*reserved", 2.0**30, "reserved"),
    (r"gib|not stated|as printed|xla", 2.0**30, "allocated"),
)
"""First match of a row's words on its memory figure: bytes of one unit, and which of our quantities it is."""

MEBIBYTES = r"^(?!.*(read as|converted))((?!\bgi?b\b).)*\b(mi?b|mega ?bytes?|mebi ?bytes?)\b"
"""Words on a figure that is neither in GB nor in GiB: tools that say MB count in 2^20 bytes all the same."""

OF_ALL = (
    r"\b(sum(med)?|total|aggregated?) (over|of|across|for) (all |both |the |\d+ )*"
    r"([gnhx]pus|devices|ranks|cards|chips)\b"
)
"""Words on a figure that is of all devices together."""
_NO_BYTES = r"^(?!.*\bgi?b\b)"
SHARES = ((rf"{_NO_BYTES}.*(%|\bper ?cent\b|\bpercentage\b)", 0.01), (rf"{_NO_BYTES}.*\b(fraction|share) of\b", 1.0))
"""Words on a figure that is a share of the device's memory and in no bytes, and its unit."""

RESERVED = r"^torchtitan"
"""Frameworks that log ``max_reserved`` of PyTorch's allocator as their memory [torchtitan]."""

RANK_ZERO = r"rank-0"
"""Words on a figure of rank 0 alone, which holds the first stage."""


def memory_kind(row: Row) -> tuple[float, str]:
    """Bytes of one unit of the row's memory figure, and which quantity: "allocated", "reserved" or "device".

    The unit is 0.0 where it is a share of a device of unknown size.
    """
    words = memory_said(row)
    share = share_of(row)
    usual = (1e9, "allocated") if share is None else (1e9, "device")
    unit, name = next(((u, n) for pattern, u, n in MEMORY_KINDS if re.search(pattern, words)), usual)
    framework = str(row.get("stack", {}).get("framework")).lower()
    unit = 2.0**20 if re.search(MEBIBYTES, words) else unit
    unit /= float(row.get("strategy", {}).get("gpus") or 1) if re.search(OF_ALL, words) else 1.0
    reserved = bool(re.search(RESERVED, framework)) and "allocated" not in words
    return unit if share is None else share, "reserved" if reserved and share is None else name


def memory_said(row: Row) -> str:
    """The words on the memory figure, in lower case."""
    return str(row["measured"].get("memory_kind") or "").lower()


def share_of(row: Row) -> float | None:
    """Bytes of one unit of a memory figure that is a share of the device, whose drivers count GiB; else None."""
    unit = next((u for pattern, u in SHARES if re.search(pattern, memory_said(row))), None)
    return None if unit is None else unit * 2.0**30 * float(row.get("cluster", {}).get("memory_gb") or 0)


def stage_read(row: Row) -> int | None:
    """The stage that the row's memory figure is of: the first where rank 0 reports its own, else the fullest (None)."""
    said = (row.get("stack", {}).get("framework"), row["measured"].get("memory_kind"), row.get("source"))
    return 0 if any(re.search(RANK_ZERO, str(words).lower()) for words in said) else None
