"""DeepSpeed: its JSON, and where there is a pipeline the few lines of Python that cut it."""

from __future__ import annotations

import json
from typing import Any, Final

from planner.jobs.job import Export, Job, refuse
from planner.jobs.launchers import shell

FILE: Final = "ds_config.json"
STUB: Final = "ds_pipeline.py"
_PARAMETERS = 3


def deepspeed(job: Job, version: str) -> Export:
    """The configuration as of DeepSpeed 0.19: batch, ZeRO, precision, offloading, Ulysses, AutoTP.

    Raises:
        Inexpressible: DeepSpeed lacks a part of the plan.
    """
    refuse("deepspeed cannot start this plan:", _lacks(job))
    strategy = job.strategy
    document: dict[str, Any] = {
        **({"train_batch_size": strategy.global_batch_size} if strategy.tp == 1 else {}),
        "train_micro_batch_size_per_gpu": strategy.micro_batch_size,
        "gradient_accumulation_steps": strategy.num_microbatches,
        **({"bf16": {"enabled": True}} if job.precision == "bf16" else {}),
        **({"fp16": {"enabled": True}} if job.precision == "fp16" else {}),
        "zero_optimization": _zero(job),
        **({"tensor_parallel": {"autotp_size": strategy.tp}} if strategy.tp > 1 else {}),
        **({"data_parallel_size": strategy.dp, "sequence_parallel_size": strategy.cp} if strategy.cp > 1 else {}),
    }
    remarks = _remarks(job)
    files = {FILE: json.dumps(document, indent=2) + "\n"}
    if strategy.pp > 1:
        files[STUB] = _stub(job, version)
    program = ("train.py", "--deepspeed", "--deepspeed_config", FILE)
    return Export(files=files, program=program, remarks=remarks)


def _zero(job: Job) -> dict[str, Any]:
    strategy = job.strategy
    block: dict[str, Any] = {"stage": strategy.zero_stage}
    if strategy.zero_stage:
        block |= {"overlap_comm": True, "contiguous_gradients": True, "reduce_scatter": True}
    if strategy.zero_stage == _PARAMETERS and _second_shard(job.stack):
        block["zero_hpz_partition_size"] = job.gpus_per_node
    if strategy.offload.startswith("optimizer"):
        share = job.priced.switches.offload_fraction if job.priced else float(job.asked("offload_fraction") or 1.0)
        block["offload_optimizer"] = {"device": "cpu", "pin_memory": True, **({"ratio": share} if share < 1 else {})}
    if strategy.offload == "optimizer+parameters":
        block["offload_param"] = {"device": "cpu", "pin_memory": True}
    return block


def _second_shard(name: str) -> bool:
    from costmodels.stack.stack import stack, stack_names

    return name in stack_names() and stack(name).switches.zero_hpz


def _lacks(job: Job) -> tuple[tuple[bool, str], ...]:
    """What no rule about degrees says."""
    held = ",".join(str(stage.layers) for stage in job.strategy.stages)
    cut = f"PipelineModule cuts {job.model.num_layers} layers by type or by parameters, not into {held}"
    return ((job.uneven, cut),)


def _remarks(job: Job) -> tuple[str, ...]:
    strategy = job.strategy
    said = {
        f"give the script its sequences, of {job.seq_length} tokens": True,
        "recompute every layer: model.gradient_checkpointing_enable(), or deepspeed.checkpointing": (
            strategy.recompute == "full"
        ),
        "recompute attention in the model: the JSON has no such switch": (strategy.recompute == "selective"),
        f"train_batch_size is left out: DeepSpeed counts AutoTP's {strategy.tp} ranks as replicas and would refuse "
        f"{strategy.global_batch_size}": strategy.tp > 1,
        f"split the experts in the model: deepspeed.moe.layer.MoE(ep_size={strategy.ep})": strategy.ep > 1,
        f"split sequences in the model: UlyssesSPAttentionHF over {strategy.cp} ranks": strategy.cp > 1,
        f"the JSON has no pipeline; {STUB} cuts the model into {strategy.pp} stages": strategy.pp > 1,
        f"choose the optimizer in the script: the plan has {job.optimizer}": job.optimizer != "adam",
    }
    return tuple(text for text, holds in said.items() if holds)


_STUB = '''
from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe.topology import PipeDataParallelTopology

PIPELINE_STAGES = {pp}
DATA_PARALLEL = {dp}
LAYERS_PER_STAGE = {layers}
CHECKPOINT_INTERVAL = {interval}


def pipeline(layers, *, block, loss_fn):
    """The model over its stages: LayerSpecs from embedding to head; `block` is the class of a decoder layer."""
    return PipelineModule(
        layers,
        topology=PipeDataParallelTopology(num_pp=PIPELINE_STAGES, num_dp=DATA_PARALLEL),
        loss_fn=loss_fn,
        partition_method=f"type:{{block.__name__}}",
        activation_checkpoint_interval=CHECKPOINT_INTERVAL,
    )
'''


def _stub(job: Job, version: str) -> str:
    strategy = job.strategy
    body = _STUB.format(
        pp=strategy.pp,
        dp=strategy.dp,
        layers=[stage.layers for stage in strategy.stages],
        interval=strategy.recompute_num_layers * (strategy.recompute == "full"),
    )
    return "\n".join(shell.header(f"DeepSpeed {version}")) + "\n" + body
