"""Kinds of measured runs, by which errors are shown to somebody who asks how far runs like theirs are off."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodels.strategy import Bools
from planner.trust.error_model import FEW
from planner.trust.memory import Readings
from planner.trust.similarity import Traits
from planner.trust.table import Measured

MANY = 512
"""GPUs beyond which a run is large."""
SLOW = 12.5
"""GB/s a GPU up to which a network is slow."""
KINDS = ("few GPUs", "experts", "8 and 4 bit", "Megatron", "others")
"""Kinds whose intervals end at places of their own; a run is of the first that holds."""


def kind_for_ends(known: Traits) -> NDArray[np.str_]:
    """The one of ``KINDS`` that each of M runs is of, (M,)."""
    names = known.names
    tests = [
        2.0 ** known.sizes["gpus"] < FEW,
        names["kind"] != "dense",
        names["bits"] != "fp16",
        names["framework"] == "megatron",
    ]
    return np.array(KINDS)[np.argmax(np.broadcast_arrays(*tests, True), axis=0)]


def kinds_of(table: Measured) -> dict[str, Bools]:
    """Which runs are of each kind, arrays (M,); a run may be of several."""
    names, gpus = table.traits.names, 2.0 ** table.traits.sizes["gpus"]
    dense, half = names["kind"] == "dense", names["bits"] == "fp16"
    several, megatron = gpus >= FEW, names["framework"] == "megatron"
    network = np.array([run.network for run in table.runs])
    return {
        "all": np.ones(len(gpus), dtype=bool),
        "dense, 16 bit, Megatron": dense & half & several & megatron,
        "dense, 16 bit, others": dense & half & several & ~megatron,
        "dense, 8 and 4 bit": dense & ~half,
        "experts and hybrids": ~dense,
        f"fewer than {FEW} GPUs": ~several,
        f"more than {MANY} GPUs": gpus > MANY,
        f"networks up to {8 * SLOW:.0f} Gb/s": (gpus > 1) & (network <= SLOW),
        "TPU": names["vendor"] == "Google",
        "other than NVIDIA": names["vendor"] != "NVIDIA",
    }


def kinds_of_readings(table: Readings) -> dict[str, Bools]:
    """The same of runs whose memory is known, and by the kind of reading."""
    names, gpus, read = table.traits.names, 2.0 ** table.traits.sizes["gpus"], table.column("reading")
    dense, megatron, several = names["kind"] == "dense", names["framework"] == "megatron", gpus >= FEW
    return {
        "all": np.ones(len(gpus), dtype=bool),
        "dense, Megatron": dense & megatron & several,
        "dense, others": dense & ~megatron & several,
        "experts and hybrids": ~dense,
        f"fewer than {FEW} GPUs": ~several,
        "other than NVIDIA": names["vendor"] != "NVIDIA",
        **{f"read as {kind}": read == kind for kind in ("allocated", "reserved", "device")},
    }
