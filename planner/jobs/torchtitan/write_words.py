"""A strategy as overrides of a torchtitan configuration, as of torchtitan 0.3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from costmodels.names import SHARDED_GRADIENTS, SHARDED_PARAMETERS
from planner.answer.plan import Strategy

SCHEDULES: Final[Mapping[str, str]] = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved-1f1b": "Interleaved1F1B",
    "breadth-first": "LoopedBFS",
    "interleaved-zb": "InterleavedZeroBubble",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}
ROTATIONS: Final[Mapping[str, str]] = {"all-gather": "allgather", "p2p": "alltoall"}
"""How keys and values reach other context ranks in 0.2; an all-to-all in which each sends to the next is a ring. From
0.3 on they are gathered."""


def torchtitan_arguments(strategy: Strategy, *, precision: str = "bf16") -> tuple[list[str], tuple[str, ...]]:
    """Overrides for ``torchtitan.train``, and remarks on what they cannot say.

    Args:
        strategy: degrees, switches and stages.
        precision: number format of the matrix products, one of ``costmodels.stack.stack.PRECISIONS``.
    """
    shard = shard_ranks(strategy)
    values = {
        "parallelism.data_parallel_replicate_degree": strategy.dp // shard,
        "parallelism.data_parallel_shard_degree": shard,
        "parallelism.tensor_parallel_degree": strategy.tp,
        "parallelism.context_parallel_degree": strategy.cp,
        "parallelism.pipeline_parallel_degree": strategy.pp,
        "parallelism.expert_parallel_degree": strategy.ep,
        **_resharding(strategy),
        **(_pipeline(strategy) if strategy.pp > 1 else {"training.local_batch_size": strategy.micro_batch_size}),
        "training.global_batch_size": strategy.global_batch_size,
    }
    words = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    if strategy.tp > 1:
        words.append(f"--parallelism.{'' if strategy.sequence_parallel else 'no-'}enable-sequence-parallel")
    if strategy.pp > 1 or strategy.ep > 1:
        words.append("--training.disable-cuda-graphs")
    return words, _remarks(strategy, precision)


def shard_ranks(strategy: Strategy) -> int:
    """Data-parallel ranks that share one copy; torchtitan always shards over the context ranks as well."""
    ranks = max(strategy.sharding_degree // strategy.cp, 1) if strategy.zero_stage else 1
    return ranks if strategy.dp % ranks == 0 else strategy.dp


def _resharding(strategy: Strategy) -> dict[str, str]:
    if not strategy.zero_stage:
        return {}
    kept = "never" if strategy.zero_stage < SHARDED_PARAMETERS else "always"
    return {"parallelism.fsdp_reshard_after_forward": kept}


def _pipeline(strategy: Strategy) -> dict[str, str | int]:
    """Micro-batches of the pipeline are cut out of the local batch."""
    values: dict[str, str | int] = {
        "parallelism.pipeline_parallel_microbatch_size": strategy.micro_batch_size,
        "training.local_batch_size": strategy.micro_batch_size * strategy.num_microbatches,
    }
    if strategy.schedule in SCHEDULES:
        values["parallelism.pipeline_parallel_schedule"] = SCHEDULES[strategy.schedule]
    if _evenly(strategy):
        values |= {
            "parallelism.pipeline_parallel_layers_per_stage": strategy.stages[0].layers // strategy.vpp,
            "parallelism.pipeline_parallel_first_stage_less_layers": 0,
            "parallelism.pipeline_parallel_last_stage_less_layers": 0,
        }
    return values


def _evenly(strategy: Strategy) -> bool:
    layers = {stage.layers for stage in strategy.stages}
    return len(layers) == 1 and not max(layers) % strategy.vpp


def _remarks(strategy: Strategy, precision: str) -> tuple[str, ...]:
    layers = ",".join(str(stage.layers) for stage in strategy.stages)
    again = ",".join(str(stage.recompute_layers) for stage in strategy.stages)
    wanted = f"full recomputation of {again} layers per stage" if _partly(strategy) else strategy.recompute
    beside = {
        f"name the modules of every stage in parallelism.module_fqns_per_model_part; the plan has {layers} layers": (
            strategy.pp > 1 and not _evenly(strategy)
        ),
        f"set training.enable_cpu_offload: the plan offloads {strategy.offload}": strategy.offload != "none",
        f"set precision {precision} in the model's configuration": precision != "bf16",
    }
    return (
        f"set activation_checkpoint in the configuration: the plan has recomputation {wanted}",
        *unsaid(strategy),
        *(remark for remark, holds in beside.items() if holds),
    )


def _partly(strategy: Strategy) -> bool:
    return strategy.recompute in {"full", "partial"} and any(s.recompute_layers != s.layers for s in strategy.stages)


def unsaid(strategy: Strategy, *, version: str = "0.3") -> tuple[str, ...]:
    """What of a strategy no configuration of torchtitan says."""
    again = ",".join(str(stage.recompute_layers) for stage in strategy.stages)
    kinds = ROTATIONS if version == "0.2" else ("all-gather",)
    untrue = {
        f"torchtitan shards gradients with the optimizer; the plan has ZeRO-{strategy.zero_stage}": (
            0 < strategy.zero_stage < SHARDED_GRADIENTS
        ),
        f"torchtitan cannot shard over {strategy.sharding_degree} of {strategy.dp * strategy.cp} ranks": (
            strategy.zero_stage > 0 and shard_ranks(strategy) * strategy.cp != strategy.sharding_degree
        ),
        f"torchtitan shards over the {strategy.cp} context ranks too; the plan has ZeRO-0": (
            strategy.zero_stage == 0 and strategy.cp > 1
        ),
        f"the schedule {strategy.schedule} is not among those written here": (
            strategy.pp > 1 and strategy.schedule not in SCHEDULES
        ),
        f"torchtitan {version} has no context parallelism of kind {strategy.cp_kind}": (
            strategy.cp > 1 and strategy.cp_kind not in kinds
        ),
        f"torchtitan recomputes every layer or none; the plan recomputes {again} layers per stage": _partly(strategy),
        f"torchtitan recomputes operators, not modules {','.join(strategy.recompute_modules)}": bool(
            strategy.recompute_modules
        ),
        "torchtitan refuses DualPipeV with experts and activation checkpointing; set it to none": (
            strategy.schedule == "dualpipe-v" and strategy.ep > 1 and strategy.recompute != "none"
        ),
        f"torchtitan {version} always splits norms over tensor ranks": (
            version == "0.2" and strategy.tp > 1 and not strategy.sequence_parallel
        ),
        f"torchtitan {version} has no tensor parallelism of experts of {strategy.etp} ranks": strategy.etp
        not in ((1, strategy.tp) if version == "0.2" else (1,)),
        f"the expert ranks {strategy.ep} do not divide the {shard_ranks(strategy)} x {strategy.cp} x {strategy.tp} "
        f"ranks of one copy, as torchtitan's meshes need": (
            (shard_ranks(strategy) * strategy.cp * strategy.tp) % strategy.ep != 0
        ),
        f"torchtitan orders ranks tp-cp-ep-dp-pp, not {strategy.rank_order}": strategy.rank_order != "tp-cp-ep-dp-pp",
        f"torchtitan offloads parameters and states together, not {strategy.offload}": (
            strategy.offload not in {"none", "optimizer+parameters"}
        ),
        "torchtitan keeps embedding and head at the ends of the pipeline": strategy.vocabulary != "ends",
        "torchtitan's V-shaped schedules hold two chunks a stage, the last one the head": (
            strategy.schedule in {"zb-v", "dualpipe-v"} and strategy.vpp != 2
        ),
    }
    return tuple(lack for lack, holds in untrue.items() if holds)
