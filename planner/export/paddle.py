"""PaddleFormers: the JSON of its training arguments, from which it makes fleet's ``hybrid_configs``."""

from __future__ import annotations

import json
from typing import Any, Final

from planner.export.job import Export, Job, refuse

FILE: Final = "paddle_args.json"
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
    strategy, layers = job.strategy, job.model.num_layers
    uneven = any(stage.layers * strategy.pp != layers for stage in strategy.stages)
    refuse("paddle cannot start this plan:", [(uneven, "its pipeline cuts equal stages by the name of a layer")])
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
    remarks = ("data, model and output are the run's own arguments, beside these",)
    text = json.dumps(document, indent=2) + "\n"
    return Export(files={FILE: text}, program=("run_pretrain.py", FILE), remarks=remarks)


def _recompute(job: Job) -> dict[str, Any]:
    if job.strategy.recompute != "full":
        return {}
    together = job.strategy.recompute_num_layers
    return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": together}
