"""The fields of torchtitan's configuration: 0.2 reads them as TOML, 0.3 as Python or as words of a command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
    number("training.local_batch_size", "local_batch_size", 8),
    number("training.global_batch_size", "global_batch_size", -1, least=-1),
    number("training.seq_len", "seq_length", 2048),
    flag("training.enable_cpu_offload", "offload"),
    choice("training.mixed_precision_param", "width", ("bfloat16", "float32"), "bfloat16"),
    choice("training.dtype", "dtype", ("float32", "bfloat16"), "float32"),
    flag("training.compile", "older_compile"),
    flag("training.disable_cuda_graphs", "disable_cuda_graphs", since="0.3"),
    number("training.steps", "steps"),
    number("parallelism.data_parallel_replicate_degree", "replicas", 1),
    number("parallelism.data_parallel_shard_degree", "shard", -1, least=-1),
    choice("parallelism.fsdp_reshard_after_forward", "reshard", ("default", "always", "never"), "default"),
    number("parallelism.tensor_parallel_degree", "tp", 1),
    number("parallelism.context_parallel_degree", "cp", 1),
    number("parallelism.pipeline_parallel_degree", "pp", 1),
    number("parallelism.expert_parallel_degree", "ep", 1),
    flag("parallelism.disable_loss_parallel", "disable_loss_parallel", until="0.2"),
    number("parallelism.expert_tensor_parallel_degree", "etp", 1, until="0.2"),
    choice("parallelism.context_parallel_rotate_method", "cp_kind",
           {"allgather": "all-gather", "alltoall": "p2p"}, "all-gather", until="0.2"),
    flag("parallelism.enable_sequence_parallel", "sequence_parallel", since="0.3"),
    flag("parallelism.enable_async_tensor_parallel", "async_tensor_parallel"),
    choice("parallelism.pipeline_parallel_schedule", "schedule",
           {theirs: ours for ours, theirs in SCHEDULES.items()}, "1f1b"),
    number("parallelism.pipeline_parallel_microbatch_size", "micro_batch_size", 1),
    number("parallelism.pipeline_parallel_layers_per_stage", "layers_per_stage"),
    number("parallelism.pipeline_parallel_first_stage_less_layers", "first_less", least=0),
    number("parallelism.pipeline_parallel_last_stage_less_layers", "last_less", least=0),
    text("parallelism.module_fqns_per_model_part", "modules"),
    choice("activation_checkpoint.mode", "recompute", ("none", "selective", "full"), "selective"),
    text("activation_checkpoint.selective_ac_option", "selective_option"),
    choice("optimizer.name", "optimizer", {"AdamW": "adam", "Adam": "adam"}, "adam"),
    flag("optimizer.early_step_in_backward", "early_step"),
    flag("compile.enable", "compile"),
)  # fmt: skip
"""Fields by what they stand for, in the order in which they are written.

Keys and values that reach other context ranks by an all-to-all in which each sends to the next go around a ring. From
0.3 on they are gathered, and experts are not split over tensor ranks.
"""
