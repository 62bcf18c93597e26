"""Hugging Face Accelerate: the YAML of ``accelerate launch`` with FSDP2 and its parallelism configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.names import SHARDED_PARAMETERS
from planner.jobs.job import Export, Job
from planner.jobs.launchers import shell
from planner.jobs.options import applicable
from planner.jobs.yaml_text import yaml_text

FILE: Final = "accelerate.yaml"
_STEPS: Final = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
_FP8: Final[Mapping[str, dict[str, Any]]] = {
    "fp8": {"backend": "TE", "fp8_format": "HYBRID", "amax_history_len": 1024, "amax_compute_algo": "max"},
    "fp8-current": {"backend": "AO"},
    "fp8-rowwise": {"backend": "AO"},
}
"""What multiplies in 8 bits: Transformer Engine scales by earlier steps, TorchAO by the tensor at hand."""
_SWITCHES: Final = {"fsdp_config": "ACCELERATE_USE_FSDP", "parallelism_config": "ACCELERATE_USE_PARALLELISM_CONFIG"}
"""The variable that says that a table is there."""
_PRECISIONS: Final = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp32": "no",
    "fp8": "fp8",
    "fp8-current": "fp8",
    "fp8-rowwise": "fp8",
}


def accelerate(job: Job, version: str) -> Export:
    """The configuration as of Accelerate 1.15; what it lacks is refused by the rules."""
    strategy = job.strategy
    sharded = strategy.zero_stage > 0
    document: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if sharded else "MULTI_GPU",
        "mixed_precision": _PRECISIONS[job.precision],
        "num_machines": job.node_count,
        "num_processes": job.gpus,
        "machine_rank": 0,
        "main_process_port": 29500,
        "rdzv_backend": "static",
        "main_training_function": "main",
        "use_cpu": False,
        **({"fsdp_config": _fsdp(job)} if sharded else {}),
        **({"fp8_config": _fp8(job)} if job.precision in _FP8 else {}),
        "parallelism_config": _parallelism(job),
    }
    head = "\n".join([*shell.header(f"Accelerate {version}"), *shell.remarks(_remarks(job))])
    return Export(
        files={FILE: f"{head}\n{yaml_text(document)}"},
        program=("train.py",),
        environment={_STEPS: str(strategy.num_microbatches), **_variables(document)},
        remarks=_remarks(job),
    )


def _variables(document: Mapping[str, Any]) -> dict[str, str]:
    """What ``accelerate launch`` makes of the file: other launchers start the script with these, and read no file."""
    found = {"ACCELERATE_MIXED_PRECISION": str(document["mixed_precision"])}
    for table, switch in _SWITCHES.items():
        if table in document:
            found |= {switch: "true"} | {name.upper(): _word(value) for name, value in document[table].items()}
    fp8 = document.get("fp8_config", {})
    return found | {f"ACCELERATE_FP8_{name.removeprefix('fp8_').upper()}": _word(value) for name, value in fp8.items()}


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fp8(job: Job) -> dict[str, Any]:
    """TorchAO gathers weights in 8 bits unless it is told otherwise."""
    made = dict(_FP8[job.precision])
    if made["backend"] == "AO":
        made["enable_fsdp_float8_all_gather"] = _gathers_narrow(job)
    return made


def _gathers_narrow(job: Job) -> bool:
    return job.switches.fp8_param_gather and job.precision == "fp8-current"


def shard_size(job: Job) -> int:
    """Data ranks that share one copy; the context ranks share it too."""
    strategy = job.strategy
    return strategy.sharding_degree // strategy.cp if strategy.zero_stage else 1


def _backend(job: Job) -> str:
    return str(_FP8.get(job.precision, {}).get("backend", ""))


def _parallelism(job: Job) -> dict[str, Any]:
    strategy, shard = job.strategy, shard_size(job)
    sizes = {
        "dp_replicate_size": strategy.dp // shard,
        "dp_shard_size": shard,
        "tp_size": strategy.tp,
        "cp_size": strategy.cp,
    }
    rotation = {"cp_comm_strategy": "allgather" if strategy.cp_kind == "all-gather" else "alltoall"}
    return {
        f"parallelism_config_{name}": value for name, value in (sizes | (rotation if strategy.cp > 1 else {})).items()
    }


def _fsdp(job: Job) -> dict[str, Any]:
    strategy = job.strategy
    return {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": strategy.zero_stage == SHARDED_PARAMETERS,
        "fsdp_activation_checkpointing": strategy.recompute == "full",
        "fsdp_offload_params": strategy.offload == "optimizer+parameters",
        "fsdp_cpu_ram_efficient_loading": strategy.offload == "none" and _backend(job) != "AO",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }


def _remarks(job: Job) -> tuple[str, ...]:
    strategy = job.strategy
    remarks = {
        f"give the script its batch: {strategy.micro_batch_size} sequences of {job.seq_length} tokens a rank, "
        f"accumulated {strategy.num_microbatches} times (Accelerator reads {_STEPS})": True,
        f"tensor ranks split as the model's own plan says (from_pretrained(tp_plan=...)); the plan splits norms over "
        f"them: {'yes' if strategy.sequence_parallel else 'no'}": strategy.tp > 1,
        "recompute every layer: model.gradient_checkpointing_enable()": (
            strategy.recompute == "full" and not strategy.zero_stage
        ),
        "scale by rows: Accelerator(kwargs_handlers=[AORecipeKwargs(config=Float8LinearConfig.from_recipe_name("
        '"rowwise"))])': job.precision == "fp8-rowwise",
        "every machine needs its own --machine_rank and the first one's --main_process_ip": job.node_count > 1,
    }
    return applicable(remarks)
