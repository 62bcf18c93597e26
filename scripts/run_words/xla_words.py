"""What XLA does on GPUs, by what a measured run's framework asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import flat_fields
from run_words import heard as re

Row = Mapping[str, Any]

OTHERS: Final = r"tpu|trainium|trn\d"
"""Accelerators whose compilers are other ones."""

NOTHING_HIDDEN: Final = r"axlearn"
"""Frameworks that leave XLA's latency-hiding scheduler off, without which a collective ends before the next kernel
starts: AXLearn asks for it on Google's A3 alone, from 28 June 2024 on (``cloud/gcp/job.py`` at eab99dfe) [AXLearn]."""

KERNELS_OF_ITS_OWN: Final = r"\bTE\b|transformer engine"


def xla_changes(row: Row) -> dict[str, Any]:
    """Fields of the stack that XLA settles on GPUs: what it hides, and a softmax that is not its own."""
    if re.match(OTHERS, str(row["cluster"].get("accelerator"))):
        return {"fused_softmax": True}
    found: dict[str, Any] = {}
    if re.search(NOTHING_HIDDEN, str(row["stack"].get("framework")).lower()):
        found |= flat_fields.NOTHING_HIDDEN
    said = f"{row['stack']} {row['strategy'].get('precision_note')}"
    if re.search(KERNELS_OF_ITS_OWN, said, re.IGNORECASE):
        found["fused_softmax"] = True
    return found


POLICIES: Final = (
    (r"minimal_flash|minimal_with_context", "up-projections"),
    (r"minimal", "products"),
    (r"save_dot_with_context_except_mlp", "feed-forward"),
    (r"save_dot_except_mlp|qkv and attention output offloaded", "attention-products"),
)
"""Names of MaxText's policies, or what one keeps, and the kind of selective recomputation that does so
(``layers/decoders.py``, ``get_remat_policy``)."""


def kept(row: Row) -> str | None:
    """The kind of selective recomputation that a run's policy is, where it is not the usual one."""
    said = f"{row['strategy'].get('recompute_detail')} {row.get('filled')} {row.get('notes')}".lower()
    return next((kind for words, kind in POLICIES if re.search(words, said)), None)
