"""DeepSpeed: its JSON, and where there is a pipeline the few lines of Python that cut it."""

from __future__ import annotations

import json
from typing import Any, Final

from costmodels.names import SHARDED_PARAMETERS
from planner.jobs.deepspeed.options import OPTIONS
from planner.jobs.job import Export, Job, refuse
from planner.jobs.launchers import shell
from planner.jobs.options import applicable
from planner.jobs.values import template

FILE: Final = "ds_config.json"
STUB: Final = "ds_pipeline.py"
USUAL_BUCKET: Final = 500_000_000
"""Values of reduce_bucket_size where no file says it."""

_UNTESTED: Final = frozenset({"sgd", "lamb"})
"""Optimizers that ZeRO takes where a key allows it (``deepspeed.runtime.zero.utils: ZERO_SUPPORTED_OPTIMIZERS``)."""


def deepspeed(job: Job, version: str) -> Export:
    """The configuration as of DeepSpeed 0.19: batch, ZeRO, precision, offloading, Ulysses, AutoTP."""
    strategy = job.strategy
    held = ",".join(str(stage.layers) for stage in strategy.stages)
    cut = f"PipelineModule cuts {job.model.num_layers} layers by type or by parameters, not into {held}"
    refuse("deepspeed cannot start this plan:", [(job.uneven, cut)])
    remarks = _remarks(job)
    files = {FILE: json.dumps(OPTIONS.document(_values(job)), indent=2) + "\n"}
    if strategy.pp > 1:
        files[STUB] = _stub(job, version)
    program = ("train.py", "--deepspeed", "--deepspeed_config", FILE)
    return Export(files=files, program=program, remarks=remarks)


def _values(job: Job) -> dict[str, Any]:
    """Values by the fields of its options; AutoTP's ranks count as replicas, so that no batch is written with them."""
    strategy, at = job.strategy, job.strategy.zero_stage
    sharded, whole, switches = True if at else None, at == SHARDED_PARAMETERS, job.switches
    hosted, all_hosted = strategy.offload.startswith("optimizer"), strategy.offload == "optimizer+parameters"
    bucket = int(switches.reduce_bucket_size / (4 if job.precision == "fp32" else 2))
    return {
        "global_batch_size": strategy.global_batch_size if strategy.tp == 1 else None,
        "micro_batch_size": strategy.micro_batch_size,
        "steps": strategy.num_microbatches,
        "bf16": True if job.precision == "bf16" else None,
        "fp16": True if job.precision == "fp16" else None,
        "zero_stage": at,
        "overlap_comm": sharded and (switches.overlap_zero3 if whole else switches.overlap_grad_reduce),
        **dict.fromkeys(("contiguous_gradients", "reduce_scatter"), sharded),
        "reduce_bucket": bucket if sharded and bucket not in {0, USUAL_BUCKET} else None,
        "second_shard": job.gpus_per_node if whole and switches.zero_hpz else None,
        **dict.fromkeys(("states_on_host", "states_pinned"), True if hosted else None),
        "offload_fraction": switches.offload_fraction if hosted and switches.offload_fraction < 1 else None,
        **dict.fromkeys(("parameters_on_host", "parameters_pinned"), True if all_hosted else None),
        "untested_optimizer": True if sharded and switches.optimizer in _UNTESTED else None,
        "own_optimizer_on_host": False if hosted and switches.optimizer != "adam" else None,
        "tp": strategy.tp if strategy.tp > 1 else None,
        "dp": strategy.dp if strategy.cp > 1 else None,
        "cp": strategy.cp if strategy.cp > 1 else None,
    }


def _remarks(job: Job) -> tuple[str, ...]:
    strategy = job.strategy
    return applicable({
        f"give the script sequences of {job.seq_length} tokens": True,
        "recompute every layer: model.gradient_checkpointing_enable(), or deepspeed.checkpointing": (
            strategy.recompute == "full"
        ),
        "recompute attention in the model: the JSON has no such switch": (strategy.recompute == "selective"),
        f"train_batch_size is left out: DeepSpeed counts AutoTP's {strategy.tp} ranks as replicas and would refuse "
        f"{strategy.global_batch_size}": strategy.tp > 1,
        f"split the experts in the model: deepspeed.moe.layer.MoE(ep_size={strategy.ep})": strategy.ep > 1,
        f"split sequences in the model: UlyssesSPAttentionHF over {strategy.cp} ranks": strategy.cp > 1,
        f"the JSON has no pipeline; {STUB} cuts the model into {strategy.pp} stages": strategy.pp > 1,
        f"choose the optimizer in the script: the plan has {job.switches.optimizer}": job.switches.optimizer != "adam",
        "make the optimizer deepspeed.ops.adam.DeepSpeedCPUAdam: with states on the host it takes no other Adam": (
            strategy.offload != "none" and job.switches.optimizer == "adam"
        ),
    })  # fmt: skip


def _stub(job: Job, version: str) -> str:
    strategy = job.strategy
    layers = [stage.layers for stage in strategy.stages]
    interval = strategy.recompute_num_layers * (strategy.recompute == "full")
    text = template("deepspeed/ds_pipeline.txt")
    body = text.format(pp=strategy.pp, dp=strategy.dp, layers=layers, interval=interval)
    return shell.commented(f"DeepSpeed {version}", (), body)
