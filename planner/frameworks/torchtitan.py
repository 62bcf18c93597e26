"""What torchtitan 0.3, or 0.2, refuses to start."""

from __future__ import annotations

from typing import Final

import numpy as np

from costmodels.names import Recompute
from planner.frameworks.conditions import FSDP2, Facts, FrameworkRule, fact, lacking, not_made_by, usual
from planner.frameworks.vendors import NO_TORCH, TPU
from planner.rules.conditions import Columns, Mask, among

_DIMENSIONS: Final = "torchtitan.distributed.parallel_dims: ParallelDims"
_REMAT: Final = "torchtitan.distributed.activation_checkpoint"
_OFFLOAD: Final = "torchtitan.config.configs: TrainingConfig.enable_cpu_offload"
_DECODER: Final = "torchtitan.models.common.decoder: update_from_config"


def _experts_within_copy(c: Columns, _x: Facts) -> Mask:
    """Expert ranks divide the data, context and tensor ranks of one copy."""
    copy = np.where(c["zero_stage"] == 0, c["cp"], np.maximum(c["sharding_degree"], c["cp"]))
    return (copy * c["tp"]) % c["ep"] == 0


def _nothing_repeated_in_pairs(c: Columns, _x: Facts) -> Mask:
    """A pass that overlaps another one's expert exchanges recomputes nothing."""
    pairs = among(c, "schedule", ["dualpipe-v"]) & (c["ep"] > 1)
    return ~pairs | (c["recompute"] == Recompute.NONE)


RULES: Final = (
    FrameworkRule("torchtitan-device", ("tp",), NO_TORCH, "torchtitan.tools.utils: get_device_info", not_made_by(TPU)),
    usual("torchtitan-schedule", "torch.distributed.pipelining.schedules: get_schedule_class",
        "gpipe", "1f1b", "interleaved-1f1b", "breadth-first", "interleaved-zb", "zb-v", "dualpipe-v"),
    usual("torchtitan-v", "torchtitan.distributed.pipeline_parallel: pipeline_module_split"),
    usual("torchtitan-context-kind", "torchtitan.distributed.context_parallel", "all-gather", since="0.3"),
    usual("torchtitan-gradients", FSDP2),
    usual("torchtitan-sharding", f"{_DIMENSIONS}.build_mesh"),
    usual("torchtitan-context-shards", "torchtitan.distributed.parallel_dims"),
    FrameworkRule("torchtitan-experts", ("tp", "cp", "ep", "zero_stage", "sharding_degree"),
        "no expert ranks {ep} that do not divide the {tp} x {cp} tensor and context and the data ranks of a copy",
        f"{_DIMENSIONS}.build_mesh", _experts_within_copy),
    usual("torchtitan-expert-tensor", "torchtitan.config.configs: ParallelismConfig", since="0.3"),
    usual("torchtitan-query-groups", _DECODER, since="0.3"),
    usual("torchtitan-recompute-groups", _REMAT),
    usual("torchtitan-recompute", _REMAT, "none", "selective", "full"),
    FrameworkRule("torchtitan-paired-recompute", ("ep", "schedule", "recompute"),
        "no recomputation {recompute} with {ep} expert ranks under {schedule}; none works",
        "torchtitan.distributed.dual_pipe_v: get_dual_pipe_v_flag, of 0.2", _nothing_repeated_in_pairs),
    usual("torchtitan-order", f"{_DIMENSIONS}.build_mesh", "tp-cp-ep-dp-pp"),
    usual("torchtitan-vocabulary", "torchtitan.distributed.pipeline_parallel"),
    usual("torchtitan-offload", _OFFLOAD, "none", "optimizer+parameters",
        sentence="no offload {offload}: parameters and states go together"),
    usual("torchtitan-offload-share", _OFFLOAD),
    usual("torchtitan-optimizer", "torchtitan.components.optimizer", "adam"),
    usual("torchtitan-precision", "torchtitan.components.quantization; TrainingConfig.mixed_precision_param",
        "bf16", "fp32", "fp8-current", "fp8-rowwise", "mxfp8", "nvfp4", since="0.3"),
    FrameworkRule("torchtitan-tied", ("pp",), "no {pp} pipeline stages of a model whose head shares the embedding",
        _DECODER, lambda c, x: (c["pp"] == 1) | (not x.model.tied_embeddings), since="0.3"),
    usual("torchtitan-fills", "torch.distributed.pipelining.schedules: Schedule1F1B"),
    FrameworkRule("torchtitan-rotation", ("cp", "cp_kind"),
        "no context ranks of kind {cp_kind}; all-gather and p2p work",
        "torchtitan.config.job_config: Parallelism.context_parallel_rotate_method",
        lambda c, _x: (c["cp"] == 1) | among(c, "cp_kind", ("all-gather", "p2p")), until="0.2"),
    FrameworkRule("torchtitan-norms", ("tp", "sequence_parallel"),
        "no tensor ranks {tp} without sequence parallelism: norms are always split over them",
        "torchtitan.models.llama3.infra.parallelize: apply_tp",
        lambda c, _x: (c["tp"] == 1) | (c["sequence_parallel"] == 1), until="0.2"),
    FrameworkRule("torchtitan-mixed-precision", ("tp", "pp", "zero_stage"),
        "no ZeRO stage 0 with {tp} tensor ranks and {pp} pipeline stages: mixed precision is off without full sharding",
        "torchtitan.distributed.utils: maybe_enable_amp",
        lambda c, x: (c["zero_stage"] > 0) | (c["tp"] * c["pp"] == 1) | (x.precision == "fp32"), until="0.2"),
    FrameworkRule("torchtitan-whole-experts", ("tp", "etp"), "no expert tensor size {etp}; 1 and {tp} work",
        _DIMENSIONS, lambda c, _x: (c["etp"] == 1) | (c["etp"] == c["tp"]), until="0.2"),
    FrameworkRule("torchtitan-converters", ("tp",),
        "no precision {precision}; bf16, fp32, fp8-current, fp8-rowwise and mxfp8 work",
        "torchtitan.components.quantization",
        fact(lambda x: x.precision in {"bf16", "fp32", "fp8-current", "fp8-rowwise", "mxfp8"}), until="0.2"),
)  # fmt: skip

model_lacks = lacking(
    {"experts", "latent attention", "prediction of further tokens", "norms of queries and keys"},
    {"gpt-oss-20b", "gpt-oss-120b",
     "qwen3.5-9b", "qwen3.5-27b", "qwen3.5-35b-a3b", "qwen3.5-122b-a10b", "qwen3.5-397b-a17b"},
)  # fmt: skip
"""What of a model no folder of ``torchtitan.models`` has: the code of its layers is the user's.

There are Llama 3, Qwen 3, DeepSeek-V3 and Kimi K2, whose layers take any sizes, and GPT-OSS and Qwen 3.5.
"""
