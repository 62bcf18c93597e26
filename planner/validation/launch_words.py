"""Whether the host of a measured run waited for every kernel (CUDA_LAUNCH_BLOCKING=1): said, or known of its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Row = Mapping[str, Any]

HANGS_FROM: Final = 320
"""Devices from which BLOOM's trials always hung without: all on 320 and 384 waited, as the training run did
[tr11-176B-ml, "dealing with JZ hanging on the large model"]."""


def launch_changes(row: Row) -> dict[str, bool]:
    """What the run's notes, or its source and size, settle of how kernels are launched."""
    said = "launches blocking" in str(row["stack"].get("notes"))
    trial = "tr11-176B-ml/chronicles-prequel" in str(row.get("source"))
    hung = trial and int(row["strategy"].get("gpus") or 0) >= HANGS_FROM
    return {"blocking_launches": True} if said or hung else {}
