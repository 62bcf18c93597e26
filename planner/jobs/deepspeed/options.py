"""The keys of DeepSpeed's JSON, as of DeepSpeed 0.19."""

from __future__ import annotations

from typing import Final

from planner.jobs.options import Options, choice, flag, number, text

_HOST: Final = {"cpu": True, "none": False}
_OPTIMIZERS: Final = {
    **dict.fromkeys(("Adam", "AdamW", "FusedAdam", "DeepSpeedCPUAdam", "MuAdam", "MuAdamW"), "adam"),
    **dict.fromkeys(("Lamb", "FusedLamb"), "lamb"),
    **dict.fromkeys(("SGD", "MuSGD"), "sgd"),
    "Adafactor": "adafactor",
    "Muon": "muon",
}

OPTIONS: Final = Options(
    number("train_batch_size", "global_batch_size"),
    number("train_micro_batch_size_per_gpu", "micro_batch_size"),
    number("gradient_accumulation_steps", "steps"),
    flag("bf16.enabled", "bf16"),
    flag("fp16.enabled", "fp16"),
    number("zero_optimization.stage", "zero_stage", 0, least=0),
    flag("zero_optimization.overlap_comm", "overlap_comm"),
    flag("zero_optimization.contiguous_gradients", "contiguous_gradients"),
    flag("zero_optimization.reduce_scatter", "reduce_scatter"),
    number("zero_optimization.zero_hpz_partition_size", "second_shard"),
    choice("zero_optimization.offload_optimizer.device", "states_on_host", _HOST, default=False),
    flag("zero_optimization.offload_optimizer.pin_memory", "states_pinned"),
    text("zero_optimization.offload_optimizer.ratio", "offload_fraction"),
    choice("zero_optimization.offload_param.device", "parameters_on_host", _HOST, default=False),
    flag("zero_optimization.offload_param.pin_memory", "parameters_pinned"),
    flag("zero_optimization.cpu_offload", "older_states_on_host"),
    flag("zero_optimization.cpu_offload_param", "older_parameters_on_host"),
    number("tensor_parallel.autotp_size", "tp", 0, least=0),
    number("data_parallel_size", "dp"),
    number("sequence_parallel_size", "cp", 1),
    choice("optimizer.type", "optimizer", _OPTIMIZERS),
    choice("data_types.grad_accum_dtype", "main_grads",
           {"fp32": "fp32", "float32": "fp32", "bf16": "bf16", "bfloat16": "bf16"}),
)  # fmt: skip
"""Keys by field, in the order in which they are written; from the optimizer on they are the script's, and only read."""
CARRIED: Final = ("optimizer", "stack.offload_fraction")
"""Choices and paths of changes that its files have, or that their exporter remarks on."""
