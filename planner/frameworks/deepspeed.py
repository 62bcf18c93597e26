"""What DeepSpeed 0.19 refuses to start."""

from __future__ import annotations

from typing import Final

from planner.frameworks import conditions as when
from planner.frameworks.conditions import SHARD, FrameworkRule
from planner.frameworks.vendors import TPU

RULES: Final = (
    FrameworkRule("deepspeed-device", ("tp",), "no {accelerator}, which is none of its devices; maxtext runs on TPUs",
        "deepspeed.accelerator.real_accelerator: SUPPORTED_ACCELERATOR_LIST", when.not_made_by(TPU, "AWS")),
    FrameworkRule("deepspeed-schedule", ("schedule",), "no schedule {schedule}; 1f1b works",
        "deepspeed.runtime.pipe.schedule: TrainSchedule", when.scheduled("1f1b")),
    FrameworkRule("deepspeed-layers", ("pp", "vpp"),
        "no uneven pipeline: it cuts {num_layers} layers by type over {pp} stages",
        "deepspeed.runtime.pipe.module: PipelineModule._partition_layers", when.even_layers),
    FrameworkRule("deepspeed-tensor-pipeline", ("tp", "pp"),
        "no tensor ranks {tp} inside {pp} pipeline stages: AutoTP splits whole models",
        "deepspeed.runtime.pipe.engine: PipelineEngine", when.apart("tp", "pp")),
    FrameworkRule("deepspeed-sequence", ("sequence_parallel",), "no sequence parallelism over AutoTP's ranks",
        "deepspeed.runtime.tensor_parallel.config", when.no_split_sequence),
    FrameworkRule("deepspeed-context-kind", ("cp", "cp_kind"), "no context ranks of kind {cp_kind}; a2a works",
        "deepspeed.runtime.sequence_parallel.ulysses_sp", when.gathered("a2a")),
    FrameworkRule("deepspeed-context-pipeline", ("cp", "pp"), "no context ranks {cp} inside {pp} pipeline stages",
        "deepspeed.runtime.pipe.topology: PipeModelDataParallelTopology", when.apart("cp", "pp")),
    FrameworkRule("deepspeed-context-tensor", ("tp", "cp"),
        "no context ranks {cp} beside tensor ranks {tp}: a batch's world divides by one of them",
        "deepspeed.runtime.config: DeepSpeedConfig", when.apart("tp", "cp")),
    FrameworkRule("deepspeed-expert-tensor", ("etp",), "no expert tensor size {etp}: experts are whole",
        "deepspeed.moe.layer: MoE", when.one("etp")),
    FrameworkRule("deepspeed-experts-parameters", ("ep", "zero_stage"),
        "no ZeRO stage {zero_stage} with expert ranks {ep}", "deepspeed.runtime.engine: DeepSpeedEngine",
        when.parameters_with_experts_whole),
    FrameworkRule("deepspeed-zero-pipeline", ("pp", "zero_stage"),
        "no ZeRO stage {zero_stage} with {pp} pipeline stages; 1 works",
        "deepspeed.runtime.pipe.engine: PipelineEngine", when.at_most_stage(1)),
    FrameworkRule("deepspeed-sharding", SHARD,
        "no sharding over {sharding_degree} of {dp} x {cp} ranks: MiCS was removed",
        "deepspeed.runtime.config: removed keys", when.shards_everywhere),
    FrameworkRule("deepspeed-order", ("rank_order",), "no rank order {rank_order}: its axes are pipe, data, model",
        "deepspeed.runtime.pipe.topology: PipeModelDataParallelTopology", when.only("rank_order", "tp-cp-ep-dp-pp")),
    FrameworkRule("deepspeed-vocabulary", ("vocabulary",), "no vocabulary {vocabulary}",
        "deepspeed.runtime.pipe.module: PipelineModule", when.only("vocabulary", "ends")),
    FrameworkRule("deepspeed-recompute-groups", ("pp", "recompute_num_layers"),
        "no recomputation of {recompute_num_layers} layers from one stored input outside a pipeline, pp is {pp}",
        "deepspeed.runtime.pipe.module: PipelineModule activation_checkpoint_interval", when.groups_in_a_pipeline),
    FrameworkRule("deepspeed-recompute", ("recompute", "recompute_modules"),
        "no recomputation {recompute} of modules {recompute_modules} or of some layers of a stage; full works",
        "deepspeed.runtime.activation_checkpointing", when.all_or_nothing),
    FrameworkRule("deepspeed-precision", ("tp",), "no precision {precision}; bf16 works",
        "deepspeed.runtime.config: DeepSpeedConfig", when.known("precision", "bf16", "fp16", "fp32")),
    FrameworkRule("deepspeed-optimizer", ("tp",), "no optimizer {optimizer}; adam works",
        "deepspeed.runtime.config: DEEPSPEED_OPTIMIZERS", when.known("optimizer", "adam", "sgd", "lamb", "muon")),
    FrameworkRule("deepspeed-offload", ("offload",), "no offload {offload}: activations stay unless recomputed",
        "deepspeed.runtime.zero.offload_config", when.only("offload", "none", "optimizer", "optimizer+parameters")),
    FrameworkRule("deepspeed-offload-shards", ("zero_stage", "offload"), "no offload {offload} under ZeRO stage 0",
        "deepspeed.runtime.zero.config: DeepSpeedZeroConfig", when.host_needs_shards),
    FrameworkRule("deepspeed-offload-share", ("zero_stage", "offload"),
        "no offload of a share of {offload_fraction} but under ZeRO stage 3",
        "deepspeed.runtime.zero.config: offload_ratio_check", when.share_needs_parameters),
)  # fmt: skip
