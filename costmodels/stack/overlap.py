"""What of each communication a training framework hides behind computation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hardware.kernels import Record

Exposed = Annotated[float, Field(ge=0, le=1)]
"""The part of a communication that still lengthens the iteration; 1 where nothing of it is hidden."""


class Overlap(Record):
    """The part of each communication that stays exposed, and what hiding the rest costs the computation beside it."""

    tp_forward: Exposed = 1.0
    """Tensor-parallel collectives of the forward pass."""
    tp_backward: Exposed = 1.0
    """Tensor-parallel collectives of the backward pass (most frameworks run one behind the weight gradient)."""
    ep: Exposed = 1.0
    """Dispatch and combine of experts; where they run beside another micro-batch, the share of the units they take."""
    cp: Exposed = 0.3
    """Context-parallel exchange beyond what attention itself can hide."""
    cp_collective: Exposed = 1.0
    """Context-parallel gathers and all-to-alls; nothing is left to compute before they end (Llama 3, section 3.3.2)."""
    pp: Exposed = 1.0
    """Sends and receives between pipeline stages; 1 where both stages stop for them."""
    pp_interleaved: Exposed = 1.0
    """Sends and receives with several chunks per stage, where a framework may post them asynchronously."""
    paired_passes: bool = False
    """Where a schedule runs a forward beside a backward pass (DualPipe), each hides the other's experts' traffic."""
    by_chunk: bool = False
    """With interleaved stages a chunk's gradients travel while the last micro-batches pass back through the chunks
    before it, and its parameters while the first ones pass through them, where both are overlapped [Jiang24, section
    3.2]."""
    compute_slowdown: float = Field(0.126, ge=0, le=1)
    """How much computation slows while a collective runs beside it [Galvatron]."""
    communication_units: int = Field(0, ge=0)
    """Compute units set aside for communication all the time; kernels run on the others."""
