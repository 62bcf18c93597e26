"""What Megatron-Bridge 0.6 refuses to start beyond Megatron-Core."""

from __future__ import annotations

from typing import Final

from planner.frameworks import conditions as when
from planner.frameworks.records import FrameworkRule

RULES: Final = (
    FrameworkRule(
        "bridge-precision",
        ("tp",),
        "no mixed precision recipe for {precision}; bf16 works",
        "megatron.bridge.training.mixed_precision: MixedPrecisionConfig",
        when.known("precision", "bf16", "fp16", "fp8", "fp8-current", "fp8-block", "mxfp8", "nvfp4"),
    ),
    FrameworkRule(
        "bridge-optimizer",
        ("tp",),
        "no optimizer {optimizer}: no override says moments in 8 bits; adam-bf16 works",
        "megatron.bridge.utils.activation_map: str_to_dtype",
        when.known("optimizer", "adam", "adam-bf16", "sgd", "muon"),
    ),
    FrameworkRule(
        "bridge-hybrid",
        ("tp",),
        "no overrides here for layers by pattern; megatron-lm works",
        "megatron.bridge.models: layers of a hybrid model are the recipe's",
        when.classic_layers,
    ),
)
