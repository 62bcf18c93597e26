"""What Megatron-LM, as of Megatron-Core 0.17, and Megatron-Bridge 0.6, which is built on it, refuse to start."""

from __future__ import annotations

from typing import Final

from planner.frameworks import conditions as when
from planner.frameworks.conditions import SHARD, FrameworkRule
from planner.frameworks.vendors import TPU

RULES: Final = (
    FrameworkRule("megatron-device", ("tp",), "no {accelerator}, which has no CUDA; maxtext runs on TPUs",
        "megatron.training.initialize: initialize_megatron", when.not_made_by(TPU, "AWS")),
    FrameworkRule("megatron-schedule", ("schedule",), "no schedule {schedule}; 1f1b and interleaved-1f1b work",
        "megatron.core.pipeline_parallel.schedules: get_forward_backward_func",
        when.scheduled("1f1b", "interleaved-1f1b", "interleaved-groups")),
    FrameworkRule("megatron-order", ("rank_order",), "no rank order {rank_order}; tp-cp-ep-dp-pp works",
        "megatron.core.parallel_state: initialize_model_parallel",
        when.only("rank_order", "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")),
    FrameworkRule("megatron-vocabulary", ("vocabulary",),
        "no vocabulary {vocabulary}: embedding and head are at the ends of the pipeline",
        "megatron.core.transformer.pipeline_parallel_layer_layout", when.only("vocabulary", "ends")),
    FrameworkRule("megatron-offload", ("offload",), "no offload {offload}: parameters stay on the device",
        "megatron.training.arguments: validate_args", when.only("offload", "none", "activations", "optimizer")),
    FrameworkRule("megatron-optimizer", ("tp",), "no optimizer {optimizer}; adam works",
        "megatron.training.arguments: --optimizer",
        when.known("optimizer", "adam", "adam-bf16", "adam-8bit", "sgd", "muon")),
    FrameworkRule("megatron-muon", SHARD,
        "no optimizer {optimizer} under ZeRO stage {zero_stage} over {sharding_degree} of {dp} x {cp} ranks; stage 1 "
        "over all of them works", "megatron.training.arguments: validate_args, Muon", when.muon_shares_all),
    FrameworkRule("megatron-narrow-states", ("zero_stage", "offload"),
        "no optimizer {optimizer} with master weights in {main_params} and offload {offload} under ZeRO stage "
        "{zero_stage}: a sharded Adam alone has narrow or offloaded states",
        "megatron.core.optimizer.optimizer_config: OptimizerConfig.__post_init__", when.narrow_states_sharded),
    FrameworkRule("megatron-precision", ("tp",), "no precision {precision}; fp8-current scales by tensor",
        "megatron.training.arguments: --fp8-recipe",
        when.known("precision", "fp32", "fp16", "bf16", "fp8", "fp8-current", "fp8-block", "mxfp8", "nvfp4")),
    FrameworkRule("megatron-fused-loss", ("tp",), "no loss fused with the head's product; plain works",
        "megatron.core.model_parallel_config: ModelParallelConfig.cross_entropy_fusion_impl",
        when.known("loss", "plain")),
    FrameworkRule("megatron-loss", ("tp",), "no loss in blocks of {loss_block} tokens",
        "megatron.training.arguments: --cross-entropy-fusion-impl", when.whole_loss),
    FrameworkRule("megatron-mapping", ("tp", "cp", "pp", "ep", "etp", "rank_order"),
        "no rank order {rank_order} with {cp} context ranks: experts {ep} x {etp} and the rest need as many replicas",
        "megatron.core.parallel_state: initialize_model_parallel", when.mapped_experts_alike),
    FrameworkRule("megatron-delayed-recompute", ("recompute_modules",),
        "no recomputation of {recompute_modules} under delayed scaling; fp8-current works",
        "megatron.core.transformer.transformer_config: TransformerConfig.__post_init__", when.delayed_modules),
    FrameworkRule("megatron-expert-bias", ("etp",), "no expert tensor size {etp} where experts have biases; 1 works",
        "megatron.core.transformer.transformer_config: TransformerConfig.__post_init__", when.expert_biases),
    FrameworkRule("megatron-expert-copies", ("tp", "ep", "etp", *SHARD),
        "no sharding over {sharding_degree} of {dp} x {cp} ranks: the copies do not divide the replicas of experts "
        "{ep} x {etp}", "megatron.core.parallel_state: initialize_model_parallel", when.expert_copies),
)  # fmt: skip

ALONE: Final = (
    FrameworkRule("megatron-adapters", ("tp",),
        "no adapters {adapters} beside frozen weights; megatron-bridge trains them",
        "megatron.training.arguments has none", when.all_weights),
)  # fmt: skip
"""What Megatron-LM lacks alone."""

BRIDGE: Final = (
    FrameworkRule("bridge-precision", ("tp",), "no mixed precision recipe for {precision}; bf16 works",
        "megatron.bridge.training.mixed_precision: MixedPrecisionConfig",
        when.known("precision", "bf16", "fp16", "fp8", "fp8-current", "fp8-block", "mxfp8", "nvfp4")),
    FrameworkRule("bridge-optimizer", ("tp",),
        "no optimizer {optimizer}: no override says moments in 8 bits; adam-bf16 works",
        "megatron.bridge.utils.activation_map: str_to_dtype",
        when.known("optimizer", "adam", "adam-bf16", "sgd", "muon")),
    FrameworkRule("bridge-hybrid", ("tp",), "no overrides here for layers by pattern; megatron-lm works",
        "megatron.bridge.models: layers of a hybrid model are the recipe's", when.classic_layers),
)  # fmt: skip
"""What Megatron-Bridge lacks beyond ``RULES``."""
