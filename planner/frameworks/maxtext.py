"""What MaxText 0.2.5 refuses to start."""

from __future__ import annotations

from typing import Final

import numpy as np

from costmodels.names import SHARDED_PARAMETERS, VALUE_NAMES
from planner.frameworks import conditions as when
from planner.frameworks.conditions import SHARD, Facts, FrameworkRule
from planner.frameworks.vendors import NO_GPUS, TPU
from planner.rules.conditions import Columns, Mask

_CONFIG: Final = "maxtext.configs.types: MaxTextConfig"
_RULES: Final = "maxtext.configs: base.yml, logical_axis_rules"
_MESH: Final = "maxtext.configs: base.yml, mesh_axes"


MAXTEXT: Final[frozenset[str]] = frozenset({
    "gpt-oss-120b", "gpt-oss-20b", "gpt3-175b", "llama2-13b", "llama2-70b", "llama2-7b", "llama3-70b", "llama3-8b",
    "llama3.1-405b", "mistral-7b", "mixtral-8x7b", "qwen2.5-14b", "qwen2.5-7b", "qwen3-0.6b",
    "qwen3-1.7b", "qwen3-14b", "qwen3-235b-a22b", "qwen3-30b-a3b", "qwen3-32b", "qwen3-4b", "qwen3-8b",
})  # fmt: skip
"""Models of the catalogue that MaxText 0.2.5 has under the same name and with the same sizes."""


def _of_maxtext(c: Columns, x: Facts) -> Mask:
    return (c["tp"] > 0) & (when.plain(x.model) or x.model.name in MAXTEXT)


def _whole_rounds(c: Columns, x: Facts) -> Mask:
    """Micro-batches are a multiple of the stages."""
    batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
    return (c["pp"] == 1) | (batches % c["pp"] == 0)


def _whole_tokens(c: Columns, x: Facts) -> Mask:
    """Each device has a whole number of tokens of what passes at once, in MaxText's own floating point."""
    batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
    together = c["micro_batch_size"] * c["dp"] * np.where(c["pp"] > 1, batches, 1)
    return together / (c["tp"] * c["cp"] * c["pp"] * c["dp"]) * x.seq_length % 1.0 == 0.0


def _delayed_once(c: Columns, x: Facts) -> Mask:
    """Maxima of earlier steps go with one pass a step, or with those of a pipeline."""
    batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
    return (c["pp"] > 1) | (batches == 1) | (x.precision != "fp8")


def _all_or_optimizer(c: Columns, _x: Facts) -> Mask:
    """Optimizer states over all data ranks, or parameters too; gradients alone are never sharded."""
    whole = (c["zero_stage"] == 1) & (c["sharding_degree"] == c["dp"] * c["cp"])
    return (c["zero_stage"] == 0) | whole | (c["zero_stage"] == SHARDED_PARAMETERS)


def _parameters_beside_ranks(c: Columns, _x: Facts) -> Mask:
    """Context and expert ranks hold parts of the parameters."""
    return (c["cp"] * c["ep"] == 1) | (c["zero_stage"] == SHARDED_PARAMETERS)


def _shards_inner_ranks(c: Columns, _x: Facts) -> Mask:
    """The ranks of a copy are the context and expert ranks and some of the data ranks, a whole number of times."""
    degree, inner = np.maximum(c["sharding_degree"], 1), c["cp"] * c["ep"]
    return (c["zero_stage"] == 0) | ((degree % inner == 0) & ((c["dp"] * c["cp"]) % degree == 0))


def _quantised_by_maxtext(c: Columns, x: Facts) -> Mask:
    """AQT's integers anywhere, Transformer Engine's recipes on GPUs."""
    known = {"fp32", "bf16", "int8"} | (set() if x.vendor == TPU else {"fp8", "fp8-current", "mxfp8", "nvfp4"})
    return (c["tp"] > 0) & (x.precision in known)


def _experts_alone(c: Columns, _x: Facts) -> Mask:
    return (c["ep"] == 1) | (c["tp"] * c["cp"] == 1)


def _experts_split_like_the_rest(c: Columns, x: Facts) -> Mask:
    return (x.model.moe is None) | (c["etp"] == c["tp"])


def _offloads_states(c: Columns, x: Facts) -> Mask:
    host = [VALUE_NAMES["offload"].index(name) for name in ("optimizer", "optimizer+parameters")]
    return (c["offload"] == 0) | (np.isin(c["offload"], host) & (x.offload_fraction >= 1))


RULES: Final = (
    FrameworkRule("maxtext-device", ("tp",), "no {accelerator}, which is neither TPU nor GPU", f"{_CONFIG}.hardware",
        when.not_made_by(*(maker for maker in NO_GPUS if maker != TPU))),
    FrameworkRule("maxtext-precision", ("tp",), "no precision {precision} on {accelerator}; bf16 works",
        f"{_CONFIG}.quantization, of which Transformer Engine's are for GPUs", _quantised_by_maxtext),
    FrameworkRule("maxtext-schedule", ("schedule",),
        "no schedule {schedule}: its loop over stages runs all forward passes first; gpipe works",
        "maxtext.layers.pipeline", when.scheduled("gpipe", "breadth-first")),
    FrameworkRule("maxtext-layers", ("pp", "vpp"),
        "no uneven pipeline: {num_layers} layers over {pp} stages of {vpp} repeats", _CONFIG, when.even_layers),
    FrameworkRule("maxtext-rounds", ("pp", "dp", "micro_batch_size"),
        "no number of micro-batches that is not a multiple of {pp} stages", _CONFIG, _whole_rounds),
    FrameworkRule("maxtext-tokens", ("tp", "cp", "pp", "dp", "micro_batch_size"),
        "no share of tokens per device that is not whole: {micro_batch_size} sequences over {tp} x {cp} x {pp} ranks",
        f"{_CONFIG}.per_device_batch_size", _whole_tokens),
    FrameworkRule("maxtext-delayed", ("pp", "dp", "micro_batch_size"),
        "no accumulation of micro-batches of {micro_batch_size} under delayed scaling; fp8-current works", _CONFIG,
        _delayed_once),
    FrameworkRule("maxtext-adapters", ("tp",),
        "no adapters {adapters} beside frozen weights; megatron-bridge trains them",
        "maxtext.configs: adapters are loaded, to be served", when.all_weights),
    FrameworkRule("maxtext-model", ("tp",), "no model {model}, nor one of its shape", "maxtext.configs.models",
        _of_maxtext),
    FrameworkRule("maxtext-query-groups", ("tp",),
        "no tensor parallel size {tp} for {num_query_groups} query groups: it repeats none", _RULES, when.scatters),
    FrameworkRule("maxtext-zero", SHARD,
        "no ZeRO stage {zero_stage} over {sharding_degree} ranks: states go over all data ranks, or parameters too",
        f"{_CONFIG}.shard_optimizer_over_data", _all_or_optimizer),
    FrameworkRule("maxtext-shards", ("cp", "ep", "zero_stage"),
        "no ZeRO stage {zero_stage} beside {cp} context and {ep} expert ranks, which hold parts of the parameters",
        _RULES, _parameters_beside_ranks),
    FrameworkRule("maxtext-sharding", ("ep", *SHARD),
        "no sharding over {sharding_degree} of {dp} x {cp} ranks: context and expert ranks come first", _RULES,
        _shards_inner_ranks),
    FrameworkRule("maxtext-experts", ("tp", "cp", "ep"),
        "no expert ranks {ep} around {tp} x {cp} tensor and context ranks: they are innermost in its mesh", _MESH,
        _experts_alone),
    FrameworkRule("maxtext-expert-tensor", ("tp", "etp"), "no expert tensor size {etp} other than the tensor size {tp}",
        _RULES, _experts_split_like_the_rest),
    FrameworkRule("maxtext-context-kind", ("cp", "cp_kind"),
        "no context ranks of kind {cp_kind} on GPUs; all-gather works", f"{_CONFIG}.context_parallel_strategy",
        when.gathered("all-gather")),
    FrameworkRule("maxtext-recompute", ("recompute", "recompute_modules"),
        "no recomputation {recompute} of modules {recompute_modules} or of some layers; none, selective and full work",
        f"{_CONFIG}.remat_policy", when.whole_layers),
    FrameworkRule("maxtext-recompute-groups", ("recompute_num_layers",),
        "no recomputation of {recompute_num_layers} layers from one stored input; 1 works", f"{_CONFIG}.remat_policy",
        when.one("recompute_num_layers")),
    FrameworkRule("maxtext-order", ("rank_order",), "no rank order {rank_order}", _MESH,
        when.only("rank_order", "tp-cp-ep-dp-pp")),
    FrameworkRule("maxtext-vocabulary", ("vocabulary",), "no vocabulary {vocabulary}", _RULES,
        when.only("vocabulary", "ends")),
    FrameworkRule("maxtext-offload", ("offload",),
        "no offload {offload}, or of a share of {offload_fraction}: states go whole",
        f"{_CONFIG}.optimizer_memory_host_offload", _offloads_states),
    FrameworkRule("maxtext-optimizer", ("tp",), "no optimizer {optimizer}; adam works", f"{_CONFIG}.opt_type",
        when.known("optimizer", "adam", "sgd", "muon")),
)  # fmt: skip
