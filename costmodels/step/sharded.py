"""Sharded gradients and parameters: traffic layer by layer in every micro-batch, and what of it is exposed.

ZeRO stages 2 and 3 [Rajbhandari20], fully sharded data parallelism [Zhao23], copies within a domain [Zhang22] and
second shards inside the node [Wang23]; chunk by chunk under a breadth-first pipeline [LamyPoirier22].
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from costmodels.layer.adapters import trained_experts, trained_share
from costmodels.layer.forward_backward import Passes
from costmodels.layer.terms import LayerTerms
from costmodels.layout.layers_by_kind import ByKind
from costmodels.layout.parameters_per_rank import (
    embedding_parameters_per_rank,
    expert_parameters_per_rank,
    head_parameters_per_rank,
    kind_expert_parameters,
    kind_parameters_per_rank,
    layer_parameters_per_rank,
)
from costmodels.layout.placement import expert_data_group, sharding_groups
from costmodels.layout.split import even_layers
from costmodels.layout.stage_contents import by_chunk, copies, joined
from costmodels.model.layer_kinds import Depth, Kind
from costmodels.model.model import Model
from costmodels.model.parameters import attention_projections
from costmodels.names import SHARDED_GRADIENTS, SHARDED_PARAMETERS, WORD, Recompute
from costmodels.primitives.collectives import all_reduce_seconds, gather_seconds, host_seconds
from costmodels.primitives.overlap import prefetched
from costmodels.primitives.rank_groups import Groups
from costmodels.scenario import Scenario
from costmodels.stack.stack import Stack
from costmodels.strategy import Bools, Floats, Ints, Strategies


def gather_word(scenario: Scenario) -> float:
    """Bytes of one gathered parameter."""
    kept = scenario.recipe.reduced and scenario.stack.switches.fp8_param_gather
    return scenario.recipe.gather_word if kept else WORD


def is_requantised(strategies: Strategies, scenario: Scenario) -> Floats:
    """Where weights are quantised for every pass: gathered in 16 bits and given up after it, 1 or 0, (N,)."""
    stack = scenario.stack
    wide = scenario.recipe.reduced and stack.sharding.fsdp_stage2 and not stack.switches.fp8_param_gather
    return np.where((strategies.zero_stage >= SHARDED_PARAMETERS) & (strategies.sharding_degree > 1), float(wide), 0.0)


def single_layout_traffic(scenario: Scenario) -> float:
    """Bytes moved per weight to quantise it for one pass, which reads it along rows or along columns only."""
    return max(scenario.recipe.step_traffic - scenario.recipe.word, 0.0)


@dataclass(frozen=True, slots=True)
class _Collectives:
    """Seconds of the collectives of parameters that travel together, arrays (N,)."""

    gather: Floats
    gather_again: Floats
    """For the backward pass."""
    scatter: Floats
    replicas: Floats
    """Reducing the shards of the gradients over the copies of the model."""


def is_hidden(strategies: Strategies, stack: Stack) -> tuple[Bools, Bools]:
    """Whether gradients, and parameters, travel behind the passes, arrays (N,).

    DeepSpeed's ``overlap_comm`` is off unless asked for, but on at stage 3, which also gathers parameters ahead
    (``stage3_prefetch_bucket_size``).
    """
    third = (strategies.zero_stage >= SHARDED_PARAMETERS) & stack.switches.overlap_zero3
    return third | stack.switches.overlap_grad_reduce, third | stack.switches.overlap_param_gather


def stays_whole(strategies: Strategies, scenario: Scenario) -> Bools:
    """Whether a pipeline's stages keep parameters gathered and gradients whole until the last micro-batch, (N,)."""
    sharded = (strategies.pp > 1) & (strategies.zero_stage >= SHARDED_GRADIENTS)
    return scenario.stack.sharding.pipeline_keeps_gathered & sharded


def every_micro_batch(
    strategies: Strategies,
    scenario: Scenario,
    layer: Passes,
    kinds: ByKind[LayerTerms] | None = None,
    paired: Passes | None = None,
) -> tuple[Floats, Floats]:
    """Exposed (backward, forward) seconds an iteration of ZeRO stages 2 and 3, arrays (N,).

    At stage 3 every layer is gathered for both passes. A stack that shards fully keeps parameters from the forward to
    the backward pass at stage 2. Copies around the collectives are on the stream that computes (``_copying``), of the
    embedding and the head too. Copies of the model that meet once an iteration do so in the last micro-batch. A
    pipeline that holds what it gathered does so once an iteration, unless every forward pass gives it back and the
    backward pass gathers it, and scatters gradients when its last backward pass is over, fully exposed. Under an 8-bit
    recipe weights that were gathered in 16 bits are quantised next. By chunks, a layer is gathered and its gradients
    are scattered once for all micro-batches, which that then hides behind. ``layer`` and ``paired`` are as in
    ``traffic.step_traffic``.
    """
    stack, whole = scenario.stack, stays_whole(strategies, scenario)
    third = (strategies.zero_stage >= SHARDED_PARAMETERS) & ~whole
    depth = scenario.depth if kinds is not None else None
    each = [_layer(strategies, scenario, kind) for kind in (depth.kinds if depth else (None,))]
    pairs = [(one.repeating_window, one.paired) for one in kinds.parts] if kinds else [(layer, paired)]
    micro_batches = np.where(by_chunk(strategies), strategies.num_microbatches, 1)
    windows = [micro_batches * _unpaired_window(window, paired, whole) for window, paired in pairs]
    in_forward, in_backward = [one.forward for one in windows], [one.backward for one in windows]
    layers = copies(strategies) * even_layers(scenario.model.num_layers, strategies).high
    gathers = [one.gather for one in each]
    scatters = [np.where(third, one.gather_again * scenario.trained_depth, 0.0) + one.scatter for one in each]
    hides_gradients, hides_parameters = is_hidden(strategies, stack)
    hides_gradients = hides_gradients & ~whole
    slow = compute_slowdown(sharding_groups(strategies)[0], scenario)
    chain = partial(_chain, layers=layers, depth=depth, slow=slow)
    scattering = partial(chain, windows=in_backward, hidden=hides_gradients, backward=True)
    first, final = (_together(strategies, scenario, size, WORD) for size in _end_parameters(strategies, scenario))
    apart = not stack.sharding.root_unit  # else the head travels with the embedding
    head_gather = prefetched(final.gather, in_forward[-1], slow=slow, hidden=hides_parameters & apart)
    head_scatter = prefetched(final.scatter, in_backward[-1], slow=slow, hidden=hides_gradients & apart)
    shard_waits, replica_waits = (layers * part for part in _host_waits(strategies, scenario))
    forward = chain(gathers, in_forward, hidden=hides_parameters) + first.gather + head_gather
    forward = forward + np.where(third, shard_waits, 0.0)
    ends = first.scatter + head_scatter + np.where(third, 2.0, 1.0) * shard_waits
    last = scattering([part + one.replicas for part, one in zip(scatters, each, strict=True)]) + ends
    last = last + first.replicas + final.replicas + replica_waits
    backward = scattering(scatters) + ends if stack.sharding.replicas_reduce_once else last
    out, into = _copying(strategies, scenario, layers)
    times = np.where(by_chunk(strategies) | whole, 1, strategies.num_microbatches)
    gathered = times if stack.sharding.gathers_per_micro_batch else np.ones(len(strategies))
    scattered = np.where(third, gathered, times)
    backward = backward * (scattered - 1) + last + (into + np.where(third, out, 0.0)) * scattered
    if stack.sharding.pipeline_reshards:
        again = chain(gathers, in_backward, hidden=hides_parameters, backward=True)
        reshards = whole & (strategies.zero_stage >= SHARDED_PARAMETERS)
        backward = backward + np.where(reshards, strategies.num_microbatches * (again + out), 0.0)
    # a model that passes forward again gathers again, and so does a sharded copy of it
    again = np.where(third, 1.0 + scenario.further_forwards, 1.0)
    return backward, (forward + out) * gathered * again


def _copying(strategies: Strategies, scenario: Scenario, layers: Floats) -> tuple[Floats, Floats]:
    """Seconds to copy parameters out of the buffer they arrive in, and their gradients into theirs, (N,).

    Those of so many layers and of embedding and head. Quantising the layers' moves more for the former; the latter
    casts to the width of the reduction, by a kernel of less bandwidth (``packing``). FSDP2 does both; FSDP1 uses the
    flat parameter of a unit where it arrives, joins its gradients as they are, and casts them on another stream
    [FSDP1]; the buffers of Megatron-FSDP are the parameters' own, and the products write gradients into them [MFSDP].
    """
    stack, streamed = scenario.stack, scenario.rates.stream_seconds
    sharded, (size, experts) = sharding_groups(strategies)[0].size > 1, _parameters(strategies, scenario)
    copied = layers * (np.where(sharded, size, 0.0) + np.where(expert_data_group(strategies).size > 1, experts, 0.0))
    quantised = is_requantised(strategies, scenario) * single_layout_traffic(scenario) * copied
    embedding, head = (np.where(sharded, end, 0.0) for end in _end_parameters(strategies, scenario))
    copied = copied + embedding + head
    out = 2.0 * WORD * (stack.sharding.state_copies == "both")
    speed = stack.sharding.gradient_copy_speed if stack.gradients.reduce_bytes != WORD else 1.0
    cast = (WORD + stack.gradients.reduce_bytes) / speed
    into = {"both": cast, "gradients": 2.0 * WORD, "none": 0.0}[stack.sharding.state_copies]
    return streamed(copied * out + quantised), streamed(copied * into * trained_share(scenario))


def _host_waits(strategies: Strategies, scenario: Scenario) -> tuple[Floats, Floats]:
    """Seconds a layer that one pass among the ranks of a shard, and adding up over its copies, wait for hosts, (N,).

    A compiler that sees single products has a collective for every weight in the loop over layers, and what a host
    takes to answer is on its way in each [MaxText].
    """
    near, far = sharding_groups(strategies)
    tiers = scenario.group.tiers
    times = weights_per_layer(scenario.model) if scenario.stack.sharding.gather_unit == "matrix" else 1.0
    shared = (strategies.zero_stage >= SHARDED_GRADIENTS) & (near.size > 1)
    return np.where(shared, times * host_seconds(near, tiers), 0.0), 2.0 * times * host_seconds(far, tiers)


def weights_per_layer(model: Model) -> float:
    """Weights of a layer as they are gathered one by one, queries, keys and values apart, and norms."""
    attention = {p.name for p in attention_projections(model)}
    apart = len(attention) + 2.0 * ("qkv" in attention)
    return apart + model.ffn_branches + 1.0 + (1.0 if model.parallel_block else model.num_norms)


def _unpaired_window(window: Passes, paired: Passes | None, once: Bools) -> Passes:
    """What of a layer's computation the traffic of other micro-batches' experts leaves.

    All of it ``once`` an iteration, with the micro-batch without a partner; none where that traffic overlaps the
    layer's tensor-parallel traffic too, and outlasts the computation.
    """
    if paired is None:
        return window
    left = window - paired
    return window.where(once, Passes(np.maximum(left.forward, 0.0), np.maximum(left.backward, 0.0)))


def _parameters(strategies: Strategies, scenario: Scenario, kind: Kind | None = None) -> tuple[Floats, Floats]:
    """Parameters on a rank of one layer of a kind, or of an average one, without routed experts, and of those, (N,)."""
    if kind is None:
        return layer_parameters_per_rank(strategies, scenario), expert_parameters_per_rank(strategies, scenario)
    return kind_parameters_per_rank(strategies, scenario, kind), kind_expert_parameters(strategies, scenario, kind)


def _end_parameters(strategies: Strategies, scenario: Scenario) -> tuple[Floats, Floats]:
    """Parameters on a rank of the embedding, and of the head where it is on the same stage, (N,).

    Nothing comes before the embedding; the head stays gathered to be used again at once. As one unit both are in front
    of everything and behind it.
    """
    head = joined(strategies) * head_parameters_per_rank(strategies, scenario)
    return embedding_parameters_per_rank(strategies, scenario), head


def _layer(strategies: Strategies, scenario: Scenario, kind: Kind | None) -> _Collectives:
    """One layer of a kind, or an average one."""
    stack, tiers, near = scenario.stack, scenario.group.tiers, sharding_groups(strategies)[0]
    pace = 1.0 / stack.calibrated.reached("data")
    word, (size, experts) = gather_word(scenario), _parameters(strategies, scenario, kind)
    layer, listed = _together(strategies, scenario, size, word), _list_seconds(strategies, scenario, near)
    gather, scatter = layer.gather + listed, layer.scatter + listed * (not scenario.frozen)
    again = gather
    if stack.switches.zero_hpz:
        second = near.within(tiers[0].domain)
        again = gather_seconds(word * size, second, tiers) * pace
    if scenario.model.num_moe_layers:
        same, widths = expert_data_group(strategies), (word, stack.gradients.reduce_bytes)
        whole, given = gather_seconds(np.array([w * experts for w in widths]), same, tiers) * pace
        gather, again, scatter = gather + whole, again + whole, scatter + given * trained_experts(scenario)
    return _Collectives(gather, again, scatter, layer.replicas)


def _together(strategies: Strategies, scenario: Scenario, size: Floats, word: float) -> _Collectives:
    """Parameters that are gathered, in so many bytes each, and scattered as one."""
    stack, tiers, (near, far) = scenario.stack, scenario.group.tiers, sharding_groups(strategies)
    some = (size > 0) / stack.calibrated.reached("data")
    reduced = stack.gradients.reduce_bytes * trained_share(scenario)
    gather, scatter = gather_seconds(np.array([word * size, reduced * size]), near, tiers) * some
    replicas = all_reduce_seconds(reduced * size / strategies.sharding_degree, far, tiers) * some
    return _Collectives(gather, gather, scatter, replicas)


def _list_seconds(strategies: Strategies, scenario: Scenario, near: Groups) -> Floats:
    """Host seconds to make and copy a list of every rank's part of each weight of a layer, at stage 3, (N,).

    Norms and biases are small enough to stay whole.
    """
    weights = len(attention_projections(scenario.model)) + 2.0
    listing = (strategies.zero_stage >= SHARDED_PARAMETERS) & (near.size > 1)
    return np.where(listing, weights * near.size * scenario.stack.sharding.copy_time_per_rank, 0.0)


def second_shards(strategies: Strategies, scenario: Scenario) -> Ints:
    """Ranks of a sharding group within one innermost domain, which hold a second copy among them, (N,)."""
    near = sharding_groups(strategies)[0]
    return near.ranks_within(scenario.group.tiers[0].domain)


def compute_slowdown(group: Groups, scenario: Scenario) -> Floats:
    """How much computation slows during a collective of such groups, (N,).

    Within one innermost domain as its link says, where kernels of the library take units and memory from others;
    elsewhere, or where the stack has them run in a few units, as the stack says.
    """
    stack, tier = scenario.stack, scenario.group.tiers[0]
    across, inside = stack.overlap.compute_slowdown, tier.link.slowdown
    if inside is None or stack.switches.nccl_ub or across == 0.0:
        return np.full(len(group.size), across)
    return group.each(lambda groups: np.where(groups.ranks_within(tier.domain) < groups.size, across, inside))


def _chain(
    seconds: list[Floats],
    windows: list[Floats],
    *,
    layers: Floats,
    depth: Depth | None,
    slow: Floats,
    hidden: Bools,
    backward: bool = False,
) -> Floats:
    """Exposed seconds of one collective per layer, prefetched behind the layer before it, by kind of layer.

    Nothing comes before the first. Where layers differ, pairs of neighbours count by their share of the depth.
    """
    if depth is None:
        return seconds[0] + (layers - 1.0) * prefetched(seconds[0], windows[0], slow=slow, hidden=hidden)
    order = depth.layers.tolist()[::-1] if backward else depth.layers.tolist()
    share = (layers - 1.0) / max(len(order) - 1.0, 1.0)
    total = seconds[order[0]]
    for (before, after), times in Counter(pairwise(order)).items():
        total = total + times * share * prefetched(seconds[after], windows[before], slow=slow, hidden=hidden)
    return total


def repeated_window(strategies: Strategies, whole: Floats, selective: Floats) -> Floats:
    """Seconds of a backward pass that repeat a forward one, (N,): of the ``whole`` layer, or ``selective`` ones of it.

    Full sharding asks for the layer before as the gradient of a layer's output comes, ahead of all that a checkpoint in
    it repeats, however much that is (``FSDPParamGroup.pre_backward`` [FSDP2]).
    """
    full, some = strategies.recompute == Recompute.FULL, strategies.recompute == Recompute.SELECTIVE
    return np.where(full, whole, np.where(some, np.minimum(selective, whole), 0.0))
