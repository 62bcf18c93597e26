"""Bytes through memory between the products of experts: permutation, activation, biases, padding and quantisation.

Per token that arrives at an expert, h its width and f the inner width of the expert on this rank. What the kernels
do is read off Megatron-Core's `TEGroupedMLP` and token dispatchers [MegatronMoE26]; every pass that one kernel makes
over a value counts its bytes once.
"""

from __future__ import annotations

import numpy as np

from costmodels.names import WORD
from costmodels.scenario import Scenario
from costmodels.strategy import Floats

PERMUTE = 4.0 * WORD
"""Bytes per value to gather tokens by expert and to put them back: two kernels that read and write."""
SORT = 4.0 * WORD
"""Bytes per value to sort by expert what a plain all-to-all delivers by sender, there and back."""
PAD = 4.0 * WORD
"""Padding every expert's rows to the multiple that reduced precision needs, and taking the padding off; dispatchers
that send a token once per domain (DeepEP, HybridEP) pad while they permute, and a fixed capacity is such a multiple."""
BIAS = (28.0, 36.0)
"""A bias scaled by the router's fp32 weight: outer product, sum, concatenation and cast, and their gradients."""
ACTIVATION = {True: (6.0, 10.0), False: (4.0, 6.0)}
"""An activation, gated or not: what enters it is read, what leaves it written, and their gradients."""
CLAMP = (16.0, 20.0)
"""Clamping both branches of a gated activation on the way in and putting them together again."""


def copied_traffic(scenario: Scenario, *, arrived: Floats, held: Floats) -> Floats:
    """Bytes of either pass that rows take from one place to another in the order they have, array (N,).

    Sorting what a plain all-to-all delivered moves the rows that one sender has for one expert together, padding an
    expert's rows all of them: Transformer Engine's kernels for both copy whole rows (``_sort_chunks_by_map_kernel``,
    ``multi_padding_kernel``; v2.6 to v2.9), and gather nothing. Arguments as of ``routed_traffic``.
    """
    stack = scenario.stack
    if scenario.fused_experts or stack.switches.expert_capacity or stack.switches.dispatcher != "alltoall":
        return np.zeros_like(arrived)
    moved = SORT * (held > 1) + (PAD if scenario.recipe.reduced else 0.0)
    return np.asarray(arrived * moved * float(scenario.model.expert_hidden_size))


def _second_sort(scenario: Scenario, held: Floats) -> Floats:
    """Bytes per value of a second sort that is no copy of rows, (N,).

    With a capacity Megatron-Core turns [ranks, experts, places, h] with PyTorch's copy of single values, which is taken
    to be as slow as gathering.
    """
    stack = scenario.stack
    apart = scenario.fused_experts or stack.switches.expert_capacity is not None
    return np.asarray((held > 1) * (SORT * (apart and stack.switches.dispatcher == "alltoall")), dtype=np.float64)


def routed_traffic(scenario: Scenario, *, arrived: Floats, inner: Floats, held: Floats) -> tuple[Floats, Floats]:
    """Bytes of the forward and of the backward pass that scattered rows and activations take, arrays (N,).

    Args:
        scenario: model, stack and precision.
        arrived: tokens that the experts of a rank compute.
        inner: inner width of one expert on a rank.
        held: experts of a rank.
    """
    model, h = scenario.model, float(scenario.model.expert_hidden_size)
    forward, backward = ACTIVATION[model.gated_ffn]
    permuted = (PERMUTE + _second_sort(scenario, held)) * h
    once, again = permuted + forward * inner, permuted + backward * inner
    if scenario.fused_experts:
        return arrived * once, arrived * again
    if model.ffn_bias:
        once, again = once + BIAS[0] * h, again + BIAS[1] * h
    if model.clamped_activation:
        once, again = once + CLAMP[0] * inner, again + CLAMP[1] * inner
    return arrived * once, arrived * again


def activation_traffic(scenario: Scenario, *, arrived: Floats, inner: Floats) -> Floats:
    """Bytes of the activation alone in the forward pass, (N,); arguments as of ``routed_traffic``."""
    model = scenario.model
    clamped = CLAMP[0] if model.clamped_activation and not scenario.fused_experts else 0.0
    return arrived * inner * (ACTIVATION[model.gated_ffn][0] + clamped)
