"""The keys of the YAML of ``accelerate launch``, as of Accelerate 1.15."""

from __future__ import annotations

from typing import Final

from planner.jobs.options import options_of

PRECISIONS: Final = {"bf16": "bf16", "fp16": "fp16", "no": "fp32", "fp8": "fp8"}
BACKENDS: Final = {"TE": "fp8", "AO": "fp8-current"}
"""What multiplies in 8 bits: Transformer Engine scales by earlier steps, TorchAO by the tensor at hand."""

SHARDING: Final = {
    **dict.fromkeys(("full_shard", "1", "true"), 3),
    **dict.fromkeys(("shard_grad_op", "2", "false"), 2),
    **dict.fromkeys(("no_shard", "3"), 0),
    **dict.fromkeys(("hybrid_shard", "4"), -3),
    **dict.fromkeys(("hybrid_shard_zero2", "_hybrid_shard_zero2", "5"), -2),
}  # fmt: skip
"""ZeRO stages by FSDP's words and their numbers; negative where every node has a copy of its own."""

OPTIONS: Final = options_of("accelerate")
"""Keys by field, in the order in which they are written; the sharding strategy is FSDP1's, and only read."""

PLUGIN: Final = {
    "zero_stage": "zero_optimization.stage",
    "offload_optimizer_device": "zero_optimization.offload_optimizer.device",
    "offload_param_device": "zero_optimization.offload_param.device",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}
"""Keys of ``deepspeed_config``, and DeepSpeed's own for them (``accelerate.utils.dataclasses: DeepSpeedPlugin``)."""
LEFT: Final = frozenset({
    "gradient_clipping", "deepspeed_config_file", "deepspeed_multinode_launcher", "deepspeed_hostfile",
    "zero3_init_flag", "zero3_save_16bit_model", "offload_optimizer_nvme_path", "offload_param_nvme_path",
    "deepspeed_moe_layer_cls_names", "deepspeed_inclusion_filter", "deepspeed_exclusion_filter",
    "seq_parallel_communication_data_type",
})  # fmt: skip
"""Keys of ``deepspeed_config`` that change no price, and the one that names a file."""
