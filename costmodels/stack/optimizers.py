"""What an optimizer keeps per parameter, what its step moves, and what it multiplies.

A stack says what Adam keeps and moves (``optimizer_bytes``, ``optimizer_traffic``: master weights and two fp32
moments); here stands how other optimizers differ from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodels.names import WORD
from costmodels.stack.stack import Stack

ADAM_MOMENTS = 8.0
"""Bytes per parameter of Adam's two moments in fp32."""
BLOCK_SCALES = 2.0 * 4.0 / 256.0
"""Two fp32 scales per block of 256 values [Dettmers21]."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Per parameter: bytes kept beside the master weight, bytes moved beyond reading and writing these."""

    moments: float
    edge_moments: float
    """The same of embedding and head, which are not orthogonalised."""
    extra_traffic: float = 0.0


OPTIMIZERS: dict[str, Optimizer] = {
    "adam": Optimizer(ADAM_MOMENTS, ADAM_MOMENTS),
    "adam-bf16": Optimizer(4.0, 4.0),
    "adam-8bit": Optimizer(2.0 + BLOCK_SCALES, 2.0 + BLOCK_SCALES),
    # Two passes: the update is written, read for its norm beside the weight's, and read again to be applied [You20].
    "lamb": Optimizer(ADAM_MOMENTS, ADAM_MOMENTS, extra_traffic=20.0),
    "sgd": Optimizer(4.0, 4.0),
    # Factors of rows and columns are too small to count; the gradient is read for them and to be clipped [Shazeer18].
    "adafactor": Optimizer(0.0, 0.0, extra_traffic=8.0),
    # The momentum is written for the orthogonalisation in 16 bits, and its result read [Moonlight25].
    "muon": Optimizer(4.0, ADAM_MOMENTS, extra_traffic=2.0 * WORD),
}

ONE_PASS = 38
"""Bytes per parameter that a step in one kernel moves at most; PyTorch's multi-tensor AdamW moves 92 of fp32 states."""


def root_bytes(stack: Stack) -> float:
    """Bytes per parameter of the second moments' roots, which a step that is no single kernel writes out beside them.

    ``_foreach_sqrt`` in torch/optim/adamw.py, of all parameters of a rank at once.
    """
    return optimizer_of(stack).moments / 2.0 if stack.states.optimizer_traffic > ONE_PASS else 0.0


def optimizer_of(stack: Stack) -> Optimizer:
    """What the stack trains with."""
    return OPTIMIZERS[stack.switches.optimizer]


def kept_bytes(stack: Stack, *, fp32: bool = False) -> float:
    """Bytes per parameter of master weights and moments; weights kept in fp32 are their own master."""
    narrow = 2.0 if stack.switches.main_params == "fp16" else 0.0
    masters = 0.0 if fp32 else stack.states.optimizer_bytes - ADAM_MOMENTS - narrow
    return masters + optimizer_of(stack).moments


def step_traffic_bytes(stack: Stack) -> float:
    """Bytes per parameter that clip, step and cast move: what is kept is read and written."""
    chosen = optimizer_of(stack)
    kept = chosen.moments - ADAM_MOMENTS - (2.0 if stack.switches.main_params == "fp16" else 0.0)
    return stack.states.optimizer_traffic + 2.0 * kept + chosen.extra_traffic
