"""Hugging Face Accelerate: the YAML of ``accelerate launch`` with FSDP2 and its parallelism configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.names import SHARDED_PARAMETERS
from planner.jobs.accelerate.options import OPTIONS, PRECISIONS
from planner.jobs.job import Export, Job
from planner.jobs.launchers import shell
from planner.jobs.options import applicable
from planner.jobs.values import data
from planner.jobs.yaml_text import yaml_text

FILE: Final = "accelerate.yaml"
_STEPS: Final = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
_SAID: Final = data("accelerate/words")


def accelerate(job: Job, version: str) -> Export:
    """The configuration as of Accelerate 1.15; what it lacks is refused by the rules."""
    document, remarks = OPTIONS.document(_values(job)), _remarks(job)
    return Export(
        files={FILE: shell.commented(f"Accelerate {version}", remarks, yaml_text(document))},
        program=("train.py",),
        environment={_STEPS: str(job.strategy.num_microbatches), **_variables(document)},
        remarks=remarks,
    )


def _values(job: Job) -> dict[str, Any]:
    strategy, shard = job.strategy, shard_size(job)
    narrow = _narrow(job)
    values = _SAID["launch"] | {
        "distributed": "fsdp" if strategy.zero_stage else "ddp",
        "precision": "fp8" if narrow else job.precision,
        "nodes": job.node_count,
        "gpus": job.gpus,
        **narrow,
        "replicas": strategy.dp // shard,
        "shard": shard,
        "tp": strategy.tp,
        "cp": strategy.cp,
        "cp_kind": strategy.cp_kind if strategy.cp > 1 else None,
    }
    if not strategy.zero_stage:
        return values
    return values | {
        "fsdp_version": 2,
        "wrap_policy": "TRANSFORMER_BASED_WRAP",
        "reshard": strategy.zero_stage == SHARDED_PARAMETERS,
        "recompute": strategy.recompute == "full",
        "offload": strategy.offload == "optimizer+parameters",
        "efficient_loading": strategy.offload == "none" and narrow.get("backend") != "AO",
        "state_dict": "SHARDED_STATE_DICT",
    }


def _narrow(job: Job) -> dict[str, Any]:
    """What multiplies in 8 bits, if anything does; TorchAO gathers weights in 8 bits unless a key says otherwise."""
    if job.precision == "fp8":
        return {"backend": "TE", "fp8_format": "HYBRID", "amax_history": 1024, "amax_algorithm": "max"}
    if job.precision in PRECISIONS.values():
        return {}
    return {"backend": "AO", "fp8_param_gather": job.switches.fp8_param_gather and job.precision == "fp8-current"}


def _variables(document: Mapping[str, Any]) -> dict[str, str]:
    """What ``accelerate launch`` makes of the file: other launchers start the script with these, and read no file."""
    found = {"ACCELERATE_MIXED_PRECISION": str(document["mixed_precision"])}
    for table, (switch, prefix, left_out) in _SAID["variables"].items():
        found |= {switch: "true"} if switch and table in document else {}
        for key, value in document.get(table, {}).items():
            word = str(value).lower() if isinstance(value, bool) else str(value)
            found[f"{prefix}{key.removeprefix(left_out).upper()}"] = word
    return found


def shard_size(job: Job) -> int:
    """Data ranks that share one copy; the context ranks share it too."""
    strategy = job.strategy
    return strategy.sharding_degree // strategy.cp if strategy.zero_stage else 1


def _remarks(job: Job) -> tuple[str, ...]:
    strategy = job.strategy
    return applicable({
        f"give the script its batch: {strategy.micro_batch_size} sequences of {job.seq_length} tokens a rank, "
        f"accumulated {strategy.num_microbatches} times (Accelerator reads {_STEPS})": True,
        f"tensor ranks split as the model's own plan says (from_pretrained(tp_plan=...)); the plan splits norms over "
        f"them: {'yes' if strategy.sequence_parallel else 'no'}": strategy.tp > 1,
        "recompute every layer: model.gradient_checkpointing_enable()": (
            strategy.recompute == "full" and not strategy.zero_stage
        ),
        "give the frozen weights of 4 bits BitsAndBytesConfig(bnb_4bit_quant_storage=torch.bfloat16), without which "
        "they are not sharded": (
            strategy.zero_stage == SHARDED_PARAMETERS and (job.switches.base_precision or "").startswith(("nf4", "fp4"))
        ),
        "scale by rows: Accelerator(kwargs_handlers=[AORecipeKwargs(config=Float8LinearConfig.from_recipe_name("
        '"rowwise"))])': job.precision == "fp8-rowwise",
        "every machine needs its own --machine_rank and the first one's --main_process_ip": job.node_count > 1,
    })  # fmt: skip
