"""What torchtitan 0.3, refuses to start."""

from __future__ import annotations

from typing import Final

from planner.frameworks import conditions as when
from planner.frameworks.records import FSDP2, SHARD, FrameworkRule
from planner.frameworks.vendors import TPU

RULES: Final = (
    FrameworkRule(
        "torchtitan-device",
        ("tp",),
        "no {accelerator}: PyTorch reaches TPUs through XLA alone; maxtext runs on them",
        "torchtitan.tools.utils: get_device_info",
        when.not_made_by(TPU),
    ),
    FrameworkRule(
        "torchtitan-schedule",
        ("schedule",),
        "no schedule {schedule}; 1f1b and interleaved-1f1b work",
        "torch.distributed.pipelining.schedules: get_schedule_class",
        when.scheduled("gpipe", "1f1b", "interleaved-1f1b", "breadth-first", "interleaved-zb", "zb-v", "dualpipe-v"),
    ),
    FrameworkRule(
        "torchtitan-v",
        ("vpp", "schedule"),
        "no schedule {schedule} with {vpp} chunks a stage; 2 work",
        "torchtitan.distributed.pipeline_parallel: pipeline_module_split",
        when.folded_twice,
    ),
    FrameworkRule(
        "torchtitan-context-kind",
        ("cp", "cp_kind"),
        "no context ranks of kind {cp_kind}; all-gather works",
        "torchtitan.distributed.context_parallel",
        when.gathered("all-gather"),
    ),
    FrameworkRule(
        "torchtitan-gradients",
        ("zero_stage",),
        "no ZeRO stage 1: FSDP2 shards gradients with the optimizer; 2 works",
        FSDP2,
        when.shards_gradients_too,
    ),
    FrameworkRule(
        "torchtitan-sharding",
        SHARD,
        "no sharding over {sharding_degree} of {dp} x {cp} ranks: context ranks come first",
        "torchtitan.distributed.parallel_dims: ParallelDims.build_mesh",
        when.shards_context,
    ),
    FrameworkRule(
        "torchtitan-context-shards",
        ("cp", "zero_stage"),
        "no ZeRO stage {zero_stage} beside {cp} context ranks, over which it shards",
        "torchtitan.distributed.parallel_dims",
        when.shards_beside_context,
    ),
    FrameworkRule(
        "torchtitan-experts",
        ("tp", "cp", "ep", "zero_stage", "sharding_degree"),
        "no expert ranks {ep} that do not divide the {tp} x {cp} tensor and context and the data ranks of a copy",
        "torchtitan.distributed.parallel_dims: ParallelDims.build_mesh",
        when.experts_within_copy,
    ),
    FrameworkRule(
        "torchtitan-expert-tensor",
        ("etp",),
        "no expert tensor size {etp}; 1 works",
        "torchtitan.config.configs: ParallelismConfig",
        when.one("etp"),
    ),
    FrameworkRule(
        "torchtitan-query-groups",
        ("tp",),
        "no tensor parallel size {tp} for {num_query_groups} query groups: it repeats none",
        "torchtitan.models.common.decoder: update_from_config",
        when.query_groups_split,
    ),
    FrameworkRule(
        "torchtitan-recompute-groups",
        ("recompute_num_layers",),
        "no recomputation of {recompute_num_layers} layers from one stored input; 1 works",
        "torchtitan.distributed.activation_checkpoint",
        when.one("recompute_num_layers"),
    ),
    FrameworkRule(
        "torchtitan-recompute",
        ("recompute", "recompute_modules"),
        "no recomputation {recompute} of modules {recompute_modules} or of some layers; none, selective and full work",
        "torchtitan.distributed.activation_checkpoint",
        when.whole_layers,
    ),
    FrameworkRule(
        "torchtitan-paired-recompute",
        ("ep", "schedule", "recompute"),
        "no recomputation {recompute} with {ep} expert ranks under {schedule}; none works",
        "torchtitan.distributed.dual_pipe_v: get_dual_pipe_v_flag, of 0.2",
        when.nothing_repeated_in_pairs,
    ),
    FrameworkRule(
        "torchtitan-order",
        ("rank_order",),
        "no rank order {rank_order}",
        "torchtitan.distributed.parallel_dims: ParallelDims.build_mesh",
        when.only("rank_order", "tp-cp-ep-dp-pp"),
    ),
    FrameworkRule(
        "torchtitan-vocabulary",
        ("vocabulary",),
        "no vocabulary {vocabulary}",
        "torchtitan.distributed.pipeline_parallel",
        when.only("vocabulary", "ends"),
    ),
    FrameworkRule(
        "torchtitan-offload",
        ("offload",),
        "no offload {offload}: parameters and states go together",
        "torchtitan.config.configs: TrainingConfig.enable_cpu_offload",
        when.only("offload", "none", "optimizer+parameters"),
    ),
    FrameworkRule(
        "torchtitan-offload-share",
        ("offload",),
        "no offload of a share of {offload_fraction}",
        "torchtitan.config.configs: TrainingConfig.enable_cpu_offload",
        when.not_offloaded_in_part,
    ),
    FrameworkRule(
        "torchtitan-optimizer",
        ("tp",),
        "no optimizer {optimizer}; adam works",
        "torchtitan.components.optimizer",
        when.known("optimizer", "adam"),
    ),
    FrameworkRule(
        "torchtitan-precision",
        ("tp",),
        "no precision {precision}; bf16, fp8-rowwise and mxfp8 work",
        "torchtitan.components.quantization; TrainingConfig.mixed_precision_param",
        when.known("precision", "bf16", "fp32", "fp8-current", "fp8-rowwise", "mxfp8", "nvfp4"),
    ),
    FrameworkRule(
        "torchtitan-tied",
        ("pp",),
        "no {pp} pipeline stages of a model whose head shares the embedding",
        "torchtitan.models.common.decoder: update_from_config",
        when.untied_in_pipeline,
    ),
    FrameworkRule(
        "torchtitan-fills",
        ("pp", "dp", "micro_batch_size", "schedule"),
        "no schedule {schedule} with fewer micro-batches than {pp} stages",
        "torch.distributed.pipelining.schedules: Schedule1F1B",
        when.fills("1f1b"),
    ),
)
