"""Kinds of measured runs, by which errors are shown to somebody who asks how far runs like theirs are off."""

from __future__ import annotations

import numpy as np

from costmodels.strategy import Bools
from planner.trust.error_model import FEW
from planner.trust.table import Measured

MANY = 512
"""GPUs beyond which a run is large."""


def kinds_of(table: Measured) -> dict[str, Bools]:
    """Which runs are of each kind, arrays (M,); a run may be of several."""
    names, gpus = table.traits.names, 2.0 ** table.traits.sizes["gpus"]
    dense, half = names["kind"] == "dense", names["bits"] == "fp16"
    several, megatron = gpus >= FEW, names["framework"] == "megatron"
    return {
        "all": np.ones(len(gpus), dtype=bool),
        "dense, 16 bit, Megatron": dense & half & several & megatron,
        "dense, 16 bit, others": dense & half & several & ~megatron,
        "dense, 8 and 4 bit": dense & ~half,
        "experts and hybrids": ~dense,
        f"fewer than {FEW} GPUs": ~several,
        f"more than {MANY} GPUs": gpus > MANY,
        "other than NVIDIA": names["vendor"] != "NVIDIA",
    }
