"""What Hugging Face Accelerate 1.15, with FSDP2, refuses to start."""

from __future__ import annotations

from typing import Final

from planner.frameworks import conditions as when
from planner.frameworks.conditions import FSDP2, SHARD, FrameworkRule
from planner.frameworks.vendors import TPU

RULES: Final = (
    FrameworkRule("accelerate-device", ("tp",),
        "no {accelerator}: PyTorch reaches TPUs through XLA alone; maxtext runs on them",
        "accelerate.state: DistributedType.XLA, which is neither FSDP nor MULTI_GPU", when.not_made_by(TPU)),
    FrameworkRule("accelerate-pipeline", ("pp",), "no pipeline; pp is {pp}",
        "accelerate.parallelism_config: ParallelismConfig", when.one("pp")),
    FrameworkRule("accelerate-experts", ("ep",), "no expert ranks {ep}",
        "accelerate.parallelism_config: ParallelismConfig", when.one("ep")),
    FrameworkRule("accelerate-expert-tensor", ("etp",), "no expert tensor size {etp}",
        "accelerate.parallelism_config: ParallelismConfig", when.one("etp")),
    FrameworkRule("accelerate-gradients", ("zero_stage",),
        "no ZeRO stage 1: FSDP2 shards gradients with the optimizer; 2 works", FSDP2, when.shards_gradients_too),
    FrameworkRule("accelerate-shards", SHARD, "no ZeRO stage {zero_stage} over one rank", FSDP2,
        when.something_sharded),
    FrameworkRule("accelerate-sharding", SHARD,
        "no sharding over {sharding_degree} of {dp} x {cp} ranks: context ranks come first",
        "accelerate.parallelism_config: dp_shard_cp_dim_names", when.shards_context),
    FrameworkRule("accelerate-context-shards", ("cp", "zero_stage"),
        "no ZeRO stage {zero_stage} beside {cp} context ranks, over which it shards",
        "accelerate.parallelism_config: dp_shard_cp_dim_names", when.shards_beside_context),
    FrameworkRule("accelerate-replicas", ("tp", *SHARD),
        "no {dp} replicas beside {tp} x {cp} tensor and context ranks unless data ranks share a copy",
        "accelerate.parallelism_config: ParallelismConfig.__post_init__", when.replicas_share),
    FrameworkRule("accelerate-context-kind", ("cp", "cp_kind"), "no context ranks of kind {cp_kind}; p2p works",
        "accelerate.utils.dataclasses: TorchContextParallelConfig", when.gathered("all-gather", "p2p")),
    FrameworkRule("accelerate-recompute-groups", ("recompute_num_layers",),
        "no recomputation of {recompute_num_layers} layers from one stored input; 1 works",
        "accelerate.utils.FullyShardedDataParallelPlugin: activation_checkpointing", when.one("recompute_num_layers")),
    FrameworkRule("accelerate-recompute", ("recompute", "recompute_modules"),
        "no recomputation {recompute} of modules {recompute_modules} or of some layers; full works",
        "accelerate.utils.dataclasses: FullyShardedDataParallelPlugin", when.all_or_nothing),
    FrameworkRule("accelerate-order", ("rank_order",), "no rank order {rank_order}",
        "accelerate.parallelism_config: _get_mesh", when.only("rank_order", "tp-cp-ep-dp-pp")),
    FrameworkRule("accelerate-offload", ("offload",), "no offload {offload}: parameters and states go together",
        "accelerate.utils.dataclasses: FullyShardedDataParallelPlugin",
        when.only("offload", "none", "optimizer+parameters")),
    FrameworkRule("accelerate-offload-share", ("offload",), "no offload of a share of {offload_fraction}",
        "accelerate.utils.dataclasses: FullyShardedDataParallelPlugin", when.not_offloaded_in_part),
    FrameworkRule("accelerate-offload-shards", ("zero_stage", "offload"), "no offload {offload} under ZeRO stage 0",
        FSDP2, when.host_needs_shards),
    FrameworkRule("accelerate-precision", ("tp",), "no precision {precision}; bf16 works",
        "accelerate.utils.dataclasses: PrecisionType",
        when.known("precision", "fp32", "fp16", "bf16", "fp8", "fp8-current", "fp8-rowwise")),
)  # fmt: skip
