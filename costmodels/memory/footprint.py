"""The memory of one strategy, stage by stage and by cause, and what a device would show of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodels.layout.layers_by_kind import stage_layers
from costmodels.layout.parameters_per_rank import kind_expert_parameters
from costmodels.layout.stage_contents import copies, ends, in_flight, of_both_ways
from costmodels.memory.allocator import (
    buffer_bytes,
    flat_bytes,
    idle_bytes,
    listed_bytes,
    scattered_bytes,
    waiting_bytes,
)
from costmodels.memory.peaks import step_bytes
from costmodels.memory.rows import RowBytes, mtp_bytes, slack_of
from costmodels.model.layer_kinds import mtp_kind
from costmodels.model.parameters import mtp_sets
from costmodels.names import SHARDED_GRADIENTS
from costmodels.scenario import Scenario
from costmodels.step.gathered import largest_matrix
from costmodels.strategy import Bools, Floats, Ints, Strategies


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of one strategy by cause, one array element per stage, shape (pp,)."""

    weights: NDArray[np.float64]
    gradients: NDArray[np.float64]
    optimizer: NDArray[np.float64]
    activations: NDArray[np.float64]
    logits: NDArray[np.float64]
    slack: NDArray[np.float64]
    reserved: NDArray[np.float64]
    waiting: NDArray[np.float64]
    """What the allocator has taken beside and gives back before it fails, so that it counts in readings alone."""
    late: NDArray[np.float64]
    """Of the gradients: what comes as activations go, out of another pool than theirs."""

    @property
    def handed_out(self) -> NDArray[np.float64]:
        """What the allocator hands out at most at one time, which is what frameworks log as allocated."""
        return self.allocated - self.late

    @property
    def allocated(self) -> NDArray[np.float64]:
        """What the framework's allocator takes of the device at its peak, the pools of its streams together."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits

    @property
    def total(self) -> NDArray[np.float64]:
        """What the device must have."""
        return self.allocated + self.slack + self.reserved


def readings(peak: Footprint, scenario: Scenario) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bytes that the allocator has taken of the device at the end, and that the device shows in use, each (pp,).

    The allocator keeps what it took once, as long as the device has room.
    """
    usable = scenario.group.accelerator.usable_memory
    taken = (1.0 + scenario.stack.calibrated.cached_share) * peak.allocated + peak.waiting
    shown = np.minimum(taken + peak.reserved, np.maximum(usable, peak.total))
    return shown - peak.reserved, shown


def footprint(
    rows: Strategies, memory: RowBytes, scenario: Scenario, *, row: int, layers: Ints, recomputed: Ints
) -> Footprint:
    """The memory of every stage of one row under a given split, arrays (pp,)."""
    pp = len(layers)
    one = rows.take(np.full(pp, row))
    twice, (first, last) = float(copies(one)[0]), ends(one, np.arange(pp))
    parameters, experts, stored, again = _stage_sums(
        one, memory, scenario, row=row, layers=layers, recomputed=recomputed
    )
    outer = first * memory.embedding_parameters[row], last * memory.head_parameters[row]
    params = twice * parameters + outer[0] + outer[1]
    model, ahead = scenario.model, mtp_kind(scenario.model)
    experts = twice * experts + last * mtp_sets(model) * kind_expert_parameters(one, scenario, ahead)
    state, expert_state = memory.state, memory.expert_state
    kept, moment = _activations(one, memory, scenario, row=row, stored=stored, again=again)
    activations = kept + moment
    whole = memory.everywhere[row] - memory.passing[row]
    weights = params * state.weights[row] + experts * expert_state.weights[row] + whole
    weights = weights + (outer[0] + outer[1]) * memory.end_weights_extra[row]
    gradients = params * state.gradients[row] + experts * expert_state.gradients[row]
    optimizer = params * state.optimizer[row] + experts * expert_state.optimizer[row]
    optimizer = optimizer + (outer[0] + outer[1]) * memory.end_optimizer_extra[row]
    logits = last * memory.logits[row]
    slack = slack_of(one, scenario) * (weights + gradients + optimizer + activations + logits)
    reserved = np.full(pp, scenario.stack.allocator.reserved)
    waiting = _waiting(one, memory, scenario, row=row, layers=layers, parameters=params + experts, outer=outer)
    step = step_bytes(one, scenario) * (params + experts)  # which all gradients stand beside
    late = np.where(_fresh_gradients(one, scenario), np.clip(kept - step, 0.0, gradients), 0.0)
    found = Footprint(weights, gradients, optimizer, activations, logits, slack, reserved, waiting, late)
    listed = listed_bytes(one, scenario, parameters=params + experts, optimizer=optimizer, last=last)
    fits = found.total + waiting + listed <= scenario.group.accelerator.usable_memory
    # Else all is given back once, and activations share what it left.
    return replace(found, waiting=waiting + np.where(fits, listed, 0.0))


def _fresh_gradients(one: Strategies, scenario: Scenario) -> Bools:
    """Whether gradients come only as activations go, (pp,): one micro-batch, and PyTorch makes them anew for it.

    ``zero_grad`` lets go those of the step before, and a backward pass makes each layer's as its activations go; full
    sharding in a pool of the reductions' own stream, so that the allocator has taken both [FSDP1] [FSDP2]. DDP has
    buckets of all of them, which stay.
    """
    stack = scenario.stack
    scattered = (one.zero_stage >= SHARDED_GRADIENTS) & (
        stack.sharding.fsdp_stage2 and stack.sharding.scatters_each_micro_batch
    )
    alone = (one.zero_stage < SHARDED_GRADIENTS) & (one.dp * one.cp == 1)
    return stack.gradients.set_to_none & (one.num_microbatches == 1) & (one.pp == 1) & (scattered | alone)


def _activations(
    one: Strategies, memory: RowBytes, scenario: Scenario, *, row: int, stored: Floats, again: Floats
) -> tuple[Floats, Floats]:
    """What forward passes in flight keep on every stage, and what lives for a moment, each (pp,).

    ``stored`` is what a micro-batch leaves on the stage, ``again`` how many of its layers are recomputed.
    """
    stages = np.arange(len(one))
    held, (first, last) = in_flight(one, stages) + memory.queued[row], ends(one, stages)
    embedding = first * memory.embedding_activation[row] / copies(one)
    kept = held * (stored + again * memory.checkpoint[row] + embedding)
    kept = kept + last * mtp_bytes(one, scenario, 0.0)
    moment = first * memory.first_peak[row] + memory.passing[row]
    return kept, moment + (again > 0) * memory.take(np.full(len(one), row)).working_at(last)


def _waiting(
    one: Strategies,
    memory: RowBytes,
    scenario: Scenario,
    *,
    row: int,
    layers: Ints,
    parameters: Floats,
    outer: tuple[Floats, Floats],
) -> Floats:
    """What the allocator has taken beside the peak on every stage, (pp,), but for lists of the whole stage's states.

    ``parameters`` are all of a stage, ``outer`` those of its embedding and of its head.
    """
    first, last = ends(one, np.arange(len(one)))
    largest = np.maximum(largest_matrix(one, scenario), np.maximum(*outer))
    scattered = first * (one.vocabulary == 0) * scattered_bytes(one, scenario)
    flat = flat_bytes(one, scenario, parameters, largest=largest, scattered=scattered)
    waiting = np.maximum(flat - first * memory.first_peak[row], 0.0)
    waiting = waiting + waiting_bytes(one, scenario, copies(one) * layers / one.vpp, first=first)
    layer = np.full(len(one), memory.layer_parameters[row] + memory.expert_parameters[row])
    waiting = waiting + buffer_bytes(one, scenario, layer=layer, ends=outer)
    return waiting + last * (one.vocabulary == 0) * idle_bytes(one, scenario)


def _stage_sums(
    one: Strategies, memory: RowBytes, scenario: Scenario, *, row: int, layers: Ints, recomputed: Ints
) -> tuple[Floats, Floats, Floats, Floats]:
    """Of each stage's layers that a micro-batch passes, (pp,).

    Parameters, parameters of experts, stored activations of the micro-batch, and how many are recomputed.
    """
    if memory.kinds is None:
        passed, again = (of_both_ways(held, float(copies(one)[0])) for held in (layers, recomputed))
        kept = (passed - again) * memory.stored[row]
        return passed * memory.layer_parameters[row], passed * memory.expert_parameters[row], kept, again
    held, repeated = stage_layers(one, scenario.depth, layers, recomputed)
    part = {name: memory.kinds.each(name)[:, row] for name in ("layer_parameters", "expert_parameters", "stored")}
    kept = (held - repeated) @ part["stored"]
    return held @ part["layer_parameters"], held @ part["expert_parameters"], kept, repeated.sum(axis=1)
