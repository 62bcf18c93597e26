"""What Hugging Face Accelerate 1.15, with FSDP2, refuses to start."""

from __future__ import annotations

from typing import Final

import numpy as np

from planner.frameworks.conditions import FSDP2, SHARD, Facts, FrameworkRule, not_made_by, one, usual
from planner.frameworks.vendors import NO_TORCH, TPU
from planner.rules.conditions import Columns, Mask

_CONFIG: Final = "accelerate.parallelism_config: ParallelismConfig"
_MESH: Final = "accelerate.parallelism_config: dp_shard_cp_dim_names"
_PLUGIN: Final = "accelerate.utils.dataclasses: FullyShardedDataParallelPlugin"


def _replicas_share(c: Columns, _x: Facts) -> Mask:
    """Replicas together with tensor or context ranks have data ranks that share a copy."""
    copies = np.where(c["zero_stage"] == 0, 1, np.maximum(c["sharding_degree"] // c["cp"], 1))
    return (c["tp"] * c["cp"] == 1) | (copies > 1) | (c["dp"] == 1)


RULES: Final = (
    FrameworkRule("accelerate-device", ("tp",), NO_TORCH,
        "accelerate.state: DistributedType.XLA, which is neither FSDP nor MULTI_GPU", not_made_by(TPU)),
    FrameworkRule("accelerate-pipeline", ("pp",), "no pipeline; pp is {pp}", _CONFIG, one("pp")),
    usual("accelerate-frozen", "transformers.distributed.tensor_parallel: ColwiseParallel.shard_param"),
    usual("accelerate-experts", _CONFIG),
    usual("accelerate-expert-tensor", _CONFIG),
    usual("accelerate-gradients", FSDP2),
    FrameworkRule("accelerate-shards", SHARD, "no ZeRO stage {zero_stage} over one rank", FSDP2,
        lambda c, _x: (c["zero_stage"] == 0) | (c["dp"] * c["cp"] > 1)),
    FrameworkRule("accelerate-bytes", ("zero_stage",),
        "no ZeRO stage {zero_stage} over frozen weights in int8, whose scales FSDP2 drops; 0 works, so does nf4",
        "accelerate.utils.fsdp_utils: fsdp2_prepare_model",
        lambda c, x: (c["zero_stage"] == 0) | (x.switches.base_precision != "int8")),
    usual("accelerate-sharding", _MESH),
    usual("accelerate-context-shards", _MESH),
    FrameworkRule("accelerate-replicas", ("tp", *SHARD),
        "no {dp} replicas with {tp} x {cp} tensor and context ranks unless data ranks share a copy",
        f"{_CONFIG}.__post_init__", _replicas_share),
    usual("accelerate-context-kind", "accelerate.utils.dataclasses: TorchContextParallelConfig", "p2p", "all-gather"),
    usual("accelerate-recompute-groups",
        "accelerate.utils.FullyShardedDataParallelPlugin: activation_checkpointing"),
    usual("accelerate-recompute", _PLUGIN, "none", "full"),
    usual("accelerate-order", "accelerate.parallelism_config: _get_mesh", "tp-cp-ep-dp-pp"),
    usual("accelerate-offload", _PLUGIN, "none", "optimizer+parameters",
        sentence="no offload {offload}: parameters and states go together"),
    usual("accelerate-offload-share", _PLUGIN),
    usual("accelerate-offload-shards", FSDP2),
    usual("accelerate-precision", "accelerate.utils.dataclasses: PrecisionType",
        "bf16", "fp16", "fp32", "fp8", "fp8-current", "fp8-rowwise"),
)  # fmt: skip

OWN_CODE: Final = (
    FrameworkRule("accelerate-own-context", ("cp",),
        "no {cp} context ranks but in a training loop that splits sequences over them (maybe_context_parallel)",
        "accelerate.accelerator: maybe_context_parallel", one("cp")),
)  # fmt: skip
