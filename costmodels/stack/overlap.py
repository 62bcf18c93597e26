"""What of each communication a training framework hides behind computation."""

from __future__ import annotations

from pydantic import Field

from hardware.kernels import Record


class Overlap(Record):
    """The part of each communication that still lengthens the iteration; 1 = nothing is hidden."""

    tp_forward: float = Field(1.0, ge=0, le=1)
    """Tensor-parallel collectives of the forward pass."""
    tp_backward: float = Field(1.0, ge=0, le=1)
    """Tensor-parallel collectives of the backward pass (most stacks run one behind the weight gradient)."""
    rings: bool = False
    """Transformer Engine's user buffers exchange what products in 8 bits take and return in rings, which is counted
    piece by piece (``costmodels.layer.user_buffers``); the two shares are of all other traffic then."""
    ep: float = Field(1.0, ge=0, le=1)
    """Dispatch and combine of experts; beside another micro-batch, the share of the units that they take."""
    cp: float = Field(0.3, ge=0, le=1)
    """Context-parallel exchange beyond what attention itself can hide."""
    cp_collective: float = Field(1.0, ge=0, le=1)
    """Context-parallel gathers and all-to-alls; nothing is left to compute before they end (Llama 3, section 3.3.2)."""
    pp: float = Field(1.0, ge=0, le=1)
    """Sends and receives between pipeline stages; 1 where both stages stop for them."""
    pp_interleaved: float = Field(1.0, ge=0, le=1)
    """The same with several chunks per stage, where a framework may post them asynchronously."""
    pairs: bool = False
    """Where a schedule runs a forward beside a backward pass (DualPipe), each hides the other's experts' traffic."""
    gradients: bool = False
    """Gradient reduction runs behind the backward pass of the last micro-batch."""
    parameters: bool = False
    """Parameter gathering runs behind the forward pass of the first micro-batch."""
    third_stage: bool = False
    """Both run behind the passes under ZeRO stage 3, whatever is true of lower stages."""
    chunks: bool = False
    """Where both are so and stages are interleaved, a chunk's gradients travel while the last micro-batches pass back
    through the chunks before it, and its parameters while the first ones pass through them [Jiang24, section 3.2]."""
