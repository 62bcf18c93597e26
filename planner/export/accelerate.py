"""Hugging Face Accelerate: the YAML of ``accelerate launch`` with FSDP2 and its parallelism configuration."""

from __future__ import annotations

from typing import Any, Final

from planner.export import shell
from planner.export.job import Export, Job, refuse
from planner.export.yaml_text import yaml_text

FILE: Final = "accelerate.yaml"
_PARAMETERS = 3
_STEPS: Final = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
_PRECISIONS: Final = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp32": "no",
    "fp8": "fp8",
    "fp8-current": "fp8",
    "fp8-rowwise": "fp8",
}


def accelerate(job: Job, version: str) -> Export:
    """The configuration as of Accelerate 1.15.

    Raises:
        Inexpressible: Accelerate lacks a part of the plan.
    """
    refuse("Accelerate cannot say this plan:", _lacks(job))
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
        "parallelism_config": _parallelism(job),
    }
    head = "\n".join([*shell.header(f"Accelerate {version}"), *shell.remarks(_remarks(job))])
    environment = {_STEPS: str(strategy.num_microbatches)}
    return Export(
        files={FILE: f"{head}\n{yaml_text(document)}"},
        program=("train.py",),
        environment=environment,
        remarks=_remarks(job),
    )


def shard_size(job: Job) -> int:
    """Data ranks that share one copy; the context ranks share it too."""
    strategy = job.strategy
    return strategy.sharding_degree // strategy.cp if strategy.zero_stage else 1


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
        "fsdp_reshard_after_forward": strategy.zero_stage == _PARAMETERS,
        "fsdp_activation_checkpointing": strategy.recompute == "full",
        "fsdp_offload_params": strategy.offload == "optimizer+parameters",
        "fsdp_cpu_ram_efficient_loading": strategy.offload == "none",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }


def _lacks(job: Job) -> tuple[tuple[bool, str], ...]:
    strategy = job.strategy
    partly = strategy.recompute == "full" and any(s.recompute_layers != s.layers for s in strategy.stages)
    ranks, degree = strategy.dp * strategy.cp, strategy.sharding_degree
    return (
        (strategy.pp > 1, f"it has no pipeline; the plan has {strategy.pp} stages"),
        (strategy.ep * strategy.etp > 1, f"it has no expert parallelism; the plan has {strategy.ep} x {strategy.etp}"),
        (strategy.zero_stage == 1, "FSDP2 shards gradients with the optimizer; --zero 2 or 3 works"),
        (
            strategy.zero_stage > 0 and (degree % strategy.cp != 0 or strategy.dp % max(degree // strategy.cp, 1) != 0),
            f"it shards over the context ranks first; {degree} of {ranks} ranks do not hold {strategy.cp} of them",
        ),
        (
            strategy.zero_stage == 0 and strategy.cp > 1,
            "FSDP2 shards over the context ranks; the plan shards nothing",
        ),
        (
            strategy.zero_stage == 0 and strategy.tp > 1 and strategy.dp > 1,
            "it refuses replicas beside tensor or context ranks unless states are sharded; --zero 3 works",
        ),
        (
            strategy.zero_stage > 0 and strategy.dp > shard_size(job) == 1 and strategy.tp * strategy.cp > 1,
            "it refuses replicas beside tensor or context ranks unless data ranks share a copy",
        ),
        (
            strategy.cp > 1 and strategy.cp_kind not in {"all-gather", "p2p"},
            f"it has no context ranks of kind {strategy.cp_kind}",
        ),
        (partly, "it recomputes every layer or none"),
        (strategy.recompute == "selective", "it recomputes whole layers; --recompute none or full works"),
        (
            strategy.offload not in {"none", "optimizer+parameters"},
            f"it offloads parameters and states together, not {strategy.offload}",
        ),
        (float(job.asked("offload_fraction") or 1.0) < 1, "it offloads all of the states"),
        (job.precision not in _PRECISIONS, f"it has no precision {job.precision}; bf16 works"),
    )  # fmt: skip


def _remarks(job: Job) -> tuple[str, ...]:
    strategy = job.strategy
    said = {
        f"give the script its batch: {strategy.micro_batch_size} sequences of {job.seq_length} tokens a rank, "
        f"accumulated {strategy.num_microbatches} times (Accelerator reads {_STEPS})": True,
        "tensor ranks split as the model's own plan says (from_pretrained(tp_plan=...))": strategy.tp > 1,
        "every machine needs its own --machine_rank and the first one's --main_process_ip": job.node_count > 1,
    }
    return tuple(text for text, holds in said.items() if holds)
