"""The keys of DeepSpeed's JSON, as of DeepSpeed 0.19."""

from __future__ import annotations

from typing import Final

from planner.jobs.options import Options, choice, flag, number, text

_HOST: Final = {"cpu": True, "none": False, "nvme": True}
_OPTIMIZERS: Final = {
    **dict.fromkeys(("Adam", "AdamW", "FusedAdam", "DeepSpeedCPUAdam", "MuAdam", "MuAdamW"), "adam"),
    **dict.fromkeys(("OneBitAdam", "ZeroOneAdam"), "adam"),
    **dict.fromkeys(("Lamb", "FusedLamb", "OneBitLamb"), "lamb"),
    **dict.fromkeys(("SGD", "MuSGD"), "sgd"),
    **dict.fromkeys(("Lion", "DeepSpeedCPULion", "FusedLion"), "lion"),
    **dict.fromkeys(("Adagrad", "DeepSpeedCPUAdagrad"), "adagrad"),
    "Adafactor": "adafactor",
    "Muon": "muon",
}

OPTIONS: Final = Options(
    number("train_batch_size", "global_batch_size"),
    number("train_micro_batch_size_per_gpu", "micro_batch_size"),
    number("gradient_accumulation_steps", "steps"),
    flag("bf16.enabled", "bf16", older=("bfloat16.enabled",)),
    flag("fp16.enabled", "fp16"),
    number("zero_optimization.stage", "zero_stage", 0, least=0),
    flag("zero_optimization.overlap_comm", "overlap_comm"),
    flag("zero_optimization.contiguous_gradients", "contiguous_gradients"),
    flag("zero_optimization.reduce_scatter", "reduce_scatter"),
    number("zero_optimization.reduce_bucket_size", "reduce_bucket"),
    number("zero_optimization.zero_hpz_partition_size", "second_shard"),
    number("zero_optimization.mics_shard_size", "sharding_degree", least=-1),
    choice("zero_optimization.offload_optimizer.device", "states_on_host", _HOST, default=False),
    flag("zero_optimization.offload_optimizer.pin_memory", "states_pinned"),
    text("zero_optimization.offload_optimizer.ratio", "offload_fraction"),
    choice("zero_optimization.offload_param.device", "parameters_on_host", _HOST, default=False),
    flag("zero_optimization.offload_param.pin_memory", "parameters_pinned"),
    flag("zero_optimization.cpu_offload", "older_states_on_host"),
    flag("zero_optimization.cpu_offload_param", "older_parameters_on_host",
         older=("zero_optimization.cpu_offload_params",)),
    number("tensor_parallel.autotp_size", "tp", 0, least=0),
    number("data_parallel_size", "dp"),
    number("sequence_parallel_size", "cp", 1),
    choice("optimizer.type", "optimizer", _OPTIMIZERS),
    choice("data_types.grad_accum_dtype", "main_grads",
           {"fp32": "fp32", "float32": "fp32", "bf16": "bf16", "bfloat16": "bf16", "fp16": "bf16"}),
)  # fmt: skip
"""Keys by field, in the order in which they are written; from the optimizer on they are the script's, and only read."""

ONE_BIT: Final = frozenset({"onebitadam", "onebitlamb", "zerooneadam"})
"""Optimizers whose gradients travel in one bit."""
CARRIED: Final = (
    *("optimizer", "stack.offload_fraction", "stack.reduce_bucket_size", "stack.overlap_grad_reduce"),
    *("stack.overlap_zero3", "stack.zero_hpz"),
)
"""Choices and paths of changes that its files have, or that their exporter remarks on."""
