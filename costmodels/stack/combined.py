"""Switches that set several fields of a stack at once: what each of their values comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from costmodels.stack.optimizers import ONE_PASS
from costmodels.stack.stack import Stack
from costmodels.stack.switches import Switches

KERNEL_AN_OPERATION = 92
"""Bytes per parameter that PyTorch's multi-tensor AdamW moves, a kernel an operation: decay 8, first moment 12, second
moment 8 and 12, root 8, its correction 8, epsilon 8, step 16, and 12 for the clipped norm."""
COMPILED_KERNELS, EAGER_KERNELS = 18, 36
"""Kernels that the forward pass of a layer of torchtitan launches, compiled and not."""
EXCHANGE_UNITS = 32 / 148
"""Share of a Blackwell's units that dispatch and combine take from overlapped computation
(``moe_hybridep_num_sms`` of Megatron-Bridge's performance recipes)."""
INTERLEAVED_LAUNCHES = 1.45
"""Launches of a layer that runs alongside another micro-batch's over those of one that does not [Together26]."""


@dataclass(frozen=True, slots=True)
class Combined:
    """A switch that several fields stand for: what it does, whose word it is, and the fields of each value."""

    sentence: str
    words: tuple[str, ...]
    read: Callable[[Stack], Any]
    """The value that a stack has."""
    fields: Mapping[Any, Mapping[str, Any]]
    """Paths of a stack and their values, by the switch's value."""


COMBINED: Final[Mapping[str, Combined]] = {
    "main_grads": Combined(
        "Format of gradients; they are added up, kept and reduced in it",
        ("Megatron --accumulate-allreduce-grads-in-fp32, --main-grads-dtype",),
        lambda stack: "bf16" if stack.gradients.gradient_bytes == 2 else "fp32",
        {
            "fp32": {"gradients.gradient_bytes": 4, "gradients.reduce_bytes": 4},
            # nothing is added up in addition
            "bf16": {
                "gradients.gradient_bytes": 2,
                "gradients.reduce_bytes": 2,
                "gradients.micro_batch_gradient_bytes": 0,
            },
        },
    ),
    "fused_optimizer": Combined(
        "The optimizer steps in one kernel; False: in one for each operation",
        ("PyTorch AdamW(fused=True)", "torchtitan --optimizer.implementation fused"),
        lambda stack: stack.states.optimizer_traffic <= ONE_PASS,
        {
            True: {"states.optimizer_traffic": ONE_PASS},
            False: {"states.optimizer_traffic": KERNEL_AN_OPERATION},
        },
    ),
    "compile": Combined(
        "Layers and loss are compiled; False: they run operation by operation",
        ("torchtitan --compile.enable",),
        lambda stack: stack.switches.fused_elementwise,
        {
            True: {
                "switches.fused_elementwise": True,
                "kernels.saved_tensors": (),
                "host.kernels_per_layer": COMPILED_KERNELS,
                "logits.cross_entropy_bytes": 4,
                # compiled: read for the largest, the sum and the gradient, which is written
                "logits.cross_entropy_traffic": 8,
                "logits.shared_loss_bytes": 0,
                "allocator.logits_freed_early": False,
            },
            False: {
                "switches.fused_elementwise": False,
                "kernels.saved_tensors": ("gate", "norm", "key-values"),
                "host.kernels_per_layer": EAGER_KERNELS,
                # a copy in fp32, the softmax's logarithm and its gradient; with loss_parallel two more of them at once:
                # zeros for the gradient, and the exponential (torch/distributed/tensor/parallel/loss.py)
                "logits.cross_entropy_bytes": 12,
                "logits.cross_entropy_traffic": 66,
                "logits.shared_loss_bytes": 4,
                "allocator.logits_freed_early": True,
            },
        },
    ),
    "tp_comm_overlap": Combined(
        "Tensor exchanges hide behind products; through user buffers",
        ("Megatron --tp-comm-overlap",),
        lambda stack: stack.overlap.tp_forward < 1.0,
        {
            True: {"overlap.tp_forward": 0.4, "overlap.tp_backward": 0.3, "exchange.fp8_tensor_gather": False},
            False: {"overlap.tp_forward": 1.0, "overlap.tp_backward": 0.5, "exchange.fp8_tensor_gather": True},
        },
    ),
    "overlap_moe_expert_parallel_comm": Combined(
        "Dispatch hides behind products; those of another micro-batch",
        ("Megatron --overlap-moe-expert-parallel-comm",),
        lambda stack: 0.0 < stack.overlap.ep < 1.0,
        {
            True: {"overlap.ep": EXCHANGE_UNITS, "host.interleaved_launches": INTERLEAVED_LAUNCHES},
            False: {"overlap.ep": 1.0, "host.interleaved_launches": 1.0},
        },
    ),
}
"""By name, as in paths of changes."""

SWITCHES: Final = (*Switches.model_fields, *COMBINED)
"""Names of switches, each of which is a path by itself too."""
