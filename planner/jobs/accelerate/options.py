"""The keys of the YAML of ``accelerate launch``, as of Accelerate 1.15."""

from __future__ import annotations

from typing import Final

from planner.jobs.options import Options, choice, flag, number, text

PRECISIONS: Final = {"bf16": "bf16", "fp16": "fp16", "no": "fp32", "fp8": "fp8"}
BACKENDS: Final = {"TE": "fp8", "AO": "fp8-current"}
"""What multiplies in 8 bits: Transformer Engine scales by earlier steps, TorchAO by the tensor at hand."""

SHARDING: Final = {
    **dict.fromkeys(("full_shard", "1", "true"), 3),
    **dict.fromkeys(("shard_grad_op", "2", "false"), 2),
    **dict.fromkeys(("no_shard", "3"), 0),
    **dict.fromkeys(("hybrid_shard", "4"), -3),
    **dict.fromkeys(("hybrid_shard_zero2", "_hybrid_shard_zero2", "5"), -2),
}  # fmt: skip
"""ZeRO stages by FSDP's words and their numbers; negative where every node has a copy of its own."""

OPTIONS: Final = Options(
    text("compute_environment"),
    choice("distributed_type", "distributed", {
        "FSDP": "fsdp", "MULTI_GPU": "ddp", "NO": "ddp", "DEEPSPEED": "deepspeed", "MEGATRON_LM": "megatron",
        "MULTI_NPU": "ddp", "MULTI_XPU": "ddp", "MULTI_MLU": "ddp", "MULTI_HPU": "ddp"}, "ddp"),
    choice("mixed_precision", "precision", PRECISIONS, "fp32"),
    number("num_machines", "nodes"),
    number("num_processes", "gpus"),
    number("machine_rank", least=0),
    number("main_process_port"),
    text("rdzv_backend"),
    text("main_training_function"),
    flag("use_cpu"),
    number("fsdp_config.fsdp_version", "fsdp_version", 1),
    text("fsdp_config.fsdp_auto_wrap_policy", "wrap_policy"),
    text("fsdp_config.fsdp_reshard_after_forward", "reshard"),
    flag("fsdp_config.fsdp_activation_checkpointing", "recompute"),
    flag("fsdp_config.fsdp_offload_params", "offload"),
    flag("fsdp_config.fsdp_cpu_ram_efficient_loading", "efficient_loading"),
    text("fsdp_config.fsdp_state_dict_type", "state_dict"),
    text("fsdp_config.fsdp_sharding_strategy", "strategy"),
    choice("fp8_config.backend", "backend", ("TE", "AO"), "AO"),
    text("fp8_config.fp8_format", "fp8_format"),
    number("fp8_config.amax_history_len", "amax_history"),
    text("fp8_config.amax_compute_algo", "amax_algorithm"),
    flag("fp8_config.enable_fsdp_float8_all_gather", "fp8_param_gather"),
    number("parallelism_config.parallelism_config_dp_replicate_size", "replicas", 1),
    number("parallelism_config.parallelism_config_dp_shard_size", "shard", 1),
    number("parallelism_config.parallelism_config_tp_size", "tp", 1),
    number("parallelism_config.parallelism_config_cp_size", "cp", 1),
    choice("parallelism_config.parallelism_config_cp_comm_strategy", "cp_kind",
           {"allgather": "all-gather", "alltoall": "p2p"}, "all-gather"),
    number("parallelism_config.parallelism_config_sp_size", "sp", 1),
    text("dynamo_config.dynamo_backend", "compiler", older=("dynamo_backend",)),
    number("megatron_lm_config.megatron_lm_tp_degree", "megatron_tp", 1),
    number("megatron_lm_config.megatron_lm_pp_degree", "megatron_pp", 1),
    number("megatron_lm_config.megatron_lm_num_micro_batches", "megatron_steps"),
    number("megatron_lm_config.megatron_lm_expert_model_parallel_size", "megatron_ep", 1),
    number("megatron_lm_config.megatron_lm_context_parallel_size", "megatron_cp", 1),
    flag("megatron_lm_config.megatron_lm_sequence_parallelism", "megatron_sequences"),
    flag("megatron_lm_config.megatron_lm_recompute_activations", "megatron_recompute"),
    flag("megatron_lm_config.megatron_lm_use_distributed_optimizer", "megatron_zero"),
)  # fmt: skip
"""Keys by field, in the order in which they are written; the sharding strategy is FSDP1's, and only read."""

PLUGIN: Final = {
    "zero_stage": "zero_optimization.stage",
    "offload_optimizer_device": "zero_optimization.offload_optimizer.device",
    "offload_param_device": "zero_optimization.offload_param.device",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}
"""Keys of ``deepspeed_config``, and DeepSpeed's own for them (``accelerate.utils.dataclasses: DeepSpeedPlugin``)."""
LEFT: Final = frozenset({
    "gradient_clipping", "deepspeed_config_file", "deepspeed_multinode_launcher", "deepspeed_hostfile",
    "zero3_init_flag", "zero3_save_16bit_model", "offload_optimizer_nvme_path", "offload_param_nvme_path",
    "deepspeed_moe_layer_cls_names", "deepspeed_inclusion_filter", "deepspeed_exclusion_filter",
    "seq_parallel_communication_data_type",
})  # fmt: skip
"""Keys of ``deepspeed_config`` that change no price, and the one that names a file."""
