"""What MaxText 0.2.5 refuses to start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from costmodels.names import SHARDED_PARAMETERS
from planner.frameworks.conditions import HOST_STATES, SHARD, Facts, FrameworkRule, fact, not_made_by, plain, usual
from planner.frameworks.vendors import NO_GPUS, TPU
from planner.rules.conditions import Columns, Mask, among, micro_batches

_CONFIG: Final = "maxtext.configs.types: MaxTextConfig"
_RULES: Final = "maxtext.configs: base.yml, logical_axis_rules"
_MESH: Final = "maxtext.configs: base.yml, mesh_axes"


_SAME: Final = (
    *("gemma-2b", "gemma-7b", "gemma2-27b", "gemma2-2b", "gemma2-9b", "gemma3-12b", "gemma3-27b", "gemma3-4b"),
    *("gpt-oss-120b", "gpt-oss-20b", "gpt3-175b", "llama2-13b", "llama2-70b", "llama2-7b", "llama3-70b", "llama3-8b"),
    *("llama3.1-405b", "mistral-7b", "mixtral-8x22b", "mixtral-8x7b", "qwen2.5-1.5b", "qwen2.5-14b", "qwen2.5-7b"),
    *("qwen3-0.6b", "qwen3-1.7b", "qwen3-14b", "qwen3-235b-a22b", "qwen3-30b-a3b", "qwen3-32b", "qwen3-4b"),
    *("qwen3-8b", "qwen3-next-80b-a3b", "qwen3.5-35b-a3b", "qwen3.5-397b-a17b"),
)
MAXTEXT: Final[Mapping[str, str]] = {
    **{name: name for name in _SAME},
    "deepseek-v2": "deepseek2-236b",
    "deepseek-v2-lite": "deepseek2-16b",
    "deepseek-v3": "deepseek3-671b",
    "gemma-4-26b-a4b": "gemma4-26b",
    "gemma-4-31b": "gemma4-31b",
    "kimi-k2": "kimi-k2-1t",
    "llama4-maverick": "llama4-17b-128e",
    "llama4-scout": "llama4-17b-16e",
    "olmo-3-32b": "olmo3-32b",
    "olmo-3-7b": "olmo3-7b",
    "qwen3-coder-480b-a35b": "qwen3-480b-a35b",
}
"""MaxText 0.2.5's names of models of the catalogue that it has with the same sizes, but for padded vocabularies.

Left out are those whose sparse attention has kernels that an exported file does not choose.
"""


def _alike(x: Facts) -> bool:
    """Layers that are all of one kind: MaxText pipelines whole cycles of others, and experts without dense layers."""
    model = x.model
    cycles = bool(model.mixer_pattern or model.sliding_window_every or model.variants)
    return not cycles and (model.moe is None or model.num_moe_layers == model.num_layers)


def _splits_sequences(x: Facts) -> bool:
    """No recurrence, whose order a balanced split breaks; under cuDNN attention to all tokens, without sinks."""
    part = bool(x.model.sliding_window_every or x.model.attention_sinks)
    return not x.model.mixer_pattern and (x.vendor == TPU or not part)


def _whole_tokens(c: Columns, x: Facts) -> Mask:
    """Each device has a whole number of tokens of what passes at once, in MaxText's own floating point."""
    at_once = np.where(c["pp"] > 1, micro_batches(c, x.global_batch_size), 1)
    together = c["micro_batch_size"] * c["dp"] * at_once
    return together / (c["tp"] * c["cp"] * c["pp"] * c["dp"]) * x.seq_length % 1.0 == 0.0


def _delayed_once(c: Columns, x: Facts) -> Mask:
    """Maxima of earlier steps go with one pass a step, or with those of a pipeline."""
    return (c["pp"] > 1) | (micro_batches(c, x.global_batch_size) == 1) | (x.precision != "fp8")


def _all_or_optimizer(c: Columns, _x: Facts) -> Mask:
    """Optimizer states over all data ranks, or parameters too; gradients alone are never sharded."""
    whole = (c["zero_stage"] == 1) & (c["sharding_degree"] == c["dp"] * c["cp"])
    return (c["zero_stage"] == 0) | whole | (c["zero_stage"] == SHARDED_PARAMETERS)


def _shards_inner_ranks(c: Columns, _x: Facts) -> Mask:
    """The ranks of a copy are the context and expert ranks and some of the data ranks, a whole number of times."""
    degree, inner = np.maximum(c["sharding_degree"], 1), c["cp"] * c["ep"]
    return (c["zero_stage"] == 0) | ((degree % inner == 0) & ((c["dp"] * c["cp"]) % degree == 0))


def _quantised(x: Facts) -> bool:
    """AQT's integers anywhere, Transformer Engine's recipes on GPUs."""
    on_gpus = {"fp8", "fp8-current", "mxfp8", "nvfp4"}
    return x.precision in {"fp32", "bf16", "int8"} or (x.vendor != TPU and x.precision in on_gpus)


RULES: Final = (
    FrameworkRule("maxtext-device", ("tp",), "no {accelerator}, which is neither TPU nor GPU", f"{_CONFIG}.hardware",
        not_made_by(*(maker for maker in NO_GPUS if maker != TPU))),
    FrameworkRule("maxtext-precision", ("tp",), "no precision {precision} on {accelerator}; bf16 works",
        f"{_CONFIG}.quantization, of which Transformer Engine's are for GPUs", fact(_quantised)),
    usual("maxtext-schedule", "maxtext.layers.pipeline", "gpipe", "breadth-first",
        sentence="no schedule {schedule}: its loop over stages runs all forward passes first; {works}"),
    usual("maxtext-layers", _CONFIG),
    FrameworkRule("maxtext-pipeline", ("pp",), "no {pp} stages of a model whose layers differ; 1 works",
        "maxtext.layers.nnx_decoders: _get_pipeline_stage_module", lambda c, x: (c["pp"] == 1) | _alike(x)),
    FrameworkRule("maxtext-window", ("cp",),
        "no {cp} context ranks on {accelerator} for windows, chunks, sinks or recurrences; 1 works",
        "maxtext.layers.attention_op: cudnn_flash_attention", lambda c, x: (c["cp"] == 1) | _splits_sequences(x)),
    FrameworkRule("maxtext-rounds", ("pp", "dp", "micro_batch_size"),
        "no number of micro-batches that is not a multiple of {pp} stages", _CONFIG,
        lambda c, x: (c["pp"] == 1) | (micro_batches(c, x.global_batch_size) % c["pp"] == 0)),
    FrameworkRule("maxtext-tokens", ("tp", "cp", "pp", "dp", "micro_batch_size"),
        "no share of tokens per device that is not whole: {micro_batch_size:g} sequences over {tp} x {cp} x {pp} ranks",
        f"{_CONFIG}.per_device_batch_size", _whole_tokens),
    FrameworkRule("maxtext-delayed", ("pp", "dp", "micro_batch_size"),
        "no accumulation of micro-batches of {micro_batch_size:g} under delayed scaling; fp8-current works", _CONFIG,
        _delayed_once),
    usual("maxtext-adapters", "maxtext.configs: adapters are loaded, to be served"),
    FrameworkRule("maxtext-model", ("tp",), "no model {model}, nor one of its shape", "maxtext.configs.models",
        fact(lambda x: plain(x.model) or x.model.name in MAXTEXT)),
    usual("maxtext-query-groups", _RULES),
    FrameworkRule("maxtext-zero", SHARD,
        "no ZeRO stage {zero_stage} over {sharding_degree} ranks: states go over all data ranks, or parameters too",
        f"{_CONFIG}.shard_optimizer_over_data", _all_or_optimizer),
    FrameworkRule("maxtext-shards", ("cp", "ep", "zero_stage"),
        "no ZeRO stage {zero_stage} with {cp} context and {ep} expert ranks, which hold parts of the parameters",
        _RULES, lambda c, _x: (c["cp"] * c["ep"] == 1) | (c["zero_stage"] == SHARDED_PARAMETERS)),
    FrameworkRule("maxtext-sharding", ("ep", *SHARD),
        "no sharding over {sharding_degree} of {dp} x {cp} ranks: context and expert ranks come first", _RULES,
        _shards_inner_ranks),
    FrameworkRule("maxtext-experts", ("tp", "cp", "ep"),
        "no expert ranks {ep} around {tp} x {cp} tensor and context ranks: they are innermost in its mesh", _MESH,
        lambda c, _x: (c["ep"] == 1) | (c["tp"] * c["cp"] == 1)),
    FrameworkRule("maxtext-expert-tensor", ("tp", "etp"), "no expert tensor size {etp} other than the tensor size {tp}",
        _RULES, lambda c, x: (x.model.moe is None) | (c["etp"] == c["tp"])),
    usual("maxtext-context-kind", f"{_CONFIG}.context_parallel_strategy", "all-gather",
        sentence="no context ranks of kind {cp_kind} on GPUs; {works}"),
    usual("maxtext-recompute", f"{_CONFIG}.remat_policy", "none", "selective", "full"),
    usual("maxtext-recompute-groups", f"{_CONFIG}.remat_policy"),
    usual("maxtext-order", _MESH, "tp-cp-ep-dp-pp"),
    usual("maxtext-vocabulary", _RULES),
    FrameworkRule("maxtext-offload", ("offload",),
        "no offload {offload}, or of a share of {offload_fraction:g}: states go whole",
        f"{_CONFIG}.optimizer_memory_host_offload", lambda c, x: (c["offload"] == 0)
        | (among(c, "offload", HOST_STATES) & (x.switches.offload_fraction >= 1))),
    usual("maxtext-optimizer", f"{_CONFIG}.opt_type", "adam", "sgd", "muon"),
)  # fmt: skip
