"""What PyTorch 2.13's device mesh, FSDP2 and pipelining refuse to start."""

from __future__ import annotations

from typing import Final

from planner.frameworks.conditions import FSDP2, Facts, FrameworkRule, not_made_by, usual
from planner.frameworks.vendors import NO_TORCH, TPU
from planner.rules.conditions import Columns, Mask, among

_SCHEDULES: Final = "torch.distributed.pipelining.schedules: get_schedule_class"
_MESH: Final = "torch.distributed.device_mesh: init_device_mesh"
_LAYERS: Final = "torch.distributed.tensor.parallel"


def _offloads_shards(c: Columns, x: Facts) -> Mask:
    whole = among(c, "offload", ["optimizer+parameters"]) & (x.switches.offload_fraction >= 1)
    return (c["offload"] == 0) | (whole & (c["zero_stage"] > 0))


RULES: Final = (
    FrameworkRule("pytorch-device", ("tp",), NO_TORCH, _MESH, not_made_by(TPU)),
    usual("pytorch-schedule", _SCHEDULES,
        "gpipe", "1f1b", "interleaved-1f1b", "breadth-first", "interleaved-zb", "zb-v", "dualpipe-v"),
    usual("pytorch-v", _SCHEDULES),
    usual("pytorch-fills", "torch.distributed.pipelining.schedules: Schedule1F1B"),
    usual("pytorch-context-kind", "torch.distributed.tensor.experimental._attention: set_rotate_method",
        "p2p", "all-gather"),
    usual("pytorch-gradients", FSDP2),
    usual("pytorch-sharding", "torch.distributed.device_mesh: DeviceMesh"),
    usual("pytorch-experts", _LAYERS, sentence="no expert ranks {ep}: PyTorch has no layer of experts"),
    usual("pytorch-expert-tensor", _LAYERS, sentence="no expert tensor size {etp}: PyTorch has no layer of experts"),
    usual("pytorch-recompute-groups", "torch.utils.checkpoint"),
    usual("pytorch-recompute", "torch.utils.checkpoint", "none", "full"),
    usual("pytorch-order", _MESH, "tp-cp-ep-dp-pp"),
    usual("pytorch-vocabulary", "torch.distributed.pipelining: PipelineStage"),
    FrameworkRule("pytorch-offload", ("zero_stage", "offload"),
        "no offload {offload} under ZeRO stage {zero_stage}: FSDP2 offloads what it shards, whole",
        "torch.distributed.fsdp: CPUOffloadPolicy", _offloads_shards),
    usual("pytorch-precision", "torch.distributed.fsdp: MixedPrecisionPolicy", "bf16", "fp16", "fp32"),
)  # fmt: skip
