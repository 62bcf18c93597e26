"""Bytes on every stage's busiest rank: states, activations in flight, logits, buffers.

A stage with n layers of which r are recomputed, c micro-batches in flight, needs

    n state + c ((n - r) stored + r checkpoint) + [r > 0] working + what its embedding or head adds

which is linear in n and r: the same numbers bound the search and constrain the stage solver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from costmodels.arrays import Columns
from costmodels.layer.context import exchange_bytes
from costmodels.layer.forward_backward import region_tokens
from costmodels.layout.layers_by_kind import ByKind
from costmodels.layout.parameters_per_rank import (
    embedding_parameters_per_rank,
    expert_parameters_per_rank,
    head_parameters_per_rank,
    kind_expert_parameters,
    kind_parameters_per_rank,
    layer_parameters_per_rank,
    vocabulary_rows,
)
from costmodels.layout.placement import expert_shards
from costmodels.layout.split import even_layers
from costmodels.layout.stage_contents import by_chunk, copies, in_flight_at, joined, mtp_in_flight, queued
from costmodels.memory.activations import (
    average_activation_bytes,
    kept_bytes_of_kind,
    kind_activation_bytes,
    kind_module_bytes,
    layer_checkpoint_bytes,
    returned_bytes,
)
from costmodels.memory.peaks import loss_peak, momentary_bytes, standing_bytes, step_bytes
from costmodels.memory.states import StateBytes, state_bytes, weight_bytes_of_ends
from costmodels.memory.tower import frozen_tower_bytes, image_activation_bytes
from costmodels.model.layer_kinds import Kind, mtp_kind
from costmodels.model.parameters import mtp_sets
from costmodels.names import SCHEDULE_NAMES, SHARDED_PARAMETERS, Recompute
from costmodels.scenario import Scenario
from costmodels.stack.optimizers import optimizer_of
from costmodels.step.gathered import largest_matrix, second_copy, whole_bytes
from costmodels.step.offload import activations_away, share_offloaded
from costmodels.step.sharded import stays_whole
from costmodels.strategy import STATE_AXES, Bools, Floats, Strategies, of_axes

OFFLOADED_LAYERS = 2.0
"""Layers whose activations are on the device although all are offloaded: the running one, and one on its way. Where
only the first ones are, the last of them has left as the forward pass ends, when the device is fullest."""


@dataclass(frozen=True, slots=True)
class RowBytes(Columns):
    """What a stage's memory is composed of, arrays (N,), bytes on one rank.

    Where layers differ, those of one layer are of an average one, but for ``working``.
    """

    state: StateBytes
    """Per parameter."""
    layer_parameters: Floats
    """Of an average layer, routed experts left out."""
    expert_parameters: Floats
    """Routed experts of an average layer."""
    expert_state: StateBytes
    """Per parameter of an expert, which fewer ranks share."""
    embedding_parameters: Floats
    head_parameters: Floats
    end_optimizer_extra: Floats
    """Optimizer bytes per parameter that embedding and head keep beyond a layer's (Muon)."""
    end_weights_extra: Floats
    """Bytes per parameter that their weights take beyond a layer's (frozen ones of 4 bits)."""
    stored: Floats
    """Activations of one layer kept for one micro-batch."""
    checkpoint: Floats
    """Activations of one recomputed layer kept for one micro-batch: its input."""
    working: Floats
    """Activations of the layers that are recomputed together; of the kind with the most, where layers differ."""
    logits_released: Floats
    """Part of ``working`` that is not held with the logits: where a micro-batch goes back as soon as it came, the
    logits are let go before the first layer is recomputed."""
    embedding_activation: Floats
    """Per micro-batch in flight on the first stage."""
    first_peak: Floats
    """On the first stage: what the embedding's gradient, or the optimizer's step, takes beyond the activations let go
    before it, and the embedding itself where full sharding keeps it gathered."""
    logits: Floats
    """At the loss, once."""
    mtp_states: Floats
    """States of the experts of multi-token-prediction layers, and those layers' activations, on the last stage."""
    queued: Floats
    """Micro-batches that every stage holds beyond those of its schedule, waiting for its part of the vocabulary."""
    passing: Floats
    """Activations and gradients of the moment on every stage, which ``everywhere`` holds too."""
    everywhere: Floats
    """On every stage besides its layers: parameters gathered for the moment under ZeRO stage 3, and the stage's
    share of a vocabulary that is split over the stages."""
    kinds: ByKind[LayerBytes] | None = None
    """One layer of each kind, where layers differ along the depth."""

    @property
    def layer_state(self) -> Floats:
        """Weights, gradients and optimizer state of one layer."""
        return self.layer_parameters * self.state.total + self.expert_parameters * self.expert_state.total

    @property
    def kind_states(self) -> Floats:
        """Weights, gradients and optimizer state of one layer of each kind, shape (K, N)."""
        assert self.kinds is not None
        dense = self.kinds.each("layer_parameters") * self.state.total
        return dense + self.kinds.each("expert_parameters") * self.expert_state.total

    @property
    def end_state(self) -> Floats:
        """Per parameter of embedding and head."""
        return self.state.total + self.end_optimizer_extra + self.end_weights_extra

    @property
    def first(self) -> Floats:
        """States of the embedding, and the peak of its gradient."""
        return self.embedding_parameters * self.end_state + self.first_peak

    def working_at(self, last: Bools) -> Floats:
        """``working`` on stages with and without the head, beyond what logits took before, of ``last``'s shape."""
        whole, released = (x.reshape(x.shape + (1,) * (last.ndim - 1)) for x in (self.working, self.logits_released))
        return whole - last * released

    @property
    def last(self) -> Floats:
        """States of the head and of layers that predict further tokens, and the logits."""
        return self.head_parameters * self.end_state + self.mtp_states + self.logits


def row_bytes(strategies: Strategies, scenario: Scenario) -> RowBytes:
    """The memory of N strategies, down to the quantities that a split of layers over stages multiplies."""
    kinds, stored = _by_kind(strategies, scenario), average_activation_bytes(strategies, scenario)
    here = 1.0 - activations_away(strategies, scenario)
    layer, experts = layer_parameters_per_rank(strategies, scenario), expert_parameters_per_rank(strategies, scenario)
    embedding = embedding_parameters_per_rank(strategies, scenario)
    head = head_parameters_per_rank(strategies, scenario)
    state, optimizer_extra, weights_extra = _states(strategies, scenario)
    expert_state = state if scenario.model.moe is None else state_bytes(strategies, scenario, expert_shards(strategies))
    moment, standing = momentary_bytes(strategies, scenario), standing_bytes(strategies, scenario)
    passing, gathered = _passing(strategies, scenario), _gathered_ends(strategies, scenario)
    logits = np.maximum(loss_peak(strategies, scenario) - moment, 0.0)  # what the last layer needs comes after the head
    largest = stored if scenario.depth.uniform else _of_largest_kind(strategies, scenario, kind_activation_bytes)
    working = strategies.recompute_num_layers * largest
    end_state, root = state.total + optimizer_extra + weights_extra, scenario.stack.sharding.root_unit
    at_ends, dropout = 1.0 - strategies.vocabulary, 1.0 if scenario.stack.switches.dropout else 0.0
    released = np.where(_BACK_AT_ONCE[strategies.schedule], np.minimum(working, logits * at_ends), 0.0)
    return RowBytes(
        state=state,
        layer_parameters=layer,
        expert_parameters=experts,
        expert_state=expert_state,
        embedding_parameters=embedding * at_ends,
        head_parameters=head * at_ends,
        end_optimizer_extra=optimizer_extra,
        end_weights_extra=weights_extra,
        stored=scenario.trained_depth * here * stored + returned_bytes(strategies, scenario, without_this_pass=True),
        checkpoint=scenario.trained_depth * here * layer_checkpoint_bytes(strategies, scenario),
        working=working,
        logits_released=released,
        embedding_activation=dropout * float(scenario.model.hidden_size) * region_tokens(strategies, scenario)
        + image_activation_bytes(strategies, scenario),
        first_peak=at_ends * (_first_peak(strategies, scenario, moment, stored) + root * gathered * embedding)
        + frozen_tower_bytes(strategies, scenario),
        logits=(logits + gathered * head) * at_ends,
        mtp_states=mtp_bytes(strategies, scenario, expert_state.total),
        queued=queued(strategies, scenario.stack.pipeline.vocabulary_in_flight),
        passing=moment + standing + passing,
        everywhere=_spread(strategies, scenario, (embedding + head) * end_state + logits)
        + moment
        + standing
        + passing
        + exchange_bytes(strategies, scenario)
        + second_copy(strategies, scenario, layer)
        + whole_bytes(strategies, scenario, _gathered(strategies, scenario, layer + experts, kinds)),
        kinds=kinds,
    )


@of_axes(*STATE_AXES)
def _states(strategies: Strategies, scenario: Scenario) -> tuple[StateBytes, Floats, Floats]:
    """Bytes per parameter of a layer, and those of embedding and head beyond, optimizer states and weights, (N,)."""
    state = state_bytes(strategies, scenario)
    chosen = optimizer_of(scenario.stack)
    shards = np.where(strategies.zero_stage >= 1, strategies.sharding_degree * copies(strategies), 1)
    edges = (chosen.edge_moments - chosen.moments) / shards
    weights = weight_bytes_of_ends(strategies, scenario) - state.weights
    return state, edges * (1.0 - share_offloaded(strategies, scenario)), weights


def _gathered_ends(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes per parameter of embedding and head that stay gathered through both passes, (N,).

    Both belong to the outermost unit of full sharding.
    """
    gathered = (strategies.zero_stage == SHARDED_PARAMETERS) & ~stays_whole(strategies, scenario)
    return np.where(gathered & scenario.stack.sharding.fsdp_stage2, scenario.word, 0.0)


def _spread(strategies: Strategies, scenario: Scenario, whole: Floats) -> Floats:
    """A stage's share of a ``whole`` vocabulary that is split over the stages, and what it keeps for it, (N,).

    Logits of one micro-batch: a stage makes its gradients of one before it multiplies the next, however long layers
    wait for them. Every stage keeps what its part of the embedding returned for each micro-batch on its way, and of the
    head the input, in fp32 as it arrives too, and two gradients of it (GitHub sail-sg/VocabularyParallelism).
    """
    if not strategies.vocabulary.any():
        return np.zeros(len(strategies))
    width = float(scenario.model.hidden_size) * region_tokens(strategies, scenario)
    held = in_flight_at(strategies, np.zeros_like) + queued(strategies, scenario.stack.pipeline.vocabulary_in_flight)
    passing = scenario.word * held + 3.0 * scenario.word + 4.0
    return (whole / strategies.pp + passing * width) * strategies.vocabulary


def _passing(strategies: Strategies, scenario: Scenario) -> Floats:
    """What named modules repeat, of one layer; and the room that offloaded activations pass through, (N,)."""
    repeated = _of_largest_kind(strategies, scenario, kind_module_bytes)
    away = activations_away(strategies, scenario) == 1.0
    if not away.any():
        return repeated
    return repeated + np.where(away, OFFLOADED_LAYERS * _of_largest_kind(strategies, scenario, kept_bytes_of_kind), 0.0)


def _gathered(strategies: Strategies, scenario: Scenario, average: Floats, kinds: ByKind[LayerBytes] | None) -> Floats:
    """Parameters that ZeRO stage 3 has whole at a time, of an average layer where chunks hold several, (N,)."""
    gathered = average
    if kinds is not None:  # the two at a time may be of the largest kind
        most = (kinds.each("layer_parameters") + kinds.each("expert_parameters")).max(axis=0)
        gathered = np.where(by_chunk(strategies), gathered, most)
    if scenario.stack.sharding.gather_unit == "matrix":
        gathered = np.where(by_chunk(strategies), gathered, np.minimum(gathered, largest_matrix(strategies, scenario)))
    return gathered


_BACK_AT_ONCE = np.array([name in {"none", "1f1b", "interleaved-1f1b"} for name in SCHEDULE_NAMES])
"""Schedules whose last stage passes every micro-batch back as soon as it came, and nothing else meanwhile."""


def _first_peak(strategies: Strategies, scenario: Scenario, moment: Floats, stored: Floats) -> Floats:
    """Bytes by which later moments of the first stage exceed the backward pass's beginning, under the even split, (N,).

    The embedding's gradient, dense and in 16 bits, when all that the stage had kept of its micro-batch is let go; the
    optimizer's step, when nothing is kept. Of what GPipe keeps no more is set against it than 1F1B would keep, so that
    GPipe, which keeps more, needs as much under every split: an uneven or recomputed one may keep less than the even.
    A recomputed layer, gone by then too, is not set against it: a search over how many layers are recomputed compares
    strategies that recompute all with those that recompute some.
    """
    kept = np.where(strategies.recompute >= Recompute.FULL, layer_checkpoint_bytes(strategies, scenario), stored)
    split, twice = even_layers(scenario.model.num_layers, strategies), copies(strategies)
    one = twice * split.high * kept  # of one micro-batch on the stage with the most layers
    embedding = embedding_parameters_per_rank(strategies, scenario)
    parameters = twice * split.first * layer_parameters_per_rank(strategies, scenario) + embedding
    held = in_flight_at(strategies, np.zeros_like)
    held = np.where(strategies.schedule == SCHEDULE_NAMES.index("gpipe"), np.minimum(held, strategies.pp), held)
    step = step_bytes(strategies, scenario) * parameters - held * one
    step = np.where(joined(strategies), step - loss_peak(strategies, scenario), step)
    gradient = scenario.word * vocabulary_rows(strategies, scenario, "embedding") * scenario.model.embedding_width
    gradient = gradient * (not scenario.embedding_frozen) - one / strategies.vpp
    return np.maximum(np.maximum(gradient, step) - moment, 0.0)


def _of_largest_kind(
    strategies: Strategies, scenario: Scenario, of: Callable[[Strategies, Scenario, Kind], Floats]
) -> Floats:
    """Bytes of one layer of the kind that has the most, (N,)."""
    each = [of(strategies, scenario, kind) for kind in scenario.depth.kinds]
    return each[0] if len(each) == 1 else np.max(each, axis=0)


def _by_kind(strategies: Strategies, scenario: Scenario) -> ByKind[LayerBytes] | None:
    """One layer of each kind, where layers differ."""
    depth = scenario.depth
    if depth.uniform:
        return None
    parts = (
        LayerBytes(
            kind_parameters_per_rank(strategies, scenario, kind),
            kind_expert_parameters(strategies, scenario, kind),
            scenario.trained_depth
            * (1.0 - activations_away(strategies, scenario))
            * kind_activation_bytes(strategies, scenario, kind)
            + returned_bytes(strategies, scenario, without_this_pass=True),
        )
        for kind in depth.kinds
    )
    return ByKind(depth, tuple(parts))


def mtp_bytes(strategies: Strategies, scenario: Scenario, expert_state: Floats | float) -> Floats:
    """Layers that predict further tokens: ``expert_state`` per parameter of their experts, and activations, (N,)."""
    model, kind = scenario.model, mtp_kind(scenario.model)
    if not model.mtp_layers:
        return np.zeros(len(strategies))
    experts = mtp_sets(model) * kind_expert_parameters(strategies, scenario, kind)
    stored = model.mtp_layers * kind_activation_bytes(strategies, scenario, kind)
    return experts * expert_state + mtp_in_flight(strategies) * stored


def slack_of(strategies: Strategies, scenario: Scenario) -> Floats:
    """Fragments that the allocator cannot use over what it hands out, (N,)."""
    usual, tensor = scenario.stack.allocator.fragmentation, scenario.stack.calibrated.tensor_fragmentation
    return np.where(strategies.tp > 1, usual if tensor is None else tensor, usual)


@dataclass(frozen=True, slots=True)
class LayerBytes(Columns):
    """Bytes and parameters of one layer of a kind, arrays (N,); the fields are those of ``RowBytes``."""

    layer_parameters: Floats
    expert_parameters: Floats
    stored: Floats
