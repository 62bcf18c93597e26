"""Fields of a question in the types that people write, as an editor offers them; what they mean `PlanRequest` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from costmodels.model.model import Model
from costmodels.stability import Stability
from costmodels.stack.stack import Stack
from hardware.records import Cluster


class RequestFields(TypedDict, total=False):
    """The fields of `PlanRequest` that may be left out."""

    cluster: str | Path | Mapping[str, Any] | Cluster
    stack: str | Path | Mapping[str, Any] | Stack
    as_of: str | None
    global_batch_size: int | None
    seq_length: int | str | None
    tokens: int | str | None
    precision: str
    objective: str
    framework: str | None
    pins: Mapping[str, Any]
    layers_per_stage: Sequence[int] | str | None
    recomputed_per_stage: Sequence[int] | str | None
    memory_margin: float | str | None
    expert_capacity: float | None
    expert_imbalance: float | None
    optimizer: str | None
    main_grads: str | None
    main_params: str | None
    fp8_param_gather: bool | None
    loss: str | None
    loss_block: int | None
    offload_fraction: float | str | None
    adapters: str | None
    base_precision: str | None
    frozen_layers: int | None
    frozen_embeddings: bool | None
    task: str | None
    reference_model: str | None
    document_length: int | None
    images_per_sample: int | None
    image_tokens: int | None
    train_tower: bool | None
    changes: Mapping[str, Any]
    stability: Stability | Mapping[str, Any] | Path | str | None
    reasons: bool
    ties: str
    top: int
    price: float | str | None
    time_limit: float | str | None


class RequestChanges(RequestFields, total=False):
    """The fields of `PlanRequest` but the number of devices."""

    model: str | Path | Mapping[str, Any] | Model
