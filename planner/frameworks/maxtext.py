"""What MaxText 0.2.5 refuses to start."""

from __future__ import annotations

from typing import Final

from planner.frameworks import conditions as when
from planner.frameworks import models
from planner.frameworks.records import NO_GPUS, SHARD, FrameworkRule
from planner.frameworks.vendors import TPU

_CONFIG: Final = "maxtext.configs.types: MaxTextConfig"
_RULES: Final = "maxtext.configs: base.yml, logical_axis_rules"
_MESH: Final = "maxtext.configs: base.yml, mesh_axes"

RULES: Final = (
    FrameworkRule(
        "maxtext-device",
        ("tp",),
        "no {accelerator}, which is neither TPU nor GPU",
        f"{_CONFIG}.hardware",
        when.not_made_by(*(maker for maker in NO_GPUS if maker != TPU)),
    ),
    FrameworkRule(
        "maxtext-precision",
        ("tp",),
        "no precision {precision} on {accelerator}; bf16 works",
        f"{_CONFIG}.quantization, of which Transformer Engine's are for GPUs",
        models.quantised_by_maxtext,
    ),
    FrameworkRule(
        "maxtext-schedule",
        ("schedule",),
        "no schedule {schedule}: its loop over stages runs all forward passes first; gpipe works",
        "maxtext.layers.pipeline",
        when.scheduled("gpipe", "breadth-first"),
    ),
    FrameworkRule(
        "maxtext-layers",
        ("pp", "vpp"),
        "no uneven pipeline: {num_layers} layers over {pp} stages of {vpp} repeats",
        _CONFIG,
        when.even_layers,
    ),
    FrameworkRule(
        "maxtext-rounds",
        ("pp", "dp", "micro_batch_size"),
        "no number of micro-batches that is not a multiple of {pp} stages",
        _CONFIG,
        models.whole_rounds,
    ),
    FrameworkRule(
        "maxtext-tokens",
        ("tp", "cp", "pp", "dp", "micro_batch_size"),
        "no share of tokens per device that is not whole: {micro_batch_size} sequences over {tp} x {cp} x {pp} ranks",
        f"{_CONFIG}.per_device_batch_size",
        models.whole_tokens,
    ),
    FrameworkRule(
        "maxtext-delayed",
        ("pp", "dp", "micro_batch_size"),
        "no accumulation of micro-batches of {micro_batch_size} under delayed scaling; fp8-current works",
        _CONFIG,
        models.delayed_once,
    ),
    FrameworkRule(
        "maxtext-adapters",
        ("tp",),
        "no adapters {adapters} beside frozen weights; megatron-bridge trains them",
        "maxtext.configs: adapters are loaded, to be served",
        when.all_weights,
    ),
    FrameworkRule(
        "maxtext-model",
        ("tp",),
        "no model {model}, nor one of its shape",
        "maxtext.configs.models",
        models.of_maxtext,
    ),
    FrameworkRule(
        "maxtext-query-groups",
        ("tp",),
        "no tensor parallel size {tp} for {num_query_groups} query groups: it repeats none",
        _RULES,
        models.scatters,
    ),
    FrameworkRule(
        "maxtext-zero",
        SHARD,
        "no ZeRO stage {zero_stage} over {sharding_degree} ranks: states go over all data ranks, or parameters too",
        f"{_CONFIG}.shard_optimizer_over_data",
        models.all_or_optimizer,
    ),
    FrameworkRule(
        "maxtext-shards",
        ("cp", "ep", "zero_stage"),
        "no ZeRO stage {zero_stage} beside {cp} context and {ep} expert ranks, which hold parts of the parameters",
        _RULES,
        models.parameters_beside_ranks,
    ),
    FrameworkRule(
        "maxtext-sharding",
        ("ep", *SHARD),
        "no sharding over {sharding_degree} of {dp} x {cp} ranks: context and expert ranks come first",
        _RULES,
        models.shards_inner_ranks,
    ),
    FrameworkRule(
        "maxtext-experts",
        ("tp", "cp", "ep"),
        "no expert ranks {ep} around {tp} x {cp} tensor and context ranks: they are innermost in its mesh",
        _MESH,
        models.experts_alone,
    ),
    FrameworkRule(
        "maxtext-expert-tensor",
        ("tp", "etp"),
        "no expert tensor size {etp} other than the tensor size {tp}",
        _RULES,
        models.experts_split_like_the_rest,
    ),
    FrameworkRule(
        "maxtext-context-kind",
        ("cp", "cp_kind"),
        "no context ranks of kind {cp_kind} on GPUs; all-gather works",
        f"{_CONFIG}.context_parallel_strategy",
        when.gathered("all-gather"),
    ),
    FrameworkRule(
        "maxtext-recompute",
        ("recompute", "recompute_modules"),
        "no recomputation {recompute} of modules {recompute_modules} or of some layers; none, selective and full work",
        f"{_CONFIG}.remat_policy",
        when.whole_layers,
    ),
    FrameworkRule(
        "maxtext-recompute-groups",
        ("recompute_num_layers",),
        "no recomputation of {recompute_num_layers} layers from one stored input; 1 works",
        f"{_CONFIG}.remat_policy",
        when.one("recompute_num_layers"),
    ),
    FrameworkRule(
        "maxtext-order", ("rank_order",), "no rank order {rank_order}", _MESH, when.only("rank_order", "tp-cp-ep-dp-pp")
    ),
    FrameworkRule(
        "maxtext-vocabulary", ("vocabulary",), "no vocabulary {vocabulary}", _RULES, when.only("vocabulary", "ends")
    ),
    FrameworkRule(
        "maxtext-offload",
        ("offload",),
        "no offload {offload}, or of a share of {offload_fraction}: states go whole",
        f"{_CONFIG}.optimizer_memory_host_offload",
        models.offloads_states,
    ),
    FrameworkRule(
        "maxtext-optimizer",
        ("tp",),
        "no optimizer {optimizer}; adam works",
        f"{_CONFIG}.opt_type",
        when.known("optimizer", "adam", "sgd", "muon"),
    ),
)
