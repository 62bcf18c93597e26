"""What DeepSpeed 0.19 refuses to start."""

from __future__ import annotations

from typing import Final

from costmodels.names import SHARDED_PARAMETERS
from planner.frameworks.conditions import SHARD, FrameworkRule, apart, not_made_by, one, shards_everywhere, usual
from planner.frameworks.vendors import NO_DEVICE, TPU

_MODULE: Final = "deepspeed.runtime.pipe.module: PipelineModule"
_CONFIG: Final = "deepspeed.runtime.config: DeepSpeedConfig"
_GRID: Final = "deepspeed.runtime.pipe.topology: PipeModelDataParallelTopology"
_ENGINE: Final = "deepspeed.runtime.pipe.engine: PipelineEngine"

RULES: Final = (
    FrameworkRule("deepspeed-device", ("tp",), NO_DEVICE,
        "deepspeed.accelerator.real_accelerator: SUPPORTED_ACCELERATOR_LIST", not_made_by(TPU, "AWS")),
    usual("deepspeed-schedule", "deepspeed.runtime.pipe.schedule: TrainSchedule", "1f1b"),
    usual("deepspeed-layers", f"{_MODULE}._partition_layers",
        sentence="no uneven pipeline: it cuts {num_layers} layers by type over {pp} stages"),
    FrameworkRule("deepspeed-tensor-pipeline", ("tp", "pp"),
        "no tensor ranks {tp} inside {pp} pipeline stages: AutoTP splits whole models", _ENGINE, apart("tp", "pp")),
    FrameworkRule("deepspeed-sequence", ("sequence_parallel",), "no sequence parallelism over AutoTP's ranks",
        "deepspeed.runtime.tensor_parallel.config", lambda c, _x: c["sequence_parallel"] == 0),
    usual("deepspeed-frozen", "deepspeed.module_inject.layers: LinearLayer"),
    usual("deepspeed-context-kind", "deepspeed.runtime.sequence_parallel.ulysses_sp", "a2a"),
    FrameworkRule("deepspeed-context-pipeline", ("cp", "pp"), "no context ranks {cp} inside {pp} pipeline stages",
        _GRID, apart("cp", "pp")),
    FrameworkRule("deepspeed-context-tensor", ("tp", "cp"),
        "no context ranks {cp} with tensor ranks {tp}: the batch is divided by only one of them", _CONFIG,
        apart("tp", "cp")),
    usual("deepspeed-expert-tensor", "deepspeed.moe.layer: MoE",
        sentence="no expert tensor size {etp}: experts are whole"),
    FrameworkRule("deepspeed-experts-parameters", ("ep", "zero_stage"),
        "no ZeRO stage {zero_stage} with expert ranks {ep}", "deepspeed.runtime.engine: DeepSpeedEngine",
        lambda c, _x: (c["ep"] == 1) | (c["zero_stage"] < SHARDED_PARAMETERS)),
    usual("deepspeed-zero-pipeline", _ENGINE),
    FrameworkRule("deepspeed-sharding", SHARD,
        "no sharding over {sharding_degree} of {dp} x {cp} ranks: MiCS was removed",
        "deepspeed.runtime.config: removed keys", shards_everywhere),
    usual("deepspeed-order", _GRID, "tp-cp-ep-dp-pp",
        sentence="no rank order {rank_order}: its axes are pipe, data, model"),
    usual("deepspeed-vocabulary", _MODULE),
    FrameworkRule("deepspeed-recompute-groups", ("pp", "recompute_num_layers"),
        "no recomputation of {recompute_num_layers} layers from one stored input outside a pipeline, pp is {pp}",
        f"{_MODULE} activation_checkpoint_interval",
        lambda c, _x: (c["recompute_num_layers"] == 1) | (c["pp"] > 1)),
    usual("deepspeed-recompute", "deepspeed.runtime.activation_checkpointing", "none", "full"),
    usual("deepspeed-precision", _CONFIG, "bf16", "fp16", "fp32"),
    usual("deepspeed-optimizer", "deepspeed.runtime.config: DEEPSPEED_OPTIMIZERS", "adam", "sgd", "lamb", "muon"),
    usual("deepspeed-offload", "deepspeed.runtime.zero.offload_config", "none", "optimizer", "optimizer+parameters",
        sentence="no offload {offload}: activations stay unless recomputed"),
    usual("deepspeed-offload-shards", "deepspeed.runtime.zero.config: DeepSpeedZeroConfig"),
    FrameworkRule("deepspeed-offload-share", ("zero_stage", "offload"),
        "no offload of a share of {offload_fraction:g} but under ZeRO stage 3",
        "deepspeed.runtime.zero.config: offload_ratio_check", lambda c, x: (c["offload"] == 0)
        | (x.switches.offload_fraction >= 1) | (c["zero_stage"] == SHARDED_PARAMETERS)),
)  # fmt: skip

OWN_CODE: Final = (
    FrameworkRule("deepspeed-own-pipeline", ("pp",),
        "no {pp} pipeline stages but of a model that its own code writes as a PipelineModule", _MODULE, one("pp")),
    FrameworkRule("deepspeed-own-context", ("cp",),
        "no {cp} context ranks but in a training loop that splits sequences over them (Ulysses)",
        "deepspeed.runtime.sequence_parallel.ulysses_sp", one("cp")),
    FrameworkRule("deepspeed-own-experts", ("ep",), "no {ep} expert ranks but of a model with layers of deepspeed.moe",
        "deepspeed.moe.layer: MoE", one("ep")),
)  # fmt: skip
