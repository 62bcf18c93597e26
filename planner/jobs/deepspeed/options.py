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
EFFECTS: Final = {
    "zero_optimization.zero_quantized_weights": "parameters are gathered in 8 bits, in half the bytes",
    "zero_optimization.zero_quantized_gradients": "gradients are reduced in 4 bits, in a quarter of the bytes",
    "zero_optimization.zero_quantized_nontrainable_weights": "frozen weights are kept in 8 bits",
    "zero_optimization.zenflow": "a part of the step on the host is hidden behind computation",
    "zero_optimization.offload_optimizer.super_offload": "a part of the step on the host is hidden behind computation",
    "bf16.bf16_master_weights_and_grads": "master weights and gradients in 16 bits: less memory",
    "bf16.bf16_optimizer_states": "moments in 16 bits: less memory",
    "fp16.fp16_master_weights_and_grads": "master weights and gradients in 16 bits: less memory",
    "amp.enabled": "Apex keeps its own weights in 16 bits: more memory",
    "torch_autocast.enabled": "weights stay in fp32 and are cast for each product: more memory",
    "compile.deepcompile": "a compiler schedules gathers and kernels: a shorter iteration",
    "activation_checkpointing.partition_activations": "stored activations are split over tensor ranks: less memory",
    "activation_checkpointing.cpu_checkpointing": "stored activations move to the host: less memory, longer passes",
    "sparse_attention": "attention over a part of the tokens: less computation",
    "progressive_layer_drop.enabled": "layers are left out at random: a shorter iteration",
    "curriculum_learning.enabled": "sequences begin short: shorter iterations at first",
    "data_efficiency.enabled": "sequences or layers see a part of the tokens: shorter iterations",
    "compression_training": "weights or activations are also rounded in each step: more work",
    "hybrid_engine.enabled": "the engine also generates, between training steps: more time and memory",
    "quantize_training.enabled": "weights are also rounded in each step: more work",
    "communication_data_type": "gradients are sent in that format: more or fewer bytes",
    "seq_parallel_communication_data_type": "sequences are exchanged in that format: more or fewer bytes",
}
"""What keys do that are read and not priced, where they are there and not off."""

CARRIED: Final = (
    *("optimizer", "stack.offload_fraction", "stack.reduce_bucket_size", "stack.overlap_grad_reduce"),
    *("stack.overlap_zero3", "stack.zero_hpz"),
)
"""Choices and paths of changes that its files have, or that their exporter remarks on."""
