"""Bytes that a strategy's fullest device holds at least, from the axes of a layer alone.

Memory is searched as time is: what cannot need less than what is found is neither laid out nor priced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from costmodels.layer.recompute_modules import preset_masks
from costmodels.memory.activations import average_activation_bytes
from costmodels.memory.rows import row_bytes
from costmodels.names import Recompute
from costmodels.scenario import Scenario
from costmodels.step.offload import ACTIVATIONS
from costmodels.strategy import Floats, Strategies
from planner.space.lattice import LAYER

SPARING = frozenset({"offload", "recompute_modules"})
"""Axes on which a layer may take less than where they have their neutral values."""
ENDS = 2
"""Layers' places that the embedding and the head may take, or stages that hold them alone."""
_LAYOUT = ("tp", "cp", "pp", "dp", "ep", "etp", "offload")
_NEUTRAL = ("schedule", "recompute", "rank_order", "recompute_modules", "vocabulary")


def least_bytes(rows: Strategies, scenario: Scenario) -> Floats:
    """Bytes allocated on the fullest device at least under any split, sharding, schedule and recomputation, (N,).

    All stages as full as each other: states under the sharding that leaves the fewest, and one layer's activations,
    which every stage keeps of a micro-batch or repeats, unless they are offloaded or no preset names what is repeated.
    The axes of a layer decide it, and those of `SPARING`.
    """
    if not len(rows):
        return np.zeros(0)
    few, inverse = rows.distinct(*_LAYOUT)
    states = np.min([_states(some, scenario) for some in _sharded(_plain(few), scenario)], axis=0)
    layers, place = rows.distinct(*sorted(LAYER))
    kept = np.min([average_activation_bytes(some, scenario) for some in _recomputed(_plain(layers), scenario)], axis=0)
    share = scenario.trained_depth * scenario.model.num_layers / (scenario.model.num_layers + ENDS)
    fewer = layers.pp > scenario.model.num_layers
    bare = (layers.pp > ENDS) & (scenario.stack.supports.empty_ends | fewer)  # stages without a layer
    stays = (rows.offload != ACTIVATIONS) & np.isin(rows.recompute_modules, _masks(scenario))
    return states[inverse] + np.where(stays, (share * (1.0 - bare * ENDS / layers.pp) * kept)[place], 0.0)


def known_bytes(cores: Strategies, scenario: Scenario) -> Floats:
    """``least_bytes`` of cores, worked out once for all searches of them, (C,)."""
    known: list[tuple[Scenario, Floats]] = cores.once("least bytes", list)
    if not known or known[0][0] != scenario:
        known[:] = [(scenario, least_bytes(cores, scenario))]
    return known[0][1]


def _masks(scenario: Scenario) -> tuple[int, ...]:
    """Sets of modules that a search repeats unasked."""
    return (0, *preset_masks(scenario.model, scenario.stack))


def _plain(rows: Strategies) -> Strategies:
    """The rows without what they need not have in common."""
    one = np.ones_like(rows.tp)
    nothing: dict[str, Any] = dict.fromkeys(_NEUTRAL, np.zeros_like(rows.tp))
    return replace(rows, vpp=one, recompute_num_layers=one, **nothing)


def _states(rows: Strategies, scenario: Scenario) -> Floats:
    memory = row_bytes(rows, scenario)
    ends = (memory.embedding_parameters + memory.head_parameters) * memory.end_state
    return (scenario.model.num_layers * memory.layer_state + ends) / rows.pp


def _sharded(rows: Strategies, scenario: Scenario) -> Iterator[Strategies]:
    """The rows under every ZeRO stage of the stack, over as many ranks as there are."""
    for stage in scenario.stack.supports.zero_stages:
        ranks = rows.dp * rows.cp if stage else np.ones_like(rows.dp)
        yield replace(rows, zero_stage=np.full_like(rows.dp, stage), sharding_degree=ranks)


def _recomputed(rows: Strategies, scenario: Scenario) -> Iterator[Strategies]:
    """The rows under every kind of recomputation, that of whole layers as if nothing was: it holds one layer whole.

    Weights are sharded as far as the stack can: whole ones may make layers keep more, gathered ones are left out.
    """
    rows = replace(rows, zero_stage=np.full_like(rows.dp, max(scenario.stack.supports.zero_stages)))
    rows = replace(rows, sharding_degree=np.ones_like(rows.dp))
    for kind, mask in [(Recompute.NONE, 0), *product([Recompute.SELECTIVE], _masks(scenario))]:
        yield replace(rows, recompute=np.full_like(rows.tp, kind), recompute_modules=np.full_like(rows.tp, mask))
