"""The options of Megatron-LM's command line, as of Megatron-Core 0.17 to 0.19 [Megatron]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.model.model import Model
from planner.jobs.options import options_of
from planner.jobs.values import data

OPTIONS: Final = options_of("megatron")
"""Options by field, in the order in which they are written; those that are never written say what others say."""

PRECISIONS: Final[Mapping[str, Mapping[str, Any]]] = data("megatron/words")["precisions"]
"""Megatron-LM trains in fp32 unless an option says otherwise; the narrow formats come on top of bf16."""
MOMENTS: Final = {"bf16": "adam-bf16", "fp16": "adam-bf16", "fp8": "adam-8bit"}
"""Formats of Adam's moments, and the optimizer that has them; the first of an optimizer is the one that is written."""

UNFUSED: Final = {"stack.attention_backend": "unfused", "stack.kernels.blackwell_attention": "unfused"}
FLASH: Final = {"2": "flash-2,flash-1", "3": "flash-3,flash-2", "4": "flash-3,flash-2"}
"""Attention kernels by the major version of FlashAttention."""
TE_LOSS: Final = 12
"""Bytes a logit that Transformer Engine's cross-entropy moves, as of stack nemo."""
NATIVE_LOSS: Final = 28
"""Bytes a logit of the cross-entropy in compiled pieces, counted from their code, not measured (Megatron-Core's
fused_cross_entropy.py): calculate_logits_max 2 + 4, calculate_predicted_logits 4 + 4, calculate_cross_entropy_loss
4 + 4, calculate_gradients 4 + 2."""
STANDS_FOR: Final[Mapping[str, Mapping[str, Any]]] = data("megatron/words")["stands_for"]
"""Flags that stand for fields of the stack where they are there, by the flag's field."""
SWITCHED: Final[Mapping[str, str]] = data("megatron/words")["switched"]
"""Flags whose absence is off, and the switch of the stack for each."""

CARRIED: Final = (
    *("optimizer", "main_grads", "main_params", "fp8_param_gather", "expert_capacity", "dropout"),
    *("stack.overlap.tp_forward", "stack.tensor-parallel-overlap", "stack.overlap.ep"),
    *("stack.cuda_graphs", "stack.cuda_graph_scope", "stack.dispatcher", "stack.offload_fraction", "stack.loss"),
    *("stack.dropout", "stack.bucket_size", "stack.sharding.bucket_per_rank", "stack.logits.cross_entropy_traffic"),
    *(f"stack.{switch}" for switch in SWITCHED.values()),
    *(path for fields in (*STANDS_FOR.values(), UNFUSED) for path in fields),
    # Megatron-FSDP, which a strategy's own stage asks for
    *("stack.supports.zero_stages", "stack.sharding.state_copies"),
    *(f"model.{name}" for name in Model.model_fields),
)
"""Choices and paths of changes that its arguments have, or that their exporter remarks on."""
