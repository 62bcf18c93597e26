"""The YAML of ``accelerate launch`` as a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.names import SHARDED_GRADIENTS, SHARDED_PARAMETERS
from planner.errors import BadRequest
from planner.jobs.accelerate.options import BACKENDS, OPTIONS
from planner.jobs.imported import ImportedJob
from planner.jobs.options import Document, present
from planner.jobs.reader import Context, DocumentReader, JobFile

_HARMLESS: Final = (
    r"compute_environment|debug|main_.*|machine_rank|rdzv_.*|num_machines|same_network|tpu_.*|use_cpu|downcast_bf16"
)
_OF_FSDP: Final = (
    r"fsdp_(version|auto_wrap_policy|backward_prefetch.*|cpu_ram_efficient_loading|forward_prefetch|state_dict_type|"
    r"sync_module_states|use_orig_params|transformer_layer_cls_to_wrap|min_num_params)"
)
"""Keys that change no price."""


_KEYS: Final = frozenset({"distributed_type", "mixed_precision"})


def accelerate_job(document: Mapping[str, Any]) -> ImportedJob:
    """The job of a configuration of ``accelerate launch``; model, batch and sequence are the script's.

    Raises:
        BadRequest: it has no key of Accelerate, or a value that is not priced.
    """
    if not _KEYS & set(document):
        raise BadRequest("no key of Accelerate in it, such as distributed_type")
    at = Document(document, OPTIONS)
    precision, sharded, cp = at("precision"), at("sharded"), at("cp")
    narrow = precision == "fp8"
    fields = present(
        gpus=at("gpus"),
        precision=BACKENDS[at("backend")] if narrow else precision,
        fp8_param_gather=(at("fp8_param_gather") or None) if narrow else None,
    )
    pins = present(
        tp=at("tp"),
        cp=cp,
        pp=1,
        ep=1,
        cp_kind=at("cp_kind") if cp > 1 else None,
        **(_sharding(at, cp) if sharded else {"zero_stage": 0}),
        dp=at("replicas") * at("shard") if at.table("parallelism_config") else None,
    )
    remark = "batch, sequence and accumulation are the script's: --global-batch-size, --seq-length, --micro-batch-size"
    unread = (*at.unread("", _HARMLESS), *at.unread("fsdp_config", _OF_FSDP), *at.unread("parallelism_config", ""))
    return ImportedJob(fields, pins, remarks=(remark, *unread))


def _sharding(at: Document, cp: int) -> dict[str, Any]:
    """How FSDP shards, recomputes and offloads; context ranks share states too, and without sizes all ranks do."""
    stage = at("zero_stage")
    if stage is None:
        stage = SHARDED_PARAMETERS if at.raw("reshard") is None or at("reshard") else SHARDED_GRADIENTS
    degree = at("shard") * cp if at.table("parallelism_config") else None
    return {
        "zero_stage": 0 if degree == 1 else stage,
        "sharding_degree": degree if stage and degree != 1 else None,
        "recompute": "full" if at("recompute") else "none",
        "offload": "optimizer+parameters" if at("offload") else "none",
    }


def _recognises(file: JobFile) -> bool:
    return "distributed_type" in (file.document or ())


def _read(file: JobFile, _: Context) -> ImportedJob:
    return accelerate_job(file.document or {})


READERS: Final = (DocumentReader("accelerate", "a configuration of Accelerate", "accelerate", _recognises, _read),)
