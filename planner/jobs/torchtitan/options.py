"""The fields of torchtitan's configuration: TOML up to 0.2, Python or words of a command line since.

Older spellings are those of every version since 2024: degrees stood under ``training`` and ``experimental`` once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.jobs.options import options_of

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

OPTIONS: Final = options_of("torchtitan")
"""Fields by what they stand for, in the order in which they are written.

Keys and values that reach other context ranks by an all-to-all in which each sends to the next go around a ring. From
0.3 on they are gathered, and experts are not split over tensor ranks.
"""
