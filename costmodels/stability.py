"""How often a job is interrupted, and what an interruption and a checkpoint take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from hardware.errors import check_fields
from hardware.kernels import Record
from hardware.units import BandwidthQuantity, FailureQuantity, TimeQuantity, within

Wait = Annotated[TimeQuantity, within("0 s", "30 d", "time")]
Startup = Literal["tcpstore", "redis", "ordered"]

STARTUP: dict[Startup, tuple[float, int]] = {"tcpstore": (1047.0, 2), "redis": (361.0, 2), "ordered": (5.0, 1)}
"""Seconds that all process groups take to form on 2,048 GPUs, and the power of the GPUs they grow with [Jiang24 3.5]:
barriers after each group cost n^2, groups formed in order without them n."""
STARTUP_GPUS = 2048.0

SPARE_RISK = 1e-3
"""Share of the time that a job may wait for a repair if its spare nodes are to be called enough."""


class Stability(Record):
    """How often a job is interrupted, and what an interruption and a checkpoint take; unset fields are as usual."""

    failure: Annotated[FailureQuantity, within("0 /s", "1 per 1 h", "frequency")] | None = None
    """Interruptions per device and second; the accelerator's where unset."""
    detect: Wait = 600.0
    """From an interruption to its diagnosis: under ten minutes [Jiang24 6.3]."""
    restart: Wait = 300.0
    """From the diagnosis to reading the checkpoint: new nodes, processes, compilation. Assumed."""
    startup: Startup = "ordered"
    """How process groups are formed, one of ``STARTUP``."""
    checkpoint: Literal["async", "sync"] = "async"
    """Whether training goes on while a copy in host memory drains to storage."""
    storage: Annotated[BandwidthQuantity, within("1 MB/s", "1 PB/s", "bandwidth")] | None = None
    """Of all storage together; where unset 1 GB/s per node, as BLOOM's 57.5 GB/s on 48 nodes and Llama 3's 2 TB/s on
    2,048."""
    interval: Annotated[TimeQuantity, within("1 s", "30 d", "time")] | None = None
    """Between checkpoints; the best one where unset."""
    spare_nodes: int | None = Field(default=None, strict=True, ge=0, le=2**20)
    """Nodes besides the job's that replace broken ones; unset: as many as it takes."""
    repair: Wait = 86400.0
    """Until a broken node is back."""
    broken: float = Field(default=0.78, ge=0.0, le=1.0)
    """Interruptions that take a node out: 78 % of Llama 3's were confirmed or suspected hardware."""
    straggler_nodes: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of nodes that are slow."""
    straggler_slowdown: float = Field(default=0.1, ge=0.0, le=10.0)
    """How much slower such a node is: a tenth [Jiang24 5.1]."""

    @model_validator(mode="before")
    @classmethod
    def _fields(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            check_fields(given, tuple(cls.model_fields))
        return given
