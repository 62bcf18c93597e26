"""The keys of MaxText's configuration, as of MaxText 0.2.5, with the values of its base.yml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.jobs.options import Options, choice, flag, number, text

AXES: Final = ("data", "pipeline", "fsdp", "context", "tensor", "tensor_sequence", "expert")
"""Axes of its mesh that a plan may use, as they lie between slices and inside one."""

NEARLY: Final[dict[str, str]] = {
    "minimal_flash": "none",  # as minimal_with_context was called
    "minimal": "selective",
    "save_dot_with_context_except_mlp": "selective",
    "save_dot_except_mlpwi": "selective",
    "save_dot_except_mlp": "selective",
    "save_out_proj": "selective",
    "custom": "full",
    "minimal_offloaded": "none",
    "qkv_proj_offloaded": "selective",
}
"""Policies that are priced as the nearest of the three: what they keep lies between them, or on the host."""
NARROW_STATES: Final[Mapping[str, Any]] = {"stack.states.weight_bytes": 2, "stack.states.optimizer_bytes": 8}
"""Weights in bfloat16, which have no copy in fp32, and whose moments are of their format."""
CALLED: Final[Mapping[str, str]] = {
    "deepseek2-16b": "deepseek-v2-lite",
    "deepseek2-236b": "deepseek-v2",
    "deepseek3-671b": "deepseek-v3",
    "kimi-k2-1t": "kimi-k2",
    "llama4-17b-128e": "llama4-maverick",
    "llama4-17b-16e": "llama4-scout",
}
"""What MaxText calls models of the catalogue by names of its own."""

OPTIONS: Final = Options(
    text("base_config"),
    text("run_name"),
    choice("hardware", "hardware", ("tpu", "gpu"), "tpu"),
    text("dataset_type"),
    flag("packing"),
    text("model_name", "model", default="default"),
    choice("decoder_block", "decoder", ("llama2",), "llama2"),
    number("base_emb_dim", "hidden_size", 2048),
    number("base_num_query_heads", "num_heads", 16),
    number("base_num_kv_heads", "num_query_groups", 16),
    number("base_mlp_dim", "ffn_hidden_size", 7168),
    number("base_num_decoder_layers", "num_layers", 16),
    number("head_dim", default=128),
    number("global_parameter_scale", "scale", 1),
    number("vocab_size", default=32000),
    flag("logits_via_embedding", "tied_embeddings"),
    number("num_experts", "experts", 1),
    number("num_slices", default=-1, least=-1),
    *(number(f"dcn_{axis}_parallelism", f"dcn_{axis}", -1 if axis == "data" else 1, least=-1) for axis in AXES),
    *(number(f"ici_{axis}_parallelism", f"ici_{axis}", -1 if axis == "fsdp" else 1, least=-1) for axis in AXES),
    number("max_target_length", "seq_length", 2048),
    number("steps", "iterations", least=-1),
    text("per_device_batch_size", default=12.0),
    number("gradient_accumulation_steps", "steps", 1),
    number("num_layers_per_pipeline_stage", "layers_per_chunk", 1),
    number("num_pipeline_repeats", "vpp", -1, least=-1),
    number("num_pipeline_microbatches", "micro_batches", -1, least=-1),
    choice("remat_policy", "recompute",
           {"minimal_with_context": "none", "save_qkv_proj": "selective", "full": "full"} | NEARLY, "full"),
    choice("dtype", "width", ("bfloat16", "float32"), "bfloat16"),
    choice("weight_dtype", "weights", ("float32", "bfloat16"), "float32"),
    choice("quantization", "recipe",
           {"": "", "int8": "int8", "te_fp8_delayedscaling": "fp8", "te_fp8_currentscaling": "fp8-current",
            "te_mxfp8": "mxfp8", "te_nvfp4": "nvfp4", "fp8": "fp8", "aqt_fp8": "fp8-current",
            "aqt_fp8_full": "fp8-current", "te_noop": ""}, ""),
    choice("opt_type", "optimizer", {"adamw": "adam", "sgd": "sgd", "muon": "muon"}, "adam"),
    flag("shard_optimizer_over_data", "sharded_states"),
    flag("optimizer_memory_host_offload", "states_on_host"),
    flag("parameter_memory_host_offload", "parameters_on_host"),
    text("attention"),
    choice("context_parallel_strategy", "cp_kind", {"all_gather": "all-gather"}, "all-gather"),
)  # fmt: skip
"""Keys by field, in the order in which they are written.

Recomputation names what is kept: every product and the attention's output, the products in front of attention, a
layer's input. Recipes are AQT's integers and Transformer Engine's; without one the products are in ``dtype``.
"""
SIZES: Final = (
    *("hidden_size", "num_heads", "num_query_groups", "ffn_hidden_size", "num_layers", "head_dim", "vocab_size"),
    "tied_embeddings",
)
"""What it says of the shape of a decoder of Llama's kind."""
