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
from planner.jobs.options import applicable, options_of, present

OPTIONS: Final = options_of("paddle")
"""Training arguments of PaddleFormers 1.2 by field, in the order in which they are written."""
FILE: Final = "paddle_args.json"
FLEET: Final = "hybrid_configs.json"
_SHARDS_OUTSIDE: Final = "tp-cp-ep-pp-dp"
"""The rank order in which ranks that share states lie outside the pipeline."""


def paddle(job: Job, _version: str) -> Export:
    """Every degree written out, as of PaddleFormers 1.2: it fills in the others by its own lights."""
    refuse("paddle cannot start this plan:", [(job.uneven, "its pipeline cuts equal stages by the name of a layer")])
    level = {2: "os_g", 3: "p_g_os"}.get(job.strategy.zero_stage)
    remarks = {
        f"add your own data, model and output options; sequences have {job.seq_length} tokens": (True),
        f"with {FLEET} alone, ZeRO is group_sharded_parallel(level={level!r})": level is not None,
    }
    documents = {FILE: OPTIONS.document(_values(job)), FLEET: fleet(job)}
    texts = {name: json.dumps(document, indent=2) + "\n" for name, document in documents.items()}
    return Export(files=texts, program=("run_pretrain.py", FILE), remarks=applicable(remarks))


def _values(job: Job) -> dict[str, Any]:
    strategy = job.strategy
    full = strategy.recompute == "full"
    return {
        **{axis: getattr(strategy, axis) for axis in ("tp", "pp", "cp", "zero_stage", "ep", "micro_batch_size")},
        **dict.fromkeys(("sep_parallel_size", "etp"), 1),
        "sharding_degree": strategy.sharding_degree if strategy.zero_stage else 1,
        "use_expert_parallel": strategy.ep > 1,
        "sequence_parallel": strategy.sequence_parallel,
        "shards_inside": strategy.rank_order != _SHARDS_OUTSIDE,
        "steps": strategy.num_microbatches,
        "bf16": job.precision == "bf16",
        "fp16": job.precision == "fp16",
        "amp_master_grad": True,
        "recompute": "full" if full else None,
        "recompute_method": "uniform" if full else None,
        "recompute_num_layers": strategy.recompute_num_layers if full else None,
    }


def fleet(job: Job) -> dict[str, Any]:
    """What ``fleet.DistributedStrategy`` takes: the degrees, the order of the axes where it is not the usual one."""
    strategy = job.strategy
    shared = strategy.sharding_degree if strategy.zero_stage else 1
    degrees = present(
        dp_degree=strategy.dp * strategy.cp // shared,
        mp_degree=strategy.tp,
        pp_degree=strategy.pp,
        sharding_degree=shared,
        sep_degree=1,
        cp_degree=strategy.cp if strategy.cp > 1 else None,
        ep_degree=strategy.ep if strategy.ep > 1 else None,
        order=["dp", "sharding", "pp", "sep", "mp"] if strategy.rank_order == _SHARDS_OUTSIDE else None,
    )
    pipeline = {"accumulate_steps": strategy.num_microbatches, "micro_batch_size": strategy.micro_batch_size}
    return {"hybrid_configs": degrees, "pipeline_configs": pipeline}
