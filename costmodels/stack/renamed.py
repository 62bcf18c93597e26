"""Names that fields of a stack had before they were grouped, for those who saved them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

RENAMED: Final[Mapping[str, str]] = {
    "attention": "switches.attention_backend",
    "branches_apart": "kernels.separate_branches",
    "around_attention": "kernels.attention_copy_bytes",
    "around_activation": "kernels.activation_copy_bytes",
    "rotary_passes": "kernels.rotary_traffic",
    "scaled_rotary": "kernels.fused_scaled_rotary",
    "softmax_keys": "kernels.longest_fused_softmax",
    "transposing": "kernels.transposed_cast_speed",
    "along_depth": "kernels.transposed_fp8_copies",
    "launch": "host.launch_time",
    "blocking_launches": "switches.launch_blocking",
    "bound_processes": "switches.bind_processes",
    "combined_launches": "host.interleaved_launches",
    "graphs": "switches.cuda_graph_scope",
    "dispatch": "switches.dispatcher",
    "gathered_routes": "switches.dispatcher",
    "expert_masks": "experts.dispatch_masks",
    "overlap.rings": "switches.tp_overlap_rings",
    "overlap.pairs": "overlap.paired_passes",
    "overlap.gradients": "switches.overlap_grad_reduce",
    "overlap.parameters": "switches.overlap_param_gather",
    "overlap.third_stage": "switches.overlap_zero3",
    "overlap.chunks": "overlap.by_chunk",
    "selective": "switches.recompute_policy",
    "lean_recompute": "recompute.skips_unread",
    "overlap_slowdown": "overlap.compute_slowdown",
    "bucket_parameters": "switches.bucket_size",
    "gathers": "sharding.gather_unit",
    "per_shard": "sharding.copy_time_per_rank",
    "fully_sharded": "sharding.fsdp_stage2",
    "pipeline_holds": "sharding.pipeline_keeps_gathered",
    "pipeline_gathers_again": "sharding.pipeline_reshards",
    "second_shard": "switches.zero_hpz",
    "sharded_stages": "supports.zero3_in_pipelines",
    "replicas_once": "sharding.replicas_reduce_once",
    "passed_gradient_bytes": "gradients.micro_batch_gradient_bytes",
    "lingering_gradients": "gradients.kept_until_next_step",
    "keeps": "kernels.saved_tensors",
    "fresh_gradients": "gradients.set_to_none",
    "gradients_sharded": "sharding.scatters_each_micro_batch",
    "flattened_gradients": "gradients.flattened_copy",
    "partitioned_checkpoints": "recompute.partitioned_inputs",
    "gathered_inputs": "exchange.keeps_gathered_inputs",
    "replica_buckets": "gradients.ddp_bucket_bytes",
    "apart": "exchange.separate_reductions",
    "idle_gradients": "gradients.dummy_gradients",
    "slack": "allocator.fragmentation",
    "tensor_slack": "calibrated.tensor_fragmentation",
    "records_streams": "switches.record_streams",
    "fixed_segments": "switches.expandable_segments",
    "idle_logits": "allocator.logits_freed_early",
    "packing": "sharding.gradient_copy_speed",
    "registered_buffers": "switches.nccl_ub",
    "flat_step": "gradients.flat_step_bytes",
    "checked_gradients": "gradients.overflow_check",
    "reduce_bucket": "switches.reduce_bucket_size",
    "cache": "calibrated.cached_share",
    "shared_magnitudes": "exchange.amax_group",
    "copied_weights": "offload.copies_weights_from_stage",
    "calibration": "calibrated.basis",
}
"""Old names of fields that are called otherwise now; others kept theirs and moved into a group."""


def new_path(old: str, paths: Collection[str]) -> str | None:
    """The path of a field that was called so; None where nothing was."""
    return RENAMED.get(old) or next((path for path in sorted(paths) if path.rpartition(".")[2] == old), None)


def check_renamed(given: Mapping[str, Any], known: Collection[str], paths: Collection[str]) -> None:
    """Refuse a table of a stack from before its fields were grouped.

    Raises:
        ValueError: which of its names are called what now.
    """
    inside = given.get("overlap")
    flat = [*given, *(f"overlap.{name}" for name in (inside if isinstance(inside, Mapping) else ()))]
    moved = {old: new for old in flat if old not in {*known, *paths} and (new := new_path(old, paths))}
    if moved:
        shown = ", ".join(f"{old} is now {new}" for old, new in list(moved.items())[:3])
        more = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
        again = "; rename them, or calibrate again"
        raise ValueError(f"written before a stack's fields were grouped: {shown}{more}{again}")
