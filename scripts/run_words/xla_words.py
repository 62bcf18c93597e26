"""What programs on XLA ask of it: kernels of a softmax, policies of recomputation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re

Row = Mapping[str, Any]

OTHERS: Final = r"tpu|trainium|trn\d"
"""Accelerators whose compilers are other ones."""

KERNELS_OF_ITS_OWN: Final = r"\bTE\b|transformer engine"


def xla_changes(row: Row) -> dict[str, Any]:
    """Whether a softmax is one kernel: not XLA's own, or on devices whose compilers are other ones."""
    other = re.match(OTHERS, str(row["cluster"].get("accelerator")))
    said = f"{row['stack']} {row['strategy'].get('precision_note')}"
    return {"fused_softmax": True} if other or re.search(KERNELS_OF_ITS_OWN, said, re.IGNORECASE) else {}


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
