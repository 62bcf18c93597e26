"""What Transformer Engine's user buffers leave of tensor-parallel traffic in the open, where they exchange in rings.

Gathers in front of a product travel from rank to rank while the pieces that have come are multiplied; scatters behind
a product travel piece by piece as well, and what came is added up at the end. In the backward pass the inputs are
gathered once more behind the product of their gradient, and that gradient is scattered behind the weights'
(``CommOverlapP2PBase::split_overlap_ag`` and ``split_overlap_rs``, ``CommOverlapBase::bulk_overlap`` of
comm_gemm_overlap.cpp [TE]; ``tp_comm_overlap`` of NVIDIA's recipes).
"""

from __future__ import annotations

import numpy as np

from costmodels.arrays import Number
from costmodels.layer.forward_backward import Passes, tokens_per_rank
from costmodels.layout.placement import group_of
from costmodels.model.layer_kinds import Kind
from costmodels.names import WORD
from costmodels.primitives.collectives import gather_seconds
from costmodels.primitives.kernels import matmul_seconds, stream_seconds
from costmodels.primitives.overlap import pieces_left, shared_units
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Strategies

UNITS = {"attention": (4, 24), "dense": (2, 4)}
"""Compute units of the backward pass's gather and scatter at the entrance of a part (``num_sm`` of ``qkv_dgrad`` and
``qkv_wgrad``, ``fc1_dgrad`` and ``fc1_wgrad`` in Megatron-Bridge's training/comm_overlap.py): of Llama 3 70B on H100,
taken for all; GPT-3 has 4 for the 24, others differ by 2 to 8."""
MOST = 0.5
"""Share of a device's units that a collective takes at the most: recipes are of GPUs with 132 units and more."""


def served(scenario: Scenario, kind: Kind) -> tuple[str, ...]:
    """The parts of a layer whose traffic is counted here: attention, and a dense feed-forward network.

    Recipes in 16 bits, and earlier ones in 8, pipeline their scatters in compute units of their own; these keep the
    shares of their stack. User buffers carry no NVFP4 (``fill_userbuffers_buffer_for_all_gather`` [TE]).
    """
    model = scenario.model
    rings = (
        scenario.stack.switches.tp_overlap_rings and scenario.recipe.reduced and scenario.recipe.arithmetic != "nvfp4"
    )
    if not rings or model.parallel_block or not kind.attends or model.mla is not None:
        return ()
    return ("attention", "dense") if kind.ffn == "dense" else ("attention",)


def left_open(rows: Strategies, scenario: Scenario, parts: tuple[str, ...]) -> Passes:
    """Exposed seconds of parts of a layer under sequence parallelism, (N,)."""
    nothing = Passes(np.zeros(len(rows)), np.zeros(len(rows)))
    return sum((_part(rows, scenario, part) for part in parts), nothing)


def _part(rows: Strategies, scenario: Scenario, part: str) -> Passes:
    tokens, h = tokens_per_rank(rows, scenario), float(scenario.model.hidden_size)
    group, tiers = group_of(rows, "tp"), scenario.group.tiers
    size = WORD * tokens * h
    whole, thin = (gather_seconds(one, group, tiers) for one in (size, size * scenario.recipe.word / WORD))
    ranks = np.maximum(rows.tp.astype(np.float64), 2.0)
    into, out_of = _widths(rows, scenario, part)
    gathering, scattering = UNITS[part]
    adding = stream_seconds(
        traffic=size * (1.0 + 1.0 / ranks), share=scenario.rates.stream, bandwidth=scenario.rates.bandwidth
    )
    forward = pieces_left(thin, _seconds(tokens, into, h, scenario), ranks)
    forward = forward + pieces_left(whole, _seconds(tokens, h, out_of, scenario), ranks) + adding
    backward = pieces_left(thin, _seconds(tokens, out_of, h, scenario), ranks)
    backward = backward + shared_units(thin, _seconds(tokens, h, into, scenario), share_of_units(gathering, scenario))
    weights = _seconds(into, h, tokens, scenario)
    return Passes(forward, backward + shared_units(whole, weights, share_of_units(scattering, scenario)))


def share_of_units(units: int, scenario: Scenario) -> float:
    """Share of a device's compute units that a collective in so many takes."""
    return min(units / scenario.group.accelerator.compute_units, MOST)


def _widths(rows: Strategies, scenario: Scenario, part: str) -> tuple[Floats, Floats]:
    """Widths on a rank, (N,): what a part's first product returns, and what its last one takes."""
    model, t = scenario.model, rows.tp.astype(np.float64)
    if part == "attention":
        keys = model.head_dim * np.maximum(model.num_query_groups / t, 1.0)
        return model.attention_width / t + 2.0 * keys, model.attention_width / t
    return model.ffn_branches * model.ffn_hidden_size / t, model.ffn_hidden_size / t


def _seconds(m: Number, n: Number, k: Number, scenario: Scenario) -> Floats:
    """A product of the layers, [m, k] by [k, n]."""
    rates = scenario.rates
    return matmul_seconds(m=m, n=n, k=k, fit=rates.matmul, peak=rates.matmul_peak, bandwidth=rates.bandwidth)
