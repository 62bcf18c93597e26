"""Weights that are stored in another format than they are multiplied in: what turning them into it takes.

bitsandbytes unpacks a whole matrix into memory in front of its product, in the forward pass and again for the gradient
of its input (``MatMul4Bit``) [Dettmers23]. Its 8-bit products, which multiply as stored, are counted as these.
"""

from __future__ import annotations

import numpy as np

from costmodels.layer.forward_backward import Passes, no_passes
from costmodels.layout.parameters_per_rank import kind_expert_parameters, kind_parameters_per_rank
from costmodels.model.layer_kinds import Kind
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Strategies


def unpacking_seconds(strategies: Strategies, scenario: Scenario, kind: Kind) -> Passes:
    """Seconds to read a layer's frozen weights as they are stored and to write them as they are multiplied, (N,).

    Those in fp32 are cast once: autograd keeps what a product multiplied for the gradient of its input.
    """
    if not scenario.converts_weights:
        return no_passes(strategies)
    size = kind_parameters_per_rank(strategies, scenario, kind) + kind_expert_parameters(strategies, scenario, kind)
    once = scenario.rates.stream_seconds(size * (scenario.base_bytes + scenario.word))
    return Passes(once, np.zeros_like(once) if scenario.keeps_casts else once)


def cast_bytes(strategies: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Bytes of a layer's weights that every micro-batch keeps as they were cast from fp32, (N,)."""
    if not scenario.keeps_casts:
        return np.zeros(len(strategies))
    size = kind_parameters_per_rank(strategies, scenario, kind) + kind_expert_parameters(strategies, scenario, kind)
    return scenario.word * size


def unpacked_bytes(strategies: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """Bytes of the largest matrix that lies unpacked during its product, (N,)."""
    unpacked = scenario.converts_weights and not scenario.keeps_casts and kind.ffn == "dense"
    model = scenario.model
    return unpacked * scenario.word * model.hidden_size * model.ffn_hidden_size / strategies.tp
