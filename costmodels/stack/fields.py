"""Values that fields of a software stack take."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from costmodels.names import MODULES, OFFLOADS, SCHEDULE_NAMES
from hardware.errors import no_such

Kept = Literal[
    "gate",
    "norm",
    "norm-16",
    "key-values",
    "softmax",
    "rotated",
    "projected",
    "transposed",
    "gathered",
    "cache",
    "casts",
]
"""The activated branch of a gated network and its product; inputs of norms in fp32, or their outputs before they are
scaled, in 16 bits; keys and values repeated for every head; the softmax of unfused attention in fp32 and its copy in
16 bits; rotated queries and keys and the projection that values are a view of, or keys and values and the one of
queries, of as many heads; attention's output by head and the same by token; weights as ZeRO stage 3 gathered them,
which PyTorch's own products hold a view of, so that to give them up frees nothing (DeepSpeed without
``mem_efficient_linear``); keys and values that the model returns of a pass, once for every pass whose are held;
weights as a compiled forward pass cast them to 8 bits."""


Count = Annotated[int, Field(ge=0, le=10**6)]
"""Bytes per value, kernels of a layer and the like."""


Dispatcher = Literal["allgather", "alltoall", "deepep", "hybridep"]
SENT_ONCE = ("deepep", "hybridep")
"""Dispatchers that send a token once per domain, in which it is copied."""

ATTENTION_KERNELS = (
    *("unfused", "memory-efficient", "flash-1", "flash-2", "flash-3", "cudnn", "aotriton", "triton"),
    *("splash", "splash-two-pass"),
)
ZERO_STAGES = range(4)


def _among(known: Collection[Any]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Refuses a list with what is not known in it."""

    def check(given: tuple[Any, ...]) -> tuple[Any, ...]:
        if unknown := [one for one in given if one not in known]:
            raise ValueError(no_such(str(unknown[0]), [str(one) for one in known]))
        return given

    return check


AttentionKernels = Annotated[tuple[str, ...], AfterValidator(_among(ATTENTION_KERNELS))]
ZeroStages = Annotated[tuple[int, ...], Field(min_length=1), AfterValidator(_among(ZERO_STAGES))]
Schedules = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_among(SCHEDULE_NAMES))]
RecomputeModules = Annotated[tuple[str, ...], AfterValidator(_among(MODULES))]
Offloads = Annotated[tuple[str, ...], AfterValidator(_among(OFFLOADS))]
