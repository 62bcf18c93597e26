"""What PaddleFormers 1.2, on PaddlePaddle 3.3, refuses to start."""

from __future__ import annotations

from typing import Final

from planner.frameworks import conditions as when
from planner.frameworks.conditions import SHARD, FrameworkRule
from planner.frameworks.vendors import TPU

_DEGREES = "paddleformers.trainer.training_args: _post_init_parallel_degree"

RULES: Final = (
    FrameworkRule("paddle-device", ("tp",), "no {accelerator}, which is none of its devices; maxtext runs on TPUs",
        "paddle.device; PaddleCustomDevice: backends", when.not_made_by(TPU)),
    FrameworkRule("paddle-schedule", ("schedule",), "no schedule {schedule} among its training arguments; 1f1b works",
        "paddle.distributed.fleet.meta_parallel.pipeline_parallel", when.scheduled("1f1b")),
    FrameworkRule("paddle-layers", ("pp", "vpp"), "no uneven pipeline: {num_layers} layers over {pp} stages",
        "paddle.distributed.fleet.meta_parallel: SegmentLayers", when.even_layers),
    FrameworkRule("paddle-zero-pipeline", ("pp", "zero_stage"),
        "no ZeRO stage {zero_stage} with {pp} pipeline stages; 1 works", _DEGREES, when.at_most_stage(1)),
    FrameworkRule("paddle-context-kind", ("cp", "cp_kind"), "no context ranks of kind {cp_kind}; p2p works", _DEGREES,
        when.gathered("p2p")),
    FrameworkRule("paddle-context-shards", ("cp", "zero_stage"),
        "no ZeRO stage {zero_stage} beside {cp} context ranks, which are some of those that share states", _DEGREES,
        when.shards_beside_context),
    FrameworkRule("paddle-sharding", SHARD,
        "no sharding over {sharding_degree} of {dp} x {cp} ranks: context ranks come first", _DEGREES,
        when.shards_context),
    FrameworkRule("paddle-expert-tensor", ("etp",), "no expert tensor size {etp}; 1 works", _DEGREES, when.one("etp")),
    FrameworkRule("paddle-experts", ("tp", "ep", *SHARD),
        "no expert ranks {ep} unless all {dp} x {cp} data ranks share states and {tp} tensor ranks divide them",
        _DEGREES, when.experts_fill_shards),
    FrameworkRule("paddle-order", ("pp", "rank_order", *SHARD),
        "no rank order {rank_order} with sharding over {sharding_degree} of {dp} x {cp} ranks: copies are outermost",
        "paddle.distributed.fleet.base.topology: CommunicateTopology", when.copies_outermost),
    FrameworkRule("paddle-vocabulary", ("vocabulary",), "no vocabulary {vocabulary}",
        "paddle.distributed.fleet.meta_parallel: PipelineLayer", when.only("vocabulary", "ends")),
    FrameworkRule("paddle-recompute", ("recompute", "recompute_modules"),
        "no recomputation {recompute} of modules {recompute_modules} or of some layers; full works",
        "paddleformers.trainer.training_args: recompute_granularity", when.all_or_nothing),
    FrameworkRule("paddle-precision", ("tp",), "no precision {precision}; bf16 works",
        "paddleformers.trainer.training_args: amp_master_grad, which sharding needs and fp32 refuses",
        when.known("precision", "bf16", "fp16")),
    FrameworkRule("paddle-offload", ("offload",), "no offload {offload} with these arguments", _DEGREES,
        when.only("offload", "none")),
    FrameworkRule("paddle-optimizer", ("tp",), "no optimizer {optimizer}; adam works",
        "paddleformers.trainer.training_args: optim", when.known("optimizer", "adam")),
)  # fmt: skip
