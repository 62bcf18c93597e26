"""Optimistic seconds of cores, strategies without their sharding, from the price of a layer alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from costmodels.iteration import RowSeconds, core_seconds
from costmodels.layer.overlapped_experts import further_axes, hidden_experts, is_overlapped
from costmodels.layer.terms import LayerTerms
from costmodels.layout.layers_by_kind import heaviest_at_least
from costmodels.layout.split import even_layers, slice_layers
from costmodels.names import SCHEDULE_NAMES, Recompute
from costmodels.node_groups import Mixed, MixedStrategies
from costmodels.pipeline.bubble_share import bubble_share
from costmodels.pipeline.schedules import FILLING
from costmodels.primitives.overlap import slowdown
from costmodels.scenario import Scenario
from costmodels.strategy import BLOCK_AXES, LAYER_AXES, Floats, Ints, Strategies

KEPT_BOUNDS = 8
"""Scenarios whose bounds of the same cores are remembered."""
_ROUNDING = 1e-9
"""Relative room for rounding where whole slices are counted."""
FEW = 0.5
"""Share of the cores below which it pays to bound them alone."""


def known_bound(cores: Strategies, scenario: Scenario, among: Ints | None = None) -> Floats:
    """``core_bound``, worked out once for all searches of the same cores whose scenarios differ in memory alone, (C,).

    Where a caller wants few of the cores, ``among`` (K,), those alone are worked out unless all are known; the others
    are infinite.
    """
    plain, known = with_memory(scenario, 0.0), _known_bounds(cores)
    for other, bounds in known:
        if other == plain:
            return bounds
    if among is not None and len(among) < len(cores) * FEW:
        some = np.full(len(cores), np.inf)
        some[among] = core_bound(cores.take(among), scenario)
        return some
    return know_bound(cores, scenario, core_bound(cores, scenario))


def know_bound(cores: Strategies, scenario: Scenario, bound: Floats) -> Floats:
    """Remember the ``core_bound`` of all cores, (C,)."""
    known = _known_bounds(cores)
    known.append((with_memory(scenario, 0.0), bound))
    del known[:-KEPT_BOUNDS]
    return bound


def _known_bounds(cores: Strategies) -> list[tuple[Scenario, Floats]]:
    return cores.once("core bounds", list)


def with_memory(scenario: Scenario, usable: float) -> Scenario:
    """The scenario on devices of so many usable bytes, on which bounds do not depend."""
    device = scenario.group.accelerator.model_copy(update={"usable_memory": usable})
    return replace(scenario, group=scenario.group.model_copy(update={"accelerator": device}))


def core_bound(cores: Strategies, scenario: Scenario) -> Floats:
    """Optimistic seconds of every core under any split, sharding and recomputation, from its layer's price alone.

    The slowest stage holds at least the mean of all work, and at least ceil(L / p) layers; sends, data-parallel
    traffic and the optimizer are left out. Shape (C,).
    """
    block, inverse = cores.distinct(*LAYER_AXES, *further_axes(scenario.stack))
    price = core_seconds(replace(block, schedule=np.zeros_like(block.schedule)), scenario)
    ends = (price.embedding + price.head + price.vocabulary_spread * block.pp)[inverse]
    each, saved = _hidden(cores, price, inverse, scenario)
    ends = ends - scenario.model.mtp_layers * saved
    layer = price.layer[inverse] - saved + np.where(cores.recompute == Recompute.FULL, price.recompute[inverse], 0.0)
    layers = scenario.model.num_layers
    total = layers * layer + ends
    fullest = (
        even_layers(layers, cores).heaviest_at_least * layer
        if each is None
        else heaviest_at_least(cores, scenario.depth, each)
    )
    slowest = np.maximum(fullest, total / cores.pp)
    share = bubble_share(
        cores,
        scenario.stack,
        forward=(price.recompute - price.checkpointing)[inverse] - saved / 2.0,
        layer=price.layer[inverse] - saved,
        recompute=price.recompute[inverse],
        weight=price.weight[inverse],
    )
    pipeline = cores.num_microbatches * slowest + (total - slowest) * share
    return pipeline * (1.0 + price.straggler[:1]) + price.overhead[:1]


def layer_bound(rows: Strategies, scenario: Scenario) -> Floats:
    """Optimistic seconds of rows of which only the axes of a layer are known, (N,): below ``core_bound`` of any others.

    Without bubble, recomputation, and the traffic of experts, which a schedule may hide.
    """
    block, inverse = rows.distinct(*BLOCK_AXES)
    price = core_seconds(block, scenario)
    stages = scenario.model.num_layers * (price.layer - price.layer_ep) + price.embedding + price.head
    pipeline = rows.num_microbatches * stages[inverse] / rows.pp
    return pipeline * (1.0 + price.straggler[:1]) + price.overhead[:1]


def passes_bound(rows: Strategies, scenario: Scenario) -> Floats:
    """Optimistic seconds of rows whose chunks and schedule are known too, (N,): below ``core_bound`` of any others.

    All stages are as long as the mean one; nothing is recomputed, and schedules that weight gradients fill wait for
    nothing.
    """
    block, inverse = rows.distinct(*BLOCK_AXES, *further_axes(scenario.stack))
    price = core_seconds(replace(block, schedule=np.zeros_like(block.schedule)), scenario)
    model, saved = scenario.model, _hidden(rows, price, inverse, scenario)[1]
    ends = price.embedding + price.head + price.vocabulary_spread * block.pp
    stages = (model.num_layers * price.layer + ends)[inverse] - (model.num_layers + model.mtp_layers) * saved
    filled = np.isin(rows.schedule, [SCHEDULE_NAMES.index(name) for name in FILLING])
    waits = np.where(filled, 0.0, (rows.pp - 1.0) / rows.vpp)
    pipeline = (rows.num_microbatches + waits) * stages / rows.pp
    return pipeline * (1.0 + price.straggler[:1]) + price.overhead[:1]


def mixed_core_bound(cores: MixedStrategies, mixed: Mixed) -> Floats:
    """``core_bound`` over several node groups, in any order of them, shape (C,).

    Were layers divisible, all stages would be busy for M = L / sum of (stages / seconds of a layer), and no slowest
    stage is faster; whole slices raise that. A slower one could leave more layers to the fastest group: where that
    might pay, all layers are priced there, elsewhere it saves no more than every layer of the other groups moved.
    """
    prices = [_block(group, scenario) for group, scenario in zip(cores.groups, mixed.scenarios, strict=True)]
    again = cores.recompute == Recompute.FULL
    layer = np.stack([one.layer + np.where(again, one.recompute, 0.0) for one in prices], axis=1)
    ends = np.min([one.embedding for one in prices], axis=0) + np.min([one.head for one in prices], axis=0)
    layers = mixed.lead.model.num_layers
    level = layers / (cores.stages / layer).sum(axis=1)
    step = slice_layers(layers, cores)
    slowest = _whole_slices(cores.stages, layer * step[:, None], layers // step, level)
    saving = (cores.stages * (layer.max(axis=1, keepdims=True) / layer - 1.0)).sum(axis=1)
    pays = cores.num_microbatches * cores.vpp - 1.0 < saving
    filled = cores.pp * level - saving * (slowest - level)
    total = np.where(pays, layers * layer.min(axis=1), filled) + ends
    pipeline = cores.num_microbatches * slowest + (total - slowest) / cores.vpp
    return pipeline + np.min([one.overhead for one in prices], axis=0)


def mixed_layer_bound(rows: MixedStrategies, mixed: Mixed) -> Floats:
    """Optimistic seconds of rows of which only the axes of a layer are known, (N,): below ``mixed_core_bound``.

    Of the slowest stage alone, without recomputation and the traffic of experts, which a schedule may hide.
    """
    layer = []
    for group, scenario in zip(rows.groups, mixed.scenarios, strict=True):
        block, inverse = group.distinct(*BLOCK_AXES)
        price = core_seconds(block, scenario)
        layer.append((price.layer - price.layer_ep)[inverse])
    seconds, layers = np.stack(layer, axis=1), mixed.lead.model.num_layers
    level = layers / (rows.stages / seconds).sum(axis=1)
    return rows.num_microbatches * _whole_slices(rows.stages, seconds, np.full(len(rows), layers), level)


def _whole_slices(stages: Ints, seconds: Floats, slices: Ints, slowest: Floats) -> Floats:
    """The slowest stage's seconds raised to where whole slices fit on all stages, or as far as few steps go, (C,).

    ``seconds`` are those of a slice on each group, (C, G), like the ``stages``. Every step is to the next time at which
    the stages of some group hold another slice.
    """
    for _ in range(2 * stages.shape[1]):
        held = np.floor(slowest[:, None] / seconds * (1.0 + _ROUNDING))
        short = (stages * held).sum(axis=1) < slices
        if not short.any():
            break
        slowest = np.where(short, ((held + 1.0) * seconds).min(axis=1), slowest)
    return slowest


def _block(cores: Strategies, scenario: Scenario) -> RowSeconds:
    """Seconds of a layer and of the ends of every core, the layer's price worked out once."""
    block, inverse = cores.distinct(*LAYER_AXES, *further_axes(scenario.stack))
    return core_seconds(block, scenario).take(inverse)


def _hidden(cores: Strategies, price: RowSeconds, inverse: Ints, scenario: Scenario) -> tuple[Floats | None, Floats]:
    """Seconds of layers by kind, (K, C), where they differ, and what an average layer's experts' traffic hides, (C,).

    The former are less what theirs hides. What does not depend on the schedule was hidden in ``price`` already.
    """
    if price.kinds is None:
        found = (
            np.zeros(len(cores)) if is_overlapped(scenario.stack) else _hidden_traffic(cores, price, inverse, scenario)
        )
        return None, found
    again = cores.recompute == Recompute.FULL
    each = np.array([kind.layer[inverse] + again * kind.recompute[inverse] for kind in price.kinds.parts])
    if is_overlapped(scenario.stack):
        return each, np.zeros(len(cores))
    hidden = np.array([_hidden_traffic(cores, kind, inverse, scenario) for kind in price.kinds.parts])
    return each - hidden, np.dot(price.kinds.depth.shares, hidden)


def _hidden_traffic(cores: Strategies, layer: RowSeconds | LayerTerms, inverse: Ints, scenario: Scenario) -> Floats:
    """Seconds of experts' traffic that another pass hides, less what it slows that down, (C,)."""
    traffic, window = layer.layer_ep, layer.window.total
    hidden = hidden_experts(cores, scenario.stack, traffic=traffic[inverse], window=window[inverse])
    return hidden - slowdown(hidden, scenario.stack.overlap.compute_slowdown)
