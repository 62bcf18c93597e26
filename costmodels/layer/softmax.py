"""What the softmax of unfused attention moves, and where the one kernel that Megatron has for it does not apply."""

from __future__ import annotations

import numpy as np

from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats, Strategies

MAPS = 4
"""Attention maps, and rows of them, that Megatron's fused softmax takes at a time."""
WRITTEN_OUT = (36.0, 40.0)
"""Bytes per pair of Megatron's softmax without it, both ways: a cast to fp32 (6), scale (8), mask (8), softmax
(8) and a cast back (6); of their gradients the softmax's reads two and writes one (12)."""
BIASED = 4.0
"""Bytes per pair by which ALiBi lengthens unfused attention: its slopes are written out as the output that the product
of queries and keys adds to (``torch.baddbmm``) and read there, or added to it by a kernel [Megatron-DeepSpeed]."""
WRITTEN_OUT_KERNELS = 4.0
"""Kernels that this launches more than the fused one."""


def written_out(rows: Strategies, scenario: Scenario) -> Bools:
    """Whether the softmax of unfused attention falls back to PyTorch's own operators, shape (N,).

    Megatron's kernel takes rows no longer than the stack's ``softmax_keys``, and four attention maps at a time:
    micro-batch times heads of a rank must be a multiple of four [FusedSoftmax].
    """
    longest, s = scenario.stack.kernels.longest_fused_softmax, scenario.seq_length
    if not longest:
        return np.full(len(rows), False)
    maps = rows.micro_batch_size * scenario.model.num_heads // rows.tp
    return (maps % MAPS != 0) | (s > longest) | (s % MAPS != 0)


def softmax_traffic(rows: Strategies, scenario: Scenario) -> tuple[Floats, Floats]:
    """Bytes that scale, mask, softmax and dropout move per query-key pair, forward and backward, shape (N,)."""
    stack, again = scenario.stack, written_out(rows, scenario)
    mask = 5.0 if stack.switches.dropout else 0.0
    biased = BIASED * (scenario.model.position == "alibi")
    forward, backward = (4.0, 6.0) if stack.switches.fused_softmax else (16.0, 14.0)
    return np.where(again, WRITTEN_OUT[0], forward) + mask + biased, np.where(again, WRITTEN_OUT[1], backward) + mask
