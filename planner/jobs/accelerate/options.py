"""The keys of the YAML of ``accelerate launch``, as of Accelerate 1.15."""

from __future__ import annotations

from typing import Final

from planner.jobs.options import options_of

PRECISIONS: Final = {"bf16": "bf16", "fp16": "fp16", "no": "fp32", "fp8": "fp8"}
BACKENDS: Final = {"TE": "fp8", "AO": "fp8-current"}
"""What multiplies in 8 bits: Transformer Engine scales by earlier steps, TorchAO by the tensor at hand."""

OPTIONS: Final = options_of("accelerate")
"""Keys by field, in the order in which they are written; the sharding strategy is FSDP1's, and only read."""
