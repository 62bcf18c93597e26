"""The keys of DeepSpeed's JSON, as of DeepSpeed 0.19."""

from __future__ import annotations

from typing import Final

from planner.jobs.options import options_of

OPTIONS: Final = options_of("deepspeed")
"""Keys by field, in the order in which they are written; from the optimizer on they are the script's, and only read."""

ONE_BIT: Final = frozenset({"onebitadam", "onebitlamb", "zerooneadam"})
"""Optimizers whose gradients travel in one bit."""
CARRIED: Final = (
    *("optimizer", "stack.offload_fraction", "stack.reduce_bucket_size", "stack.overlap_grad_reduce"),
    *("stack.overlap_zero3", "stack.zero_hpz"),
)
"""Choices and paths of changes that its files have, or that their exporter remarks on."""
