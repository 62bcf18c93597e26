"""The fields of torchtitan's configuration: TOML up to 0.2, Python or words of a command line since.

Older spellings are those of every version since 2024: degrees stood under ``training`` and ``experimental`` once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.jobs.options import Options, choice, flag, number, text

SCHEDULES: Final[Mapping[str, str]] = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved-1f1b": "Interleaved1F1B",
    "breadth-first": "LoopedBFS",
    "interleaved-zb": "InterleavedZeroBubble",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}
"""PyTorch's classes of schedules."""
FOLDED: Final = frozenset({"zb-v", "dualpipe-v"})
"""Schedules whose second chunks come back over the stages."""
MODELS: Final[Mapping[str, tuple[str, str]]] = {
    "llama3-8b": ("llama3", "8B"),
    "llama3-70b": ("llama3", "70B"),
    "llama3.1-405b": ("llama3", "405B"),
    "deepseek-v3": ("deepseek_v3", "671B"),
}
"""Name and flavor in 0.2 of models of the catalogue."""
READ_MODELS: Final[Mapping[str, tuple[str, str]]] = {
    **MODELS,
    "llama2-7b": ("llama2", "7B"),
    "llama2-13b": ("llama2", "13B"),
    "llama2-70b": ("llama2", "70B"),
    "llama4-scout": ("llama4", "17bx16e"),
    "llama4-maverick": ("llama4", "17bx128e"),
    "deepseek-v2-lite": ("deepseek_v3", "16B"),
    "qwen3-0.6b": ("qwen3", "0.6B"),
    "qwen3-1.7b": ("qwen3", "1.7B"),
    "qwen3-4b": ("qwen3", "4B"),
    "qwen3-8b": ("qwen3", "8B"),
    "qwen3-14b": ("qwen3", "14B"),
    "qwen3-32b": ("qwen3", "32B"),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B"),
    "qwen3-235b-a22b": ("qwen3", "235B-A22B"),
    "gpt-oss-20b": ("gpt_oss", "20b"),
    "gpt-oss-120b": ("gpt_oss", "120b"),
}
"""Those that are read, of any version: 16B of DeepSeek-V3 has the sizes of V2-Lite."""
EAGER: Final[Mapping[str, Any]] = {
    "stack.fused_elementwise": False,
    "stack.host.kernels_per_layer": 36,
    "stack.kernels.saved_tensors": ["gate", "norm", "key-values"],
    "stack.recompute.skips_unread": False,
}
"""What a layer does that nothing compiled: a kernel for every operation, whose inputs are kept."""
EAGER_LOSS: Final[Mapping[str, Any]] = {
    "stack.logits.cross_entropy_bytes": 12,
    "stack.allocator.logits_freed_early": True,
}
"""What a loss holds that nothing compiled: logits in 16 bits, and in fp32 with their gradients."""
NARROW_STATES: Final[Mapping[str, Any]] = {
    "stack.states.weight_bytes": 2,
    "stack.states.optimizer_bytes": 8,
    "stack.gradients.gradient_bytes": 2,
}
"""Training in bfloat16: weights, gradients and moments have 16 bits, and there is no copy in fp32; sums of gradients go
over the network in fp32 all the same."""
CONVERTERS: Final[Mapping[str, str]] = {"fp8-current": "float8", "fp8-rowwise": "float8", "mxfp8": "mx"}
"""What makes the products of a precision in 0.2; those in 16 and 32 bits need nothing."""

OPTIONS: Final = Options(
    text("model.name", "model"),
    text("model.flavor", "flavor"),
    text("model.converters", "converters"),
    choice("quantize.linear.float8.recipe_name", "float8_recipe",
           {"tensorwise": "fp8-current", "rowwise": "fp8-rowwise"}, "fp8-current", older=("float8.recipe_name",)),
    flag("quantize.linear.float8.enable_fsdp_float8_all_gather", "fp8_param_gather",
         older=("float8.enable_fsdp_float8_all_gather",)),
    choice("quantize.linear.mx.recipe_name", "mx_recipe",
           dict.fromkeys(("mxfp8_cublas", "mxfp8_cublas_rceil", "mxfp8_emulated", "mxfp8"), "mxfp8"), "mxfp8",
           older=("mx.recipe_name",)),
    text("quantize.grouped_mm.float8.fqns", "float8_experts"),
    text("quantize.grouped_mm.mx.recipe_name", "mx_experts_recipe"),
    text("quantize.grouped_mm.mx.fqns", "mx_experts"),
    number("training.local_batch_size", "local_batch_size", 8, older=("training.batch_size",)),
    number("training.global_batch_size", "global_batch_size", -1, least=-1),
    number("training.seq_len", "seq_length", 2048),
    flag("training.enable_cpu_offload", "offload"),
    choice("training.mixed_precision_param", "width", ("bfloat16", "float32"), "bfloat16"),
    choice("training.dtype", "dtype", ("float32", "bfloat16"), "float32"),
    flag("training.disable_cuda_graphs", "disable_cuda_graphs", since="0.3"),
    number("training.steps", "steps"),
    number("parallelism.data_parallel_replicate_degree", "replicas", 1,
           older=("training.data_parallel_replicate_degree",)),
    number("parallelism.data_parallel_shard_degree", "shard", -1, least=-1,
           older=("training.data_parallel_shard_degree", "training.data_parallel_degree")),
    choice("parallelism.fsdp_reshard_after_forward", "reshard", ("default", "always", "never"), "default"),
    number("parallelism.tensor_parallel_degree", "tp", 1, older=("training.tensor_parallel_degree",)),
    number("parallelism.context_parallel_degree", "cp", 1,
           older=("experimental.context_parallel_degree", "training.context_parallel_degree")),
    number("parallelism.pipeline_parallel_degree", "pp", 1,
           older=("experimental.pipeline_parallel_degree", "training.pipeline_parallel_degree")),
    number("parallelism.expert_parallel_degree", "ep", 1, older=("experimental.expert_parallel_degree",)),
    flag("parallelism.disable_loss_parallel", "disable_loss_parallel", until="0.2",
         older=("training.disable_loss_parallel",)),
    flag("training.enable_loss_parallel", "loss_parallel", until="0.1"),
    choice("parallelism.expert_parallel_comm_backend", "dispatch",
           {"standard": "alltoall", "deepep": "deepep", "hybridep": "hybridep"},
           "alltoall", until="0.2"),
    number("parallelism.expert_tensor_parallel_degree", "etp", 1, until="0.2"),
    choice("parallelism.context_parallel_rotate_method", "cp_kind",
           {"allgather": "all-gather", "alltoall": "p2p"}, "all-gather", until="0.2",
           older=("experimental.context_parallel_rotate_method",)),
    flag("parallelism.enable_sequence_parallel", "sequence_parallel", since="0.3"),
    flag("parallelism.enable_async_tensor_parallel", "async_tensor_parallel",
         older=("experimental.enable_async_tensor_parallel", "compile.enable_async_tensor_parallel")),
    choice("parallelism.pipeline_parallel_schedule", "schedule",
           {theirs: ours for ours, theirs in SCHEDULES.items()} | {"interleaved_1f1b": "interleaved-1f1b"}, "1f1b",
           older=("experimental.pipeline_parallel_schedule",)),
    number("parallelism.pipeline_parallel_microbatch_size", "micro_batch_size", 1),
    number("parallelism.pipeline_parallel_microbatches", "micro_batches", until="0.1",
           older=("experimental.pipeline_parallel_microbatches",)),
    number("parallelism.num_pp_microbatches", "num_pp_microbatches", since="0.4"),
    text("parallelism.pipeline_parallel_split_points", "split_points", until="0.1",
         older=("experimental.pipeline_parallel_split_points",)),
    number("parallelism.pipeline_parallel_layers_per_stage", "layers_per_stage"),
    number("parallelism.pipeline_parallel_first_stage_less_layers", "first_less", least=0),
    number("parallelism.pipeline_parallel_last_stage_less_layers", "last_less", least=0),
    text("parallelism.module_fqns_per_model_part", "modules"),
    choice("activation_checkpoint.mode", "recompute", ("none", "selective", "full"), "selective"),
    text("activation_checkpoint.selective_ac_option", "selective_option"),
    choice("optimizer.name", "optimizer", {"AdamW": "adam", "Adam": "adam"}, "adam"),
    flag("optimizer.early_step_in_backward", "early_step"),
    flag("compile.enable", "compile", older=("training.compile",)),
    text("compile.components", "compiled"),
    flag("float8.enable_float8_linear", "older_float8", older=("training.enable_fp8_linear",)),
    text("training.fp8_linear", "oldest_float8"),
    number("training.num_tokens_per_microbatch_per_dp_rank", "micro_batch_tokens", since="0.4"),
    number("training.num_tokens_per_train_step", "batch_tokens", -1, least=-1, since="0.4"),
    number("training.max_context_length", "context_length", since="0.4"),
)  # fmt: skip
"""Fields by what they stand for, in the order in which they are written.

Keys and values that reach other context ranks by an all-to-all in which each sends to the next go around a ring. From
0.3 on they are gathered, and experts are not split over tensor ranks.
"""
