"""What Megatron-LM, as of Megatron-Core 0.19, and Megatron-Bridge 0.6, which is built on it, refuse to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from costmodels.layer.recompute_modules import module_mask
from costmodels.model.model import Model
from planner.frameworks.conditions import (
    BEFORE_AMPERE,
    SHARD,
    Facts,
    FrameworkRule,
    fact,
    further_mechanisms,
    not_made_by,
    usual,
)
from planner.frameworks.vendors import NO_CUDA, TPU
from planner.rules.conditions import Columns, Mask, among

_ARGUMENTS: Final = "megatron.training.arguments"
_GROUPS: Final = "megatron.core.parallel_state: initialize_model_parallel"
_CONFIG: Final = "megatron.core.transformer.transformer_config: TransformerConfig.__post_init__"


def _muon_shares_all(c: Columns, x: Facts) -> Mask:
    """States of Muon go over all data ranks, gradients and parameters stay whole."""
    ranks = c["dp"] * c["cp"]
    shared = (c["zero_stage"] == 1) & (c["sharding_degree"] == ranks)
    return (x.switches.optimizer != "muon") | (ranks == 1) | shared


def _narrow_states_sharded(c: Columns, x: Facts) -> Mask:
    """Narrow master weights or moments, and states on the host, are of a sharded Adam, be it over one rank."""
    optimizer = x.switches.optimizer
    narrow = x.switches.main_params != "fp32" or optimizer in {"adam-bf16", "adam-8bit"}
    hosted = among(c, "offload", ["optimizer"])
    sharded = (c["zero_stage"] > 0) | (c["dp"] * c["cp"] == 1)
    return ~(hosted | narrow) | (sharded & optimizer.startswith("adam"))


def _mapped_experts_alike(c: Columns, x: Facts) -> Mask:
    """With the pipeline inside the data ranks, experts have as many replicas as the rest; dense models count as one."""
    expert_ranks = c["ep"] * (c["etp"] if x.model.moe else c["tp"])
    return (c["rank_order"] == 0) | (c["pp"] == 1) | (expert_ranks == c["tp"] * c["cp"])


def _expert_copies(c: Columns, x: Facts) -> Mask:
    """Copies of the sharded states divide the replicas of the experts too."""
    ranks = c["dp"] * c["cp"]
    copies = ranks // np.maximum(c["sharding_degree"], 1)
    replicas = ranks * c["tp"] // (c["ep"] * (c["etp"] if x.model.moe else c["tp"]))
    return (c["zero_stage"] == 0) | (replicas % np.maximum(copies, 1) == 0)


RULES: Final = (
    FrameworkRule("megatron-device", ("tp",), NO_CUDA, "megatron.training.initialize: initialize_megatron",
        not_made_by(TPU, "AWS")),
    usual("megatron-schedule", "megatron.core.pipeline_parallel.schedules: get_forward_backward_func",
        "1f1b", "interleaved-1f1b", "interleaved-groups"),
    usual("megatron-order", _GROUPS, "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"),
    usual("megatron-vocabulary", "megatron.core.transformer.pipeline_parallel_layer_layout"),
    usual("megatron-offload", f"{_ARGUMENTS}: validate_args", "none", "activations", "optimizer",
        sentence="no offload {offload}: parameters stay on the device"),
    usual("megatron-optimizer", f"{_ARGUMENTS}: --optimizer", "adam", "adam-bf16", "adam-8bit", "sgd", "muon"),
    FrameworkRule("megatron-muon", SHARD,
        "no optimizer {optimizer} under ZeRO stage {zero_stage} over {sharding_degree} of {dp} x {cp} ranks; stage 1 "
        "over all of them works", f"{_ARGUMENTS}: validate_args, Muon", _muon_shares_all),
    FrameworkRule("megatron-narrow-states", ("cp", "dp", "zero_stage", "offload"),
        "no optimizer {optimizer} with master weights in {main_params} and offload {offload} under ZeRO stage "
        "{zero_stage}: a sharded Adam alone has narrow or offloaded states",
        "megatron.core.optimizer.optimizer_config: OptimizerConfig.__post_init__", _narrow_states_sharded),
    usual("megatron-precision", f"{_ARGUMENTS}: --fp8-recipe",
        "bf16", "fp16", "fp32", "fp8", "fp8-current", "fp8-block", "mxfp8", "nvfp4"),
    usual("megatron-fused-loss",
        "megatron.core.model_parallel_config: ModelParallelConfig.cross_entropy_fusion_impl"),
    usual("megatron-loss", f"{_ARGUMENTS}: --cross-entropy-fusion-impl"),
    usual("megatron-context-kernel",
        "transformer_engine.pytorch.attention.dot_product_attention.utils: get_attention_backend, of 2.x"),
    FrameworkRule("megatron-mapping", ("tp", "cp", "pp", "ep", "etp", "rank_order"),
        "no rank order {rank_order} with {cp} context ranks: experts {ep} x {etp} and the rest need as many replicas",
        _GROUPS, _mapped_experts_alike),
    FrameworkRule("megatron-delayed-recompute", ("recompute_modules",),
        "no recomputation of {recompute_modules} under delayed scaling; fp8-current works", _CONFIG,
        lambda c, x: (x.precision != "fp8") | (c["recompute_modules"] & module_mask(("moe_act", "layernorm")) == 0)),
    FrameworkRule("megatron-grouped-recompute", ("recompute_modules",),
        "no recomputation of {recompute_modules} on {accelerator}, which has no kernels of grouped products", _CONFIG,
        lambda c, x: (c["recompute_modules"] & module_mask(("moe_act",)) == 0) | (x.architecture not in BEFORE_AMPERE)),
    FrameworkRule("megatron-expert-bias", ("etp",), "no expert tensor size {etp} where experts have biases; 1 works",
        _CONFIG, lambda c, x: (c["etp"] == 1) | (x.model.moe is None) | (not x.model.ffn_bias)),
    FrameworkRule("megatron-expert-copies", ("tp", "ep", "etp", *SHARD),
        "no sharding over {sharding_degree} of {dp} x {cp} ranks: the copies do not divide the replicas of experts "
        "{ep} x {etp}", _GROUPS, _expert_copies),
)  # fmt: skip

ALONE: Final = (usual("megatron-adapters", f"{_ARGUMENTS} has none"),)
"""What Megatron-LM lacks alone."""

WIDE_GRADIENTS: Final = ("bf16", "fp8", "fp8-current", "fp8-block", "mxfp8", "nvfp4")
"""Recipes of mixed precision by name that reduce gradients in fp32, all of Megatron-Bridge 0.6 but that of fp16.

A recipe's ``grad_reduce_in_fp32`` goes over that of ``ddp``, and a name has no fields to override
(``megatron.bridge.training.mixed_precision: MixedPrecisionConfig.setup``).
"""
BRIDGE: Final = (
    usual("bridge-precision", "megatron.bridge.training.mixed_precision: MixedPrecisionConfig",
        "fp16", *WIDE_GRADIENTS, sentence="no mixed precision recipe for {precision}; {works}"),
    usual("bridge-optimizer", "megatron.bridge.utils.activation_map: str_to_dtype", "adam", "adam-bf16", "sgd", "muon",
        sentence="no optimizer {optimizer}: no override says moments in 8 bits; {works}"),
    FrameworkRule("bridge-hybrid", ("tp",), "no layers by pattern; megatron-lm does",
        "megatron.bridge.models: layers of a hybrid model are the recipe's", fact(lambda x: not x.model.layer_pattern)),
)  # fmt: skip
"""What Megatron-Bridge lacks beyond ``RULES``."""


_ACTIVATIONS: Final = frozenset({"gelu", "swiglu", "squared_relu"})
POSITIONS: Final = frozenset({"learned", "rotary", "none"})
"""Kinds of positions that ``--position-embedding-type`` has, by our names; Megatron-DeepSpeed's has ALiBi too."""


def model_lacks(model: Model) -> Iterator[str]:
    """What of a model no option of Megatron-LM says: its code is the user's."""
    yield from (f"activation {model.activation}",) if model.activation not in _ACTIVATIONS else ()
    yield from (f"positions of kind {model.position}",) if model.position not in POSITIONS else ()
    lacks = {
        "factor on rotary positions (YaRN) outside latent attention": model.rotary_scaled and model.mla is None,
        "clamps of an activation other than SwiGLU": model.clamped_activation and model.activation != "swiglu",
        "norm of queries and keys over all heads together": model.qk_norm == "full",
        "attention in chunks": model.chunked_attention and model.sliding_window is not None,
        "block whose two halves run in parallel": model.parallel_block,
        "norms behind a block": model.num_norms > 2,
        "norm behind the embedding": model.embedding_norm,
        "factorised embedding": model.embedding_size is not None,
        "bias of the output head": model.head_bias,
        "localized filtering": model.localized_filtering,
        "norms without weights": not model.norm_weight,
        "biases of only some projections": model.output_bias != model.ffn_bias,
    }
    yield from (lack for lack, has in (lacks | further_mechanisms(model)).items() if has)
