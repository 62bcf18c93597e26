"""What a request may change about its stack: optimizer, formats of states, the loss."""

from __future__ import annotations

from typing import Any, Literal

from costmodels.stack.adapters import Adapters
from costmodels.stack.combined import COMBINED
from costmodels.stack.stack import Stack

GRADIENT_WORD = {"fp32": 4, "bf16": 2}


def chosen(
    stack: Stack,
    *,
    optimizer: str | None = None,
    main_grads: Literal["fp32", "bf16"] | None = None,
    main_params: Literal["fp32", "fp16"] | None = None,
    fp8_param_gather: bool | None = None,
    loss: Literal["plain", "fused"] | None = None,
    loss_block: int | None = None,
    offload_fraction: float | None = None,
    adapters: str | None = None,
    base_precision: str | None = None,
    task: str | None = None,
    reference_model: str | None = None,
    document_length: int | None = None,
    frozen_layers: int | None = None,
    frozen_embeddings: bool | None = None,
    images_per_sample: int | None = None,
    image_tokens: int | None = None,
    train_tower: bool | None = None,
) -> Stack:
    """The stack with what is said; what is None stays as the stack has it.

    ``main_grads`` is the format that gradients are added up, kept and reduced in, ``main_params`` that of the master
    weights (Megatron-Core's precision-aware optimizer); ``loss_block`` and ``document_length`` in tokens; ``adapters``
    as ``Adapters.read`` takes them.
    """
    changes: dict[str, Any] = {
        "switches.optimizer": optimizer,
        "switches.main_params": main_params,
        "switches.fp8_param_gather": fp8_param_gather,
        "switches.loss": loss,
        "switches.loss_block": loss_block,
        "switches.offload_fraction": offload_fraction,
        "switches.adapters": None if adapters is None else Adapters.read(adapters),
        "switches.base_precision": base_precision,
        "switches.task": task,
        "switches.reference_model": reference_model,
        "switches.document_length": document_length,
        "switches.frozen_layers": frozen_layers,
        "switches.frozen_embeddings": frozen_embeddings,
        "switches.images_per_sample": images_per_sample,
        "switches.image_tokens": image_tokens,
        "switches.train_tower": train_tower,
    }
    if main_grads is not None:
        changes |= COMBINED["main_grads"].fields[main_grads]
    return stack.changed({path: value for path, value in changes.items() if value is not None})
