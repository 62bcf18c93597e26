"""What scales known from earlier steps cost without the casts: kernels that find them, magnitudes that ranks share.

Under delayed scaling a tensor is cast by the largest magnitudes of the steps before. Until 1.3 Transformer Engine finds
scales module by module, at the start of every pass: its history is reduced and rolled, the scale and its inverse are
computed, about ten small kernels [TE-scales]. Ranks take the largest magnitude together: what all modules under one
context saw is reduced in one piece when the context ends, and kernels wait for that. Megatron-Core and NeMo open one
context around the layers of a chunk, and its group is that of tensor, context and data ranks, or one without the data
ranks (``tp_only_amax_red``).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from costmodels.layer.forward_backward import Passes
from costmodels.layout.placement import group_of
from costmodels.model.layer_kinds import Kind
from costmodels.primitives.collectives import all_reduce_seconds
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Strategies

DELAYED: Final = "fp8"
"""The recipe whose scales are known from earlier steps."""
TENSORS: Final = 3.0
"""Magnitudes that a module's product keeps forward, in fp32: its input, its weight and its output."""
PRODUCTS: Final = 4.0
"""Products of a layer: out of the input, out of attention, and both of the feed-forward network."""


def scale_seconds(strategies: Strategies, scenario: Scenario, kind: Kind) -> Passes:
    """Device seconds to find the scales of a layer module by module, (N,); the same in either pass.

    Attention's projections are two modules, a dense feed-forward network is one (``TransformerLayer``).
    """
    modules = 2.0 * kind.attends + float(kind.ffn == "dense")
    kernels = modules * scenario.stack.kernels.scale_kernels * (scenario.precision == DELAYED)
    seconds = np.full(len(strategies), kernels * scenario.rates.head.overhead)
    return Passes(seconds, seconds)


def sharing_seconds(strategies: Strategies, scenario: Scenario) -> Floats:
    """Seconds per micro-batch and stage in which ranks share magnitudes, (N,): behind both passes of every chunk."""
    sharing = scenario.stack.exchange.amax_group
    if scenario.precision != DELAYED or sharing == "none":
        return np.zeros(len(strategies))
    group = group_of(strategies, "tp", "cp", "dp") if sharing == "data" else group_of(strategies, "tp", "cp")
    chunk = scenario.model.num_layers / (strategies.pp * strategies.vpp)
    once = all_reduce_seconds(4.0 * TENSORS * PRODUCTS * chunk, group, scenario.group.tiers)
    return np.where(group.size > 1, 2.0 * strategies.vpp * once, 0.0)
