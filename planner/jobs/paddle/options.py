"""The training arguments of PaddleFormers, as of 1.2."""

from __future__ import annotations

from typing import Final

from planner.jobs.options import Options, choice, flag, number

OPTIONS: Final = Options(
    number("tensor_model_parallel_size", "tp", 1),
    number("pipeline_model_parallel_size", "pp", 1),
    number("context_parallel_size", "cp", 1),
    number("sep_parallel_size", default=1),
    choice("sharding", "zero_stage", {"": 0, "stage1": 1, "stage2": 2, "stage3": 3}, 0),
    number("sharding_parallel_size", "sharding_degree", 1),
    number("expert_model_parallel_size", "ep", 1),
    number("expert_tensor_model_parallel_size", "etp", 1),
    flag("use_expert_parallel"),
    flag("sequence_parallel"),
    choice("hybrid_parallel_topo_order", "shards_inside", {"pp_first": True, "sharding_first": False}, default=True),
    number("per_device_train_batch_size", "micro_batch_size"),
    number("gradient_accumulation_steps", "steps", 1),
    flag("bf16"),
    flag("fp16"),
    flag("amp_master_grad"),
    choice("recompute_granularity", "recompute", ("full",)),
    choice("recompute_method", "recompute_method", ("uniform",)),
    number("recompute_num_layers"),
)
"""Arguments by field, in the order in which they are written."""
