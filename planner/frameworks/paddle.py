"""What PaddleFormers 1.2, on PaddlePaddle 3.3, refuses to start."""

from __future__ import annotations

from typing import Final

import numpy as np

from planner.frameworks.conditions import SHARD, Facts, FrameworkRule, lacking, not_made_by, usual
from planner.frameworks.vendors import NO_DEVICE, TPU
from planner.rules.conditions import Columns, Mask

_ARGUMENTS: Final = "paddleformers.trainer.training_args"
_DEGREES: Final = f"{_ARGUMENTS}: _post_init_parallel_degree"
_LAYERS: Final = "paddle.distributed.fleet.meta_parallel"


def _experts_fill_shards(c: Columns, _x: Facts) -> Mask:
    """Expert ranks without replicas, and tensor ranks that divide them."""
    whole = (c["zero_stage"] > 0) & (c["sharding_degree"] == c["dp"] * c["cp"])
    return (c["ep"] == 1) | (whole & (c["ep"] % c["tp"] == 0))


def _copies_outermost(c: Columns, _x: Facts) -> Mask:
    """Ranks that share states may lie inside or outside the pipeline, their copies only outside of everything."""
    shared = np.where(c["zero_stage"] == 0, 1, c["sharding_degree"])
    return (c["pp"] == 1) | (shared == c["dp"] * c["cp"]) | (c["rank_order"] > 0)


WIDE_GRADIENTS: Final = ("bf16", "fp16")
"""Formats under which ``amp_master_grad`` adds gradients up in fp32, which sharding needs and the exporter writes."""
RULES: Final = (
    FrameworkRule("paddle-device", ("tp",), NO_DEVICE, "paddle.device; PaddleCustomDevice: backends", not_made_by(TPU)),
    usual("paddle-schedule", f"{_LAYERS}.pipeline_parallel", "1f1b",
        sentence="no schedule {schedule} among its training arguments; {works}"),
    usual("paddle-layers", f"{_LAYERS}: SegmentLayers"),
    usual("paddle-zero-pipeline", _DEGREES),
    usual("paddle-context-kind", _DEGREES, "p2p"),
    usual("paddle-context-kernel",
        "paddleformers.transformers.ring_flash_attention: RingFlashAttention, on phi's flash_attn (sm80 on)"),
    usual("paddle-context-shards", _DEGREES),
    usual("paddle-sharding", _DEGREES),
    usual("paddle-expert-tensor", _DEGREES),
    FrameworkRule("paddle-experts", ("tp", "ep", *SHARD),
        "no expert ranks {ep} unless all {dp} x {cp} data ranks share states and {tp} tensor ranks divide them",
        _DEGREES, _experts_fill_shards),
    FrameworkRule("paddle-order", ("pp", "rank_order", *SHARD),
        "no rank order {rank_order} with sharding over {sharding_degree} of {dp} x {cp} ranks: copies are outermost",
        "paddle.distributed.fleet.base.topology: CommunicateTopology", _copies_outermost),
    usual("paddle-vocabulary", f"{_LAYERS}: PipelineLayer"),
    usual("paddle-recompute", f"{_ARGUMENTS}: recompute_granularity", "none", "full"),
    usual("paddle-precision", f"{_ARGUMENTS}: amp_master_grad, which sharding needs and fp32 refuses", *WIDE_GRADIENTS),
    usual("paddle-offload", _DEGREES, "none", sentence="no offload {offload} with these arguments"),
    usual("paddle-optimizer", f"{_ARGUMENTS}: optim", "adam"),
)  # fmt: skip

model_lacks = lacking(
    {"experts", "latent attention", "prediction of further tokens", "norms of queries and keys",
     "biases of queries, keys and values"},
    {"gpt-oss-20b", "gpt-oss-120b", "gemma3-1b", "gemma3-4b", "gemma3-12b", "gemma3-27b", "deepseek-v3.2",
     "deepseek-v4-flash", "deepseek-v4-pro", "glm-5", "glm-5.2", "phi-3-mini", "qwen3-next-80b-a3b",
     "qwen3.5-9b", "qwen3.5-27b", "qwen3.5-35b-a3b", "qwen3.5-122b-a10b", "qwen3.5-397b-a17b"},
)  # fmt: skip
"""What of a model no folder of ``paddleformers.transformers`` has: the code of its layers is the user's.

There are Llama, Qwen 2 and 3, ERNIE 4.5, GLM 4, MiniMax M2, DeepSeek-V3 and Kimi K2, and those named.
"""
