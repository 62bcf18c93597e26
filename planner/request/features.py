"""What a software stack does, feature by feature: fields that belong together, and how a stack takes another's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from costmodels.stack.stack import Stack

FEATURES: Final[Mapping[str, tuple[str, ...]]] = {
    "attention kernel": ("switches.attention_backend", "kernels.recent_cudnn", "switches.fp8_attention"),
    "tensor-parallel overlap": (
        "overlap.tp_forward",
        "overlap.tp_backward",
        "switches.tp_overlap_rings",
        "overlap.communication_units",
    ),
    "pipeline overlap": ("overlap.pp", "overlap.pp_interleaved"),
    "data-parallel overlap": (
        "switches.overlap_grad_reduce",
        "switches.overlap_param_gather",
        "switches.overlap_zero3",
        "overlap.by_chunk",
        "sharding.bucket_exposed",
        "switches.bucket_size",
        "sharding.bucket_per_rank",
        "sharding.collectives_per_layer",
    ),
    "context-parallel overlap": ("overlap.cp", "overlap.cp_collective"),
    "expert overlap": ("overlap.ep", "overlap.paired_passes", "switches.shared_expert_overlap"),
    "kernels and launches": (
        "calibrated.kernel_efficiency",
        "calibrated.elementwise_efficiency",
        "calibrated.compute_time",
        "calibrated.host_time",
        "switches.fused_elementwise",
        "kernels.split_projections",
        "switches.fused_softmax",
        "kernels.longest_fused_softmax",
        "kernels.fused_norms",
        "kernels.pytorch_rms_norm",
        "kernels.attention_copy_bytes",
        "kernels.activation_copy_bytes",
        "kernels.chunked_windows",
        "kernels.attention_block",
        "switches.dropout",
        "host.launch_time",
        "switches.launch_blocking",
        "switches.bind_processes",
        "switches.deterministic",
        "host.kernels_per_layer",
        "switches.cuda_graphs",
        "switches.cuda_graph_scope",
        "logits.cross_entropy_traffic",
    ),
    "collectives": (
        "calibrated.communication_efficiency",
        *(f"calibrated.{kind}_traffic_time" for kind in ("tensor", "expert", "data", "pipeline")),
        "pipeline.scatter_gather",
        "gradients.gradient_bytes",
        "gradients.reduce_bytes",
    ),
    "what tensor ranks exchange": (
        "exchange.separate_reductions",
        "kernels.separate_branches",
        "exchange.norm_gathers",
        "exchange.keeps_gathered_inputs",
        "logits.gathered_logits",
    ),
    "data, host and stragglers": (
        "calibrated.iteration_overhead",
        "host.calls_per_step",
        "host.micro_batch_overhead",
        "calibrated.straggler",
    ),
}
"""What a stack does, in the order in which one is turned into another; its other fields come last together."""


def features(one: Stack, other: Stack) -> dict[str, list[str]]:
    """What differs between two stacks: the paths of each of ``FEATURES``."""
    return {
        feature: [path for path in paths if one.value(path) != other.value(path)] for feature, paths in FEATURES.items()
    }


def turned(stack: Stack, goal: Stack, paths: Iterable[str]) -> Stack:
    """A stack with some fields of another."""
    return stack.changed({path: goal.value(path) for path in paths})
