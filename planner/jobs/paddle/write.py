"""PaddleFormers: the JSON of its training arguments, from which it makes fleet's ``hybrid_configs``; and these alone.

The second file is for programs of their own on ``paddle.distributed.fleet``::

    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = document["hybrid_configs"]
    strategy.pipeline_configs = document["pipeline_configs"]
"""

from __future__ import annotations

import json
from typing import Any, Final

from planner.jobs.job import Export, Job, refuse

FILE: Final = "paddle_args.json"
FLEET: Final = "hybrid_configs.json"
_ORDERS: Final = {
    "tp-cp-ep-dp-pp": "pp_first",
    "tp-cp-ep-sharding-pp-dp": "pp_first",
    "tp-cp-ep-pp-dp": "sharding_first",
}


def paddle(job: Job, _version: str) -> Export:
    """Every degree written out, as of PaddleFormers 1.2: it fills in the others by its own lights.

    Raises:
        Inexpressible: stages are uneven.
    """
    strategy = job.strategy
    refuse("paddle cannot start this plan:", [(job.uneven, "its pipeline cuts equal stages by the name of a layer")])
    document: dict[str, Any] = {
        "tensor_model_parallel_size": strategy.tp,
        "pipeline_model_parallel_size": strategy.pp,
        "context_parallel_size": strategy.cp,
        "sep_parallel_size": 1,
        "sharding": f"stage{strategy.zero_stage}" if strategy.zero_stage else "",
        "sharding_parallel_size": strategy.sharding_degree if strategy.zero_stage else 1,
        "expert_model_parallel_size": strategy.ep,
        "expert_tensor_model_parallel_size": 1,
        "use_expert_parallel": strategy.ep > 1,
        "sequence_parallel": strategy.sequence_parallel,
        "hybrid_parallel_topo_order": _ORDERS[strategy.rank_order],
        "per_device_train_batch_size": strategy.micro_batch_size,
        "gradient_accumulation_steps": strategy.num_microbatches,
        "bf16": job.precision == "bf16",
        "fp16": job.precision == "fp16",
        "amp_master_grad": True,
        **_recompute(job),
    }
    remarks = (
        f"data, model and output are the run's own arguments, beside these; sequences have {job.seq_length} tokens",
        *_remarks(job),
    )
    texts = {name: json.dumps(made, indent=2) + "\n" for name, made in ((FILE, document), (FLEET, fleet(job)))}
    return Export(files=texts, program=("run_pretrain.py", FILE), remarks=remarks)


def fleet(job: Job) -> dict[str, Any]:
    """What ``fleet.DistributedStrategy`` takes: the degrees, the order of the axes where it is not the usual one."""
    strategy = job.strategy
    shared = strategy.sharding_degree if strategy.zero_stage else 1
    degrees: dict[str, Any] = {
        "dp_degree": strategy.dp * strategy.cp // shared,
        "mp_degree": strategy.tp,
        "pp_degree": strategy.pp,
        "sharding_degree": shared,
        "sep_degree": 1,
        **({"cp_degree": strategy.cp} if strategy.cp > 1 else {}),
        **({"ep_degree": strategy.ep} if strategy.ep > 1 else {}),
    }
    if _ORDERS[strategy.rank_order] == "sharding_first":
        degrees["order"] = ["dp", "sharding", "pp", "sep", "mp"]
    pipeline = {"accumulate_steps": strategy.num_microbatches, "micro_batch_size": strategy.micro_batch_size}
    return {"hybrid_configs": degrees, "pipeline_configs": pipeline}


def _remarks(job: Job) -> tuple[str, ...]:
    level = {2: "os_g", 3: "p_g_os"}.get(job.strategy.zero_stage)
    return (f"with {FLEET} alone, ZeRO is group_sharded_parallel(level={level!r})",) if level else ()


def _recompute(job: Job) -> dict[str, Any]:
    if job.strategy.recompute != "full":
        return {}
    together = job.strategy.recompute_num_layers
    return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": together}
