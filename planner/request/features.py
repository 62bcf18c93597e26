"""What a software stack does, feature by feature: fields that belong together, and how a stack takes another's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.stack.stack import Stack

FEATURES: Final[Mapping[str, tuple[str, ...]]] = {
    "attention kernel": ("attention", "recent_cudnn", "fp8_attention"),
    "tensor-parallel overlap": ("overlap.tp_forward", "overlap.tp_backward", "overlap.rings", "communication_units"),
    "pipeline overlap": ("overlap.pp", "overlap.pp_interleaved"),
    "data-parallel overlap": (
        "overlap.gradients",
        "overlap.parameters",
        "overlap.third_stage",
        "overlap.chunks",
        "bucket_exposed",
        "bucket_parameters",
        "bucket_per_rank",
        "collectives_per_layer",
    ),
    "context-parallel overlap": ("overlap.cp", "overlap.cp_collective"),
    "expert overlap": ("overlap.ep", "overlap.pairs", "shared_expert_overlap"),
    "kernels and launches": (
        "kernel_efficiency",
        "elementwise_efficiency",
        "fused_elementwise",
        "split_projections",
        "fused_softmax",
        "softmax_keys",
        "fused_norms",
        "around_attention",
        "around_activation",
        "chunked_windows",
        "attention_block",
        "dropout",
        "launch",
        "blocking_launches",
        "bound_processes",
        "deterministic",
        "kernels_per_layer",
        "cuda_graphs",
        "graphs",
        "cross_entropy_traffic",
    ),
    "collectives": ("communication_efficiency", "scatter_gather", "gradient_bytes", "reduce_bytes"),
    "what tensor ranks exchange": ("apart", "branches_apart", "norm_gathers", "gathered_inputs", "gathered_logits"),
    "data, host and stragglers": ("iteration_overhead", "micro_batch_overhead", "straggler"),
}
"""What a stack does, in the order in which one is turned into another; its other fields come last together."""


def features(one: Stack, other: Stack) -> dict[str, list[str]]:
    """What differs between two stacks: the fields of each of ``FEATURES``."""
    return {
        feature: [name for name in names if value_of(one, name) != value_of(other, name)]
        for feature, names in FEATURES.items()
    }


def value_of(stack: Stack, name: str) -> Any:
    """A field of a stack; ``overlap.pp`` is one of its overlap."""
    outer, _, inner = name.rpartition(".")
    return getattr(getattr(stack, outer) if outer else stack, inner)


def turned(stack: Stack, goal: Stack, names: list[str]) -> Stack:
    """A stack with some fields of another; ``overlap.pp`` is one of its overlap."""
    overlap = {name.removeprefix("overlap."): value_of(goal, name) for name in names if name.startswith("overlap.")}
    plain = {name: value_of(goal, name) for name in names if "." not in name}
    return stack.changed(plain | {"overlap": stack.overlap.model_copy(update=overlap)})
