"""What PyTorch 2.13's device mesh, FSDP2 and pipelining refuse to start."""

from __future__ import annotations

from typing import Final

from planner.frameworks import conditions as when
from planner.frameworks.conditions import FSDP2, SHARD, FrameworkRule
from planner.frameworks.vendors import TPU

_SCHEDULES = "torch.distributed.pipelining.schedules: get_schedule_class"

RULES: Final = (
    FrameworkRule("pytorch-device", ("tp",),
        "no {accelerator}: PyTorch reaches TPUs through XLA alone; maxtext runs on them",
        "torch.distributed.device_mesh: init_device_mesh", when.not_made_by(TPU)),
    FrameworkRule("pytorch-schedule", ("schedule",), "no schedule {schedule}; 1f1b and interleaved-1f1b work",
        _SCHEDULES,
        when.scheduled("gpipe", "1f1b", "interleaved-1f1b", "breadth-first", "interleaved-zb", "zb-v", "dualpipe-v")),
    FrameworkRule("pytorch-v", ("vpp", "schedule"), "no schedule {schedule} with {vpp} chunks a stage; 2 work",
        _SCHEDULES, when.folded_twice),
    FrameworkRule("pytorch-fills", ("pp", "dp", "micro_batch_size", "schedule"),
        "no schedule {schedule} with fewer micro-batches than {pp} stages",
        "torch.distributed.pipelining.schedules: Schedule1F1B", when.fills("1f1b")),
    FrameworkRule("pytorch-context-kind", ("cp", "cp_kind"), "no context ranks of kind {cp_kind}; p2p works",
        "torch.distributed.tensor.experimental._attention: set_rotate_method", when.gathered("all-gather", "p2p")),
    FrameworkRule("pytorch-gradients", ("zero_stage",),
        "no ZeRO stage 1: FSDP2 shards gradients with the optimizer; 2 works", FSDP2, when.shards_gradients_too),
    FrameworkRule("pytorch-sharding", SHARD,
        "no sharding over {sharding_degree} of {dp} x {cp} ranks: context ranks come first",
        "torch.distributed.device_mesh: DeviceMesh", when.shards_context),
    FrameworkRule("pytorch-experts", ("ep",), "no expert ranks {ep}: PyTorch has no layer of experts",
        "torch.distributed.tensor.parallel", when.one("ep")),
    FrameworkRule("pytorch-expert-tensor", ("etp",), "no expert tensor size {etp}: PyTorch has no layer of experts",
        "torch.distributed.tensor.parallel", when.one("etp")),
    FrameworkRule("pytorch-recompute-groups", ("recompute_num_layers",),
        "no recomputation of {recompute_num_layers} layers from one stored input; 1 works", "torch.utils.checkpoint",
        when.one("recompute_num_layers")),
    FrameworkRule("pytorch-recompute", ("recompute", "recompute_modules"),
        "no recomputation {recompute} of modules {recompute_modules} or of some layers; full works",
        "torch.utils.checkpoint", when.all_or_nothing),
    FrameworkRule("pytorch-order", ("rank_order",), "no rank order {rank_order} in this mesh",
        "torch.distributed.device_mesh: init_device_mesh", when.only("rank_order", "tp-cp-ep-dp-pp")),
    FrameworkRule("pytorch-vocabulary", ("vocabulary",), "no vocabulary {vocabulary}",
        "torch.distributed.pipelining: PipelineStage", when.only("vocabulary", "ends")),
    FrameworkRule("pytorch-offload", ("zero_stage", "offload"),
        "no offload {offload} under ZeRO stage {zero_stage}: FSDP2 offloads what it shards, whole",
        "torch.distributed.fsdp: CPUOffloadPolicy", when.offloads_shards),
    FrameworkRule("pytorch-precision", ("tp",), "no precision {precision}; bf16 works",
        "torch.distributed.fsdp: MixedPrecisionPolicy", when.known("precision", "bf16", "fp16", "fp32")),
)  # fmt: skip
