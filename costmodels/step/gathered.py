"""What sharding of parameters and gradients holds whole for the moment: gathered layers or matrices, second copies."""

from __future__ import annotations

import numpy as np

from costmodels.layout.parameters_per_rank import kind_expert_parameters
from costmodels.layout.split import even_layers
from costmodels.layout.stage_contents import by_chunk, copies
from costmodels.model.layer_kinds import EXPERTS
from costmodels.model.parameters import attention_projections
from costmodels.names import SHARDED_GRADIENTS, SHARDED_PARAMETERS
from costmodels.scenario import Scenario
from costmodels.step.sharded import second_shards, stays_whole
from costmodels.strategy import Floats, Strategies

PREFETCHED = 2.0
"""Layers, or matrices, whose parameters are gathered at once under ZeRO stage 3: the running and the prefetched one."""


def second_copy(strategies: Strategies, scenario: Scenario, layer: Floats) -> Floats:
    """A second, sharded copy of the fullest even stage's layers within every innermost domain [Wang23], (N,)."""
    third = strategies.zero_stage == SHARDED_PARAMETERS
    if not scenario.stack.switches.zero_hpz or not third.any():
        return np.zeros(len(strategies))
    held = copies(strategies) * even_layers(scenario.model.num_layers, strategies).high * layer
    return np.where(third, scenario.word * held / second_shards(strategies, scenario), 0.0)


def largest_matrix(strategies: Strategies, scenario: Scenario) -> Floats:
    """Parameters of the largest matrix of any layer on one rank, all of its experts' together, (N,).

    A compiler that sees single products gathers what each of them multiplies, and no more [Xu21].
    """
    model = scenario.model
    attention = max(p.weights for p in attention_projections(model))
    dense = model.hidden_size * model.ffn_hidden_size if model.num_dense_layers else 0
    experts = kind_expert_parameters(strategies, scenario, EXPERTS) / (model.ffn_branches + 1.0)
    return np.maximum(max(attention, dense) / strategies.tp, experts)


def whole_bytes(strategies: Strategies, scenario: Scenario, layer: Floats) -> Floats:
    """Bytes of parameters and gradients that are whole for the moment, of ``layer`` parameters a layer, (N,).

    ZeRO stage 3 gathers the running layer and the next; breadth first they are chunks, and stages 2 and 3 add up a
    chunk's gradients over the micro-batches while those of the chunk before are scattered [LamyPoirier22]. Chunks
    are those of the even split.
    """
    chunked, held = by_chunk(strategies), stays_whole(strategies, scenario)
    third = (strategies.zero_stage == SHARDED_PARAMETERS) & ~held
    chunk = np.ceil(even_layers(scenario.model.num_layers, strategies).high / strategies.vpp)
    gathered = np.where(third, PREFETCHED * scenario.word * layer * np.where(chunked, chunk, 1.0), 0.0)
    added = PREFETCHED * scenario.stack.gradients.gradient_bytes * layer * chunk
    return gathered + np.where(chunked & ~held & (strategies.zero_stage >= SHARDED_GRADIENTS), added, 0.0)
