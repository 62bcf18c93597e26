"""The keys of the YAML of ``accelerate launch``, as of Accelerate 1.15."""

from __future__ import annotations

from typing import Final

from planner.jobs.options import Options, choice, flag, number, text

PRECISIONS: Final = {"bf16": "bf16", "fp16": "fp16", "no": "fp32", "fp8": "fp8"}
BACKENDS: Final = {"TE": "fp8", "AO": "fp8-current"}
"""What multiplies in 8 bits: Transformer Engine scales by earlier steps, TorchAO by the tensor at hand."""

OPTIONS: Final = Options(
    text("compute_environment"),
    choice("distributed_type", "sharded", {"FSDP": True, "MULTI_GPU": False, "NO": False}, default=False),
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
    flag("fsdp_config.fsdp_reshard_after_forward", "reshard"),
    flag("fsdp_config.fsdp_activation_checkpointing", "recompute"),
    flag("fsdp_config.fsdp_offload_params", "offload"),
    flag("fsdp_config.fsdp_cpu_ram_efficient_loading", "efficient_loading"),
    text("fsdp_config.fsdp_state_dict_type", "state_dict"),
    choice("fsdp_config.fsdp_sharding_strategy", "zero_stage", {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0}),
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
)  # fmt: skip
"""Keys by field, in the order in which they are written; the sharding strategy is FSDP1's, and only read."""
