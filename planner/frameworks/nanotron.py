"""What nanotron, as of commit 2411b02 of April 2026, refuses to start."""

from __future__ import annotations

from typing import Final

from planner.frameworks import conditions as when
from planner.frameworks import models
from planner.frameworks.records import NO_GPUS, SHARD, FrameworkRule

_GROUPS: Final = "nanotron.parallel.context: ParallelContext"
_ENGINE: Final = "nanotron.parallel.pipeline_parallel.engine"
_ARGUMENTS: Final = "nanotron.config.parallelism_config: ParallelismArgs"

RULES: Final = (
    FrameworkRule(
        "nanotron-device",
        ("tp",),
        "no {accelerator}, which has no CUDA; maxtext runs on TPUs",
        "nanotron.distributed: initialize_torch_distributed",
        when.not_made_by(*NO_GPUS),
    ),
    FrameworkRule(
        "nanotron-schedule",
        ("schedule",),
        "no schedule {schedule}; 1f1b works",
        f"{_ENGINE}: PipelineEngine",
        when.scheduled("gpipe", "1f1b"),
    ),
    FrameworkRule(
        "nanotron-fills",
        ("pp", "dp", "micro_batch_size"),
        "no pipeline of {pp} stages with fewer micro-batches than the others of them",
        f"{_ENGINE}: OneForwardOneBackwardPipelineEngine",
        models.nearly_fills,
    ),
    FrameworkRule(
        "nanotron-stages",
        ("pp",),
        "no pipeline of {pp} stages: its cut of {num_layers} layers by cost leaves one bare",
        "nanotron.models.base: build_model",
        models.no_bare_stage,
    ),
    FrameworkRule(
        "nanotron-context",
        ("cp",),
        "no context ranks {cp} but in the ring attention of one of its models, which is not priced",
        "nanotron.nn.ring_attention",
        when.one("cp"),
    ),
    FrameworkRule(
        "nanotron-experts",
        ("ep",),
        "no expert ranks {ep}: the grid of its groups would have {ep} times the ranks there are",
        _GROUPS,
        when.one("ep"),
    ),
    FrameworkRule("nanotron-expert-tensor", ("etp",), "no expert tensor size {etp}", _GROUPS, when.one("etp")),
    FrameworkRule(
        "nanotron-model",
        ("tp",),
        "no model like {model}: dense, gated, rotated ones with root-mean-square norms and no biases work",
        "nanotron.config.models_config: LlamaConfig, Qwen2Config",
        models.of_nanotron,
    ),
    FrameworkRule(
        "nanotron-query-groups",
        ("tp",),
        "no tensor parallel size {tp} for {num_query_groups} query groups: it repeats none",
        "nanotron.config.config: Config.__post_init__",
        models.scatters,
    ),
    FrameworkRule(
        "nanotron-zero",
        ("zero_stage",),
        "no ZeRO stage {zero_stage}; 1 works",
        "nanotron.optim.zero: ZeroDistributedOptimizer",
        when.up_to_stage(1),
    ),
    FrameworkRule(
        "nanotron-sharding",
        SHARD,
        "no sharding over {sharding_degree} of {dp} x {cp} ranks",
        "nanotron.optim.zero: ZeroDistributedOptimizer",
        when.shards_everywhere,
    ),
    FrameworkRule(
        "nanotron-recompute",
        ("recompute", "recompute_modules"),
        "no recomputation {recompute} of modules {recompute_modules} or of some layers; full works",
        f"{_ARGUMENTS}.recompute_layer",
        when.all_or_nothing,
    ),
    FrameworkRule(
        "nanotron-recompute-groups",
        ("recompute_num_layers",),
        "no recomputation of {recompute_num_layers} layers from one stored input; 1 works",
        f"{_ARGUMENTS}.recompute_layer",
        when.one("recompute_num_layers"),
    ),
    FrameworkRule(
        "nanotron-order",
        ("rank_order",),
        "no rank order {rank_order}",
        _GROUPS,
        when.only("rank_order", "tp-cp-ep-dp-pp"),
    ),
    FrameworkRule(
        "nanotron-vocabulary",
        ("vocabulary",),
        "no vocabulary {vocabulary}",
        "nanotron.models.base: build_model",
        when.only("vocabulary", "ends"),
    ),
    FrameworkRule(
        "nanotron-offload",
        ("offload",),
        "no offload {offload}",
        "nanotron.config.config: OptimizerArgs",
        when.only("offload", "none"),
    ),
    FrameworkRule(
        "nanotron-optimizer",
        ("tp",),
        "no optimizer {optimizer}; adam works",
        "nanotron.config.config: OptimizerArgs.optimizer_factory",
        when.known("optimizer", "adam", "sgd"),
    ),
    FrameworkRule(
        "nanotron-precision",
        ("tp",),
        "no precision {precision}; bf16 works",
        "nanotron.config.utils_config: cast_str_to_torch_dtype",
        when.known("precision", "bf16", "fp32"),
    ),
    FrameworkRule(
        "nanotron-fused-loss",
        ("tp",),
        "no loss fused with the head's product; plain works",
        "nanotron.parallel.tensor_parallel.functional: sharded_cross_entropy",
        when.known("loss", "plain"),
    ),
    FrameworkRule(
        "nanotron-loss",
        ("tp",),
        "no loss in blocks of {loss_block} tokens",
        "nanotron.parallel.tensor_parallel.functional: sharded_cross_entropy",
        when.whole_loss,
    ),
    FrameworkRule(
        "nanotron-adapters",
        ("tp",),
        "no adapters {adapters} beside frozen weights; megatron-bridge trains them",
        "nanotron.config has none",
        when.all_weights,
    ),
)
