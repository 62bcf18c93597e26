"""Plain PyTorch: a module with the device mesh, FSDP2 and the pipeline's schedule, for a training script to import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from costmodels.names import SHARDED_PARAMETERS
from planner.answer.plan import Strategy
from planner.jobs.job import Export, Job, chunk_layers
from planner.jobs.launchers import shell
from planner.jobs.torchtitan.options import FOLDED, SCHEDULES
from planner.jobs.torchtitan.write import shard_ranks
from planner.jobs.values import data

FILE: Final = "torch_plan.py"
_TEXTS: Final = data("pytorch/templates")
_TYPES: Final = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}


def _imports(strategy: Strategy) -> Iterator[str]:
    """What the module's functions use."""
    if strategy.zero_stage:
        yield "import torch"
    yield "from torch.distributed.device_mesh import init_device_mesh"
    if strategy.zero_stage:
        policies = sorted((_offload(strategy), "MixedPrecisionPolicy"))
        yield f"from torch.distributed.fsdp import {', '.join(policies)}, fully_shard"
    if strategy.pp > 1:
        yield "from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class"


def _offload(strategy: Strategy) -> str:
    return "OffloadPolicy" if strategy.offload == "none" else "CPUOffloadPolicy"


def _sharding(job: Job) -> str:
    """The function that shards a stage, as the plan's ZeRO stage has it."""
    strategy = job.strategy
    if strategy.zero_stage == 0:
        return str(_TEXTS["whole"].strip())
    said = {"dtype": _TYPES[job.precision], "reshard": strategy.zero_stage == SHARDED_PARAMETERS}
    return str(_TEXTS["sharded"].strip().format(offload=_offload(strategy), **said))


def _remarks(job: Job) -> Iterator[str]:
    strategy = job.strategy
    yield f"train.py is yours: it imports {FILE} for mesh, shard and schedule"
    yield f"give it sequences of {job.seq_length} tokens"
    if strategy.tp > 1:
        norms = "yes" if strategy.sequence_parallel else "no"
        yield f"tensor ranks split as the model's own plan says; the plan splits norms over them: {norms}"
    if not strategy.zero_stage:
        yield f"train in {job.precision} as the script does: what is not sharded has no MixedPrecisionPolicy"


def pytorch(job: Job, version: str) -> Export:
    """The module as of PyTorch 2.13; what it lacks is refused by the rules."""
    strategy, shared = job.strategy, shard_ranks(job.strategy)
    ranks = {"replicate": strategy.dp // shared, "shard": shared}
    mesh = {"pp": strategy.pp, **ranks, "cp": strategy.cp, "tp": strategy.tp}
    body = _TEXTS["module"].format(
        imports="\n".join(_imports(strategy)),
        mesh=mesh,
        micro=strategy.micro_batch_size,
        batches=strategy.num_microbatches,
        schedule=SCHEDULES.get(strategy.schedule, ""),
        chunks=chunk_layers(strategy, folded=strategy.schedule in FOLDED),
        recompute=strategy.recompute,
        rotation={"all-gather": "allgather", "p2p": "alltoall"}[strategy.cp_kind] if strategy.cp > 1 else "",
        shard=_sharding(job),
        scheduled=(_TEXTS["pipelined"] if strategy.pp > 1 else _TEXTS["alone"]).strip(),
    )
    remarks = tuple(_remarks(job))
    text = shell.commented(f"PyTorch {version}", remarks, body)
    return Export(files={FILE: text}, program=("train.py",), remarks=remarks)
