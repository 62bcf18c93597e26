"""Conditions about the model and its cut, of frameworks that bring their own models."""

from __future__ import annotations

from typing import Final

import numpy as np

from costmodels.model.model import Model
from costmodels.names import SHARDED_PARAMETERS
from planner.frameworks.conditions import Facts
from planner.frameworks.nanotron_split import stage_layers
from planner.frameworks.vendors import TPU
from planner.request.pins import NAMED
from planner.rules.conditions import Columns, Mask

MAXTEXT: Final[frozenset[str]] = frozenset({
    "gpt-oss-120b", "gpt-oss-20b", "gpt3-175b", "llama2-13b", "llama2-70b", "llama2-7b", "llama3-70b", "llama3-8b",
    "llama3.1-405b", "mistral-7b", "mixtral-8x7b", "qwen2.5-14b", "qwen2.5-7b", "qwen3-0.6b",
    "qwen3-1.7b", "qwen3-14b", "qwen3-235b-a22b", "qwen3-30b-a3b", "qwen3-32b", "qwen3-4b", "qwen3-8b",
})  # fmt: skip
"""Models of the catalogue that MaxText 0.2.5 has under the same name and with the same sizes."""


def plain(model: Model) -> bool:
    """A dense decoder of Llama's kind: gated, root-mean-square norms, rotated, no biases in its matrices."""
    other = any((model.moe, model.mla, model.mamba, model.sliding_window, model.embedding_size, model.mtp_layers))
    biased = model.qkv_bias or model.output_bias or model.ffn_bias or model.norm_bias or model.head_bias
    own = model.parallel_block or model.layer_pattern or model.localized_filtering or model.embedding_norm
    usual = (model.norm, model.position, model.qk_norm, model.num_norms) == ("rmsnorm", "rotary", "none", 2)
    return usual and model.gated_ffn and model.norm_weight and not (other or biased or own)


def of_nanotron(c: Columns, x: Facts) -> Mask:
    """Heads of nanotron's models fill the hidden size."""
    square = x.model.num_heads * x.model.head_dim == x.model.hidden_size
    return (c["tp"] > 0) & plain(x.model) & square


def of_maxtext(c: Columns, x: Facts) -> Mask:
    return (c["tp"] > 0) & (plain(x.model) or x.model.name in MAXTEXT)


def no_bare_stage(c: Columns, x: Facts) -> Mask:
    """Nanotron's own cut leaves no stage without a layer."""
    stages = np.asarray(c["pp"])
    bare = [pp for pp in np.unique(stages).tolist() if pp > 1 and min(stage_layers(x.model, pp)) < 1]
    return ~np.isin(stages, bare)


def nearly_fills(c: Columns, x: Facts) -> Mask:
    """At least as many micro-batches as there are other stages."""
    batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
    return (c["pp"] == 1) | (batches >= c["pp"] - 1)


def whole_rounds(c: Columns, x: Facts) -> Mask:
    """Micro-batches are a multiple of the stages."""
    batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
    return (c["pp"] == 1) | (batches % c["pp"] == 0)


def whole_tokens(c: Columns, x: Facts) -> Mask:
    """Each device has a whole number of tokens of what passes at once, in MaxText's own floating point."""
    batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
    together = c["micro_batch_size"] * c["dp"] * np.where(c["pp"] > 1, batches, 1)
    return together / (c["tp"] * c["cp"] * c["pp"] * c["dp"]) * x.seq_length % 1.0 == 0.0


def delayed_once(c: Columns, x: Facts) -> Mask:
    """Maxima of earlier steps go with one pass a step, or with those of a pipeline."""
    batches = x.global_batch_size // (c["micro_batch_size"] * c["dp"])
    return (c["pp"] > 1) | (batches == 1) | (x.precision != "fp8")


def scatters(c: Columns, x: Facts) -> Mask:
    """Every tensor rank has heads of keys of its own, as many as the others."""
    return x.model.num_query_groups % c["tp"] == 0


def all_or_optimizer(c: Columns, _x: Facts) -> Mask:
    """Optimizer states over all data ranks, or parameters too; gradients alone are never sharded."""
    whole = (c["zero_stage"] == 1) & (c["sharding_degree"] == c["dp"] * c["cp"])
    return (c["zero_stage"] == 0) | whole | (c["zero_stage"] == SHARDED_PARAMETERS)


def parameters_beside_ranks(c: Columns, _x: Facts) -> Mask:
    """Context and expert ranks hold parts of the parameters."""
    return (c["cp"] * c["ep"] == 1) | (c["zero_stage"] == SHARDED_PARAMETERS)


def shards_inner_ranks(c: Columns, _x: Facts) -> Mask:
    """The ranks of a copy are the context and expert ranks and some of the data ranks, a whole number of times."""
    degree, inner = np.maximum(c["sharding_degree"], 1), c["cp"] * c["ep"]
    return (c["zero_stage"] == 0) | ((degree % inner == 0) & ((c["dp"] * c["cp"]) % degree == 0))


def quantised_by_maxtext(c: Columns, x: Facts) -> Mask:
    """AQT's integers anywhere, Transformer Engine's recipes on GPUs."""
    known = {"fp32", "bf16", "int8"} | (set() if x.vendor == TPU else {"fp8", "fp8-current", "mxfp8", "nvfp4"})
    return (c["tp"] > 0) & (x.precision in known)


def experts_alone(c: Columns, _x: Facts) -> Mask:
    return (c["ep"] == 1) | (c["tp"] * c["cp"] == 1)


def experts_split_like_the_rest(c: Columns, x: Facts) -> Mask:
    return (x.model.moe is None) | (c["etp"] == c["tp"])


def offloads_states(c: Columns, x: Facts) -> Mask:
    host = [NAMED["offload"].index(name) for name in ("optimizer", "optimizer+parameters")]
    return (c["offload"] == 0) | (np.isin(c["offload"], host) & (x.offload_fraction >= 1))
