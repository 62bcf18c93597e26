"""The table of frameworks, by the name of their exporter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.frameworks import accelerate, bridge, deepspeed, maxtext, megatron, nanotron, paddle, pytorch, torchtitan
from planner.frameworks.nanotron_split import stage_layers
from planner.frameworks.records import Framework

_PREFERS_PARTS: Final = ("full-recompute", "full-recompute-hides")
"""What is dominated only where layers can be recomputed one by one."""

FRAMEWORKS: Final[Mapping[str, Framework]] = {
    "megatron-lm": Framework("megatron-core", (*megatron.RULES, *megatron.ALONE), "alike"),
    "megatron-bridge": Framework("nemo", (*bridge.RULES, *megatron.RULES), "alike", main_grads="fp32"),
    "deepspeed": Framework("deepspeed", deepspeed.RULES, "whole", _PREFERS_PARTS),
    "torchtitan": Framework("torchtitan", torchtitan.RULES, "whole", _PREFERS_PARTS),
    "accelerate": Framework("fsdp", accelerate.RULES, "whole", _PREFERS_PARTS),
    "pytorch": Framework("torchtitan", pytorch.RULES, "whole", _PREFERS_PARTS),
    "paddle": Framework("paddle", paddle.RULES, "whole", _PREFERS_PARTS, main_grads="fp32"),
    "nanotron": Framework("nanotron", nanotron.RULES, "whole", _PREFERS_PARTS, stage_layers),
    "maxtext": Framework("maxtext", maxtext.RULES, "whole", _PREFERS_PARTS),
}
"""Frameworks by the name of their exporter."""
