"""What XLA does on GPUs, by the month of a measured run and by what its framework asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import flat_fields
from run_words import heard as re
from run_words.dated import month

Row = Mapping[str, Any]

OTHERS: Final = r"tpu|trainium|trn\d"
"""Accelerators whose compilers are other ones."""

NOTHING_HIDDEN: Final = r"axlearn"
"""Frameworks that leave XLA's latency-hiding scheduler off, without which a collective ends before the next kernel
starts: AXLearn asks for it on Google's A3 alone, from 28 June 2024 on (``cloud/gcp/job.py`` at eab99dfe) [AXLearn]."""

ONE_SOFTMAX_SINCE: Final = "2024-08"
"""First month in which XLA may run a softmax as one kernel: ``xla_gpu_enable_triton_softmax_fusion`` was off by default
in July 2024 (GitHub openxla/xla, pull request 14962) [XLA]."""
KERNELS_OF_ITS_OWN: Final = r"\bTE\b|transformer engine"


def xla_changes(row: Row) -> dict[str, Any]:
    """Fields of the stack that XLA settles on GPUs: what it hides, and in how many passes a softmax runs."""
    if re.match(OTHERS, str(row["cluster"].get("accelerator"))):
        return {}
    found: dict[str, Any] = {}
    if re.search(NOTHING_HIDDEN, str(row["stack"].get("framework")).lower()):
        found |= flat_fields.NOTHING_HIDDEN
    if row["stack"].get("attention") is False and _before_one_softmax(row):
        found["fused_softmax"] = False
    return found


def _before_one_softmax(row: Row) -> bool:
    when, said = month(row), f"{row['stack']} {row['strategy'].get('precision_note')}"
    return when is not None and when < ONE_SOFTMAX_SINCE and not re.search(KERNELS_OF_ITS_OWN, said, re.IGNORECASE)
