"""How the host of a measured run launches kernels, said or known of its source.

Whether it waits for each of them (CUDA_LAUNCH_BLOCKING=1), and whether it runs beside its device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re

Row = Mapping[str, Any]

TRIALS: Final = "tr11-176B-ml/chronicles-prequel"
HANGS_FROM: Final = 320
"""Devices from which BLOOM's trials always hung without: all on 320 and 384 waited, as the training run did
[tr11-176B-ml, "dealing with JZ hanging on the large model"]."""
UNMENDED: Final = r"\"Best TFLOPs\"|section on CUDA_LAUNCH_BLOCKING", r"\bdated 02-2[0-4]\b"
"""Sections and notes of BLOOM's trials from before 25 February 2022, when PCI-Express and NUMA of its machine were set
right. Its log has all earlier runs 1 to 5 % slow and compares none with later ones; seven that ran before and after
took 4 to 8 % longer before [tr11-176B-ml, "GBS Variations"]."""
MISBOUND: Final = r"dgxc-benchmarking v25\.0[57]\b"
"""Releases that start NeMo at 7a8f1cc and 00b778e (``setup.sh``, ``metadata.yaml``): ``scripts/performance`` binds by
the number of the rank on its node, but there the batch script puts it in, once for all ranks, so that all share the
first processors (until pull request 13914 of June 2025; 00b778e has it not yet) [NeMo-13914]."""


def launch_changes(row: Row) -> dict[str, bool]:
    """What the run's notes, or its source and size, settle of how kernels are launched."""
    misbound = re.search(MISBOUND, str(row.get("source")))
    unbound = misbound or unmended(row) or "processes unbound" in str(row["stack"].get("notes"))
    return _blocking(row) | ({"bound_processes": False} if unbound else {})


def unmended(row: Row) -> bool:
    """Whether the run is of a machine that its own log calls slow, and was set right later."""
    source, (sections, dates) = str(row.get("source")), UNMENDED
    early = re.search(sections, source) or re.search(dates, str(row.get("notes")))
    return TRIALS in source and early is not None


def _blocking(row: Row) -> dict[str, bool]:
    said = "launches blocking" in str(row["stack"].get("notes"))
    hung = TRIALS in str(row.get("source")) and int(row["strategy"].get("gpus") or 0) >= HANGS_FROM
    return {"blocking_launches": True} if said or hung else {}
