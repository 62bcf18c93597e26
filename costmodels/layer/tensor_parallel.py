"""What tensor ranks exchange in a layer, and what of it stays exposed.

Where Transformer Engine's user buffers exchange in rings, gathers in front of a product travel from rank to rank while
the pieces that have come are multiplied; scatters behind a product travel piece by piece as well, and what came is
added up at the end. In the backward pass the inputs are gathered once more behind the product of their gradient, and
that gradient is scattered behind the weights' (``CommOverlapP2PBase::split_overlap_ag`` and ``split_overlap_rs``,
``CommOverlapBase::bulk_overlap`` of comm_gemm_overlap.cpp [TE]; ``tp_comm_overlap`` of NVIDIA's recipes).
"""

from __future__ import annotations

import numpy as np

from costmodels.arrays import Number
from costmodels.layer.forward_backward import Passes, tokens_per_rank, transpose_seconds
from costmodels.layout.placement import group_of
from costmodels.model.layer_kinds import DENSE, Kind
from costmodels.names import WORD
from costmodels.primitives.collectives import all_reduce_seconds, gather_seconds
from costmodels.primitives.kernels import matmul_seconds
from costmodels.primitives.overlap import pipelined_exposed, shared_units
from costmodels.scenario import Scenario
from costmodels.strategy import DENSE_AXES, Floats, Strategies, of_axes

UNITS = {"attention": (4, 24), "dense": (2, 4)}
"""Compute units of the backward pass's gather and scatter at the entrance of a part (``num_sm`` of ``qkv_dgrad`` and
``qkv_wgrad``, ``fc1_dgrad`` and ``fc1_wgrad`` in Megatron-Bridge's training/comm_overlap.py): of Llama 3 70B on H100,
taken for all; GPT-3 has 4 for the 24, others differ by 2 to 8."""
MOST = 0.5
"""Share of a device's units that a collective takes at the most: recipes are of GPUs with 132 units and more."""


@of_axes(*DENSE_AXES)
def tensor_parallel(strategies: Strategies, scenario: Scenario, kind: Kind = DENSE) -> Passes:
    """Exposed tensor-parallel seconds of one layer.

    An all-reduce of the activations forward and one backward for each of its parts, one each with a parallel
    block; with sequence parallelism each is a reduce-scatter and an all-gather, and the backward gathers the
    inputs once more behind the data gradient [Korthikanti22].
    """
    stack, parts = scenario.stack, exchanging_parts(kind, scenario)
    split, summing = strategies.sequence_parallel > 0, _summing(strategies, scenario)
    size = hidden_bytes(strategies, scenario)
    if stack.exchange.fp8_tensor_gather and scenario.recipe.reduced:
        size = size * scenario.recipe.word / WORD
    gathering = gather_seconds(size, group_of(strategies, "tp"), scenario.group.tiers) + transpose_seconds(
        size, scenario
    )
    gathering = np.where(split, gathering, 0.0)
    again = 1.0 if stack.exchange.keeps_gathered_inputs else 2.0
    further = np.where(split & stack.exchange.norm_gathers, 0.0, summing)
    backward = (summing + again * gathering) * parts + input_reductions(kind, scenario) * further
    exposed = Passes((summing + gathering) * parts * stack.overlap.tp_forward, backward * stack.overlap.tp_backward)
    if ringed := ringed_parts(scenario, kind):
        others = (1.0 - len(ringed) / max(parts, len(ringed))) * exposed
        exposed = sum((_ringed(strategies, scenario, part) for part in ringed), others).where(split, exposed)
    return (strategies.tp > 1) / stack.calibrated.reached("tensor") * exposed


def hidden_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes of the hidden states of a micro-batch before tensor ranks split them, (N,)."""
    return WORD * tokens_per_rank(strategies, scenario) * scenario.model.hidden_size


@of_axes(*DENSE_AXES)
def reducing_seconds(strategies: Strategies, scenario: Scenario) -> Floats:
    """Seconds to add up hidden states over the tensor ranks, (N,): a scatter under sequence parallelism."""
    size, group, tiers = hidden_bytes(strategies, scenario), group_of(strategies, "tp"), scenario.group.tiers
    whole = all_reduce_seconds(size, group, tiers)
    return np.where(strategies.sequence_parallel > 0, gather_seconds(size, group, tiers), whole)


def _summing(strategies: Strategies, scenario: Scenario) -> Floats:
    """Seconds to add up what a part of a layer returns, (N,)."""
    turning = transpose_seconds(hidden_bytes(strategies, scenario), scenario)
    return reducing_seconds(strategies, scenario) + np.where(strategies.sequence_parallel > 0, turning, 0.0)


def exposed_summing(strategies: Strategies, scenario: Scenario) -> Floats:
    """Exposed forward seconds of adding up a part's outputs over the tensor ranks, as in ``tensor_parallel``, (N,)."""
    stack, summing = scenario.stack, _summing(strategies, scenario) * (strategies.tp > 1)
    return summing * stack.overlap.tp_forward / stack.calibrated.reached("tensor")


def exchanging_parts(kind: Kind, scenario: Scenario) -> float:
    """Parts of a layer whose outputs the tensor ranks sum up; one of two side by side.

    Routed experts take the tokens of their own rank: nothing is gathered for them, unless for shared ones.
    """
    moe = scenario.model.moe
    parts = 1.0 if scenario.model.parallel_block else float(kind.parts)
    alone = kind.ffn == "experts" and moe is not None and not moe.num_shared_experts
    return parts - 1.0 if alone else parts


def input_reductions(kind: Kind, scenario: Scenario) -> float:
    """Further reductions of input gradients in a layer's backward pass.

    Products of one input whose outputs are split sum their parts of its gradient over the tensor ranks: once where
    they are one product or share the input's copy, each for itself where every layer class reduces its own, or where
    branches side by side have a norm each.
    """
    apart, model = scenario.stack.exchange.separate_reductions, scenario.model
    further = 2.0 if "qkv" in apart and kind.attends else 0.0
    further += float(scenario.stack.kernels.separate_branches and model.parallel_block and kind.parts > 1)
    return further + float("gate" in apart and kind.ffn == "dense" and model.gated_ffn)


def ringed_parts(scenario: Scenario, kind: Kind) -> tuple[str, ...]:
    """The parts of a layer that user buffers exchange in rings: attention, and a dense feed-forward network.

    Recipes in 16 bits, and earlier ones in 8, pipeline their scatters in compute units of their own; these keep the
    shares of their stack. User buffers carry no NVFP4 (``fill_userbuffers_buffer_for_all_gather`` [TE]).
    """
    model, recipe = scenario.model, scenario.recipe
    rings = scenario.stack.switches.tp_overlap_rings and recipe.reduced and recipe.arithmetic != "nvfp4"
    if not rings or model.parallel_block or not kind.attends or model.mla is not None:
        return ()
    return ("attention", "dense") if kind.ffn == "dense" else ("attention",)


def _ringed(strategies: Strategies, scenario: Scenario, part: str) -> Passes:
    """Exposed seconds of a part of a layer under sequence parallelism, (N,)."""
    tokens, h = tokens_per_rank(strategies, scenario), float(scenario.model.hidden_size)
    group, tiers = group_of(strategies, "tp"), scenario.group.tiers
    size = hidden_bytes(strategies, scenario)
    whole, thin = (gather_seconds(one, group, tiers) for one in (size, size * scenario.recipe.word / WORD))
    ranks = np.maximum(strategies.tp.astype(np.float64), 2.0)
    into, out_of = _widths(strategies, scenario, part)
    gathering, scattering = (share_of_units(units, scenario) for units in UNITS[part])
    adding = scenario.rates.stream_seconds(size * (1.0 + 1.0 / ranks))
    forward = pipelined_exposed(thin, _seconds(tokens, into, h, scenario), ranks)
    forward = forward + pipelined_exposed(whole, _seconds(tokens, h, out_of, scenario), ranks) + adding
    backward = pipelined_exposed(thin, _seconds(tokens, out_of, h, scenario), ranks)
    backward = backward + shared_units(thin, _seconds(tokens, h, into, scenario), gathering)
    return Passes(forward, backward + shared_units(whole, _seconds(into, h, tokens, scenario), scattering))


def share_of_units(units: int, scenario: Scenario) -> float:
    """Share of a device's compute units that a collective in so many takes."""
    return min(units / scenario.group.accelerator.compute_units, MOST)


def _widths(strategies: Strategies, scenario: Scenario, part: str) -> tuple[Floats, Floats]:
    """Widths on a rank, (N,): what a part's first product returns, and what its last one takes."""
    model, t = scenario.model, strategies.tp.astype(np.float64)
    if part == "attention":
        keys = model.head_dim * np.maximum(model.num_query_groups / t, 1.0)
        return model.attention_width / t + 2.0 * keys, model.attention_width / t
    return model.ffn_branches * model.ffn_hidden_size / t, model.ffn_hidden_size / t


def _seconds(m: Number, n: Number, k: Number, scenario: Scenario) -> Floats:
    """A product of the layers, [m, k] by [k, n]."""
    rates = scenario.rates
    return matmul_seconds(m=m, n=n, k=k, fit=rates.matmul, peak=rates.matmul_peak, bandwidth=rates.bandwidth)
