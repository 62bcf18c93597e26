"""Values that fields of a software stack take."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from hardware.kernels import Record

Kept = Literal["gate", "norm", "norm-16", "key-values", "softmax", "rotated", "projected", "transposed", "gathered"]
"""The activated branch of a gated network beside its product; inputs of norms in fp32, or their outputs before they are
scaled, in 16 bits; keys and values repeated for every head; the softmax of unfused attention in fp32 beside its copy in
16 bits; rotated queries and keys beside the projection that values are a view of, or keys and values beside the one of
queries, of as many heads; attention's output by head beside the same by token; weights as ZeRO stage 3 gathered them,
which PyTorch's own products hold a view of, so that to give them up frees nothing (DeepSpeed without
``mem_efficient_linear``)."""


class OtherFormat(Record):
    """What a framework does otherwise in one 16-bit format, fields as in ``Stack``; what is absent is as ever."""

    gradient_bytes: int | None = None
    reduce_bytes: int | None = None
    accumulate_traffic: int | None = None
    passed_gradient_bytes: int | None = None
    expert_efficiency: Annotated[float, Field(gt=0)] | None = None


DISPATCHERS = {"alltoall": "every-copy", "deepep": "once-per-domain", "hybridep": "once-per-domain"}
"""Megatron-Core's dispatchers, by what they send."""
Dispatch = Annotated[
    Literal["allgather", "every-copy", "once-per-domain"],
    BeforeValidator(lambda given: DISPATCHERS.get(given, given) if isinstance(given, str) else given),
]
