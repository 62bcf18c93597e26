"""The memory of one strategy, stage by stage and by cause, and what a device would show of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodels.by_kind import stage_layers
from costmodels.experts import kind_expert_parameters
from costmodels.gathered import largest_matrix
from costmodels.layer_kinds import ahead_kind
from costmodels.memory import RowBytes, ahead_bytes, slack_of
from costmodels.parameters import mtp_sets
from costmodels.pieces import copies, ends, in_flight, of_both_ways
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Ints, Strategies
from costmodels.waiting import buffer_bytes, flat_bytes, idle_bytes, listed_bytes, scattered_bytes, waiting_bytes


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

    @property
    def allocated(self) -> NDArray[np.float64]:
        """What the framework's allocator hands out at its peak."""
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
    taken = (1.0 + scenario.stack.cache) * peak.allocated + peak.waiting
    shown = np.minimum(taken + peak.reserved, np.maximum(usable, peak.total))
    return shown - peak.reserved, shown


def footprint(
    rows: Strategies, memory: RowBytes, scenario: Scenario, *, row: int, layers: Ints, recomputed: Ints
) -> Footprint:
    """The memory of every stage of one row under a given split, arrays (pp,)."""
    pp = len(layers)
    stages = np.arange(pp)
    one = rows.take(np.full(pp, row))
    held, twice = in_flight(one, stages) + memory.queued[row], float(copies(one)[0])
    first, last = ends(one, stages)
    parameters, experts, stored, again = _stage_sums(
        one, memory, scenario, row=row, layers=layers, recomputed=recomputed
    )
    params = twice * parameters + first * memory.embedding_parameters[row] + last * memory.head_parameters[row]
    model, ahead = scenario.model, ahead_kind(scenario.model)
    experts = twice * experts + last * mtp_sets(model) * kind_expert_parameters(one, scenario, ahead)
    state, expert_state = memory.state, memory.expert_state
    activations = held * (stored + again * memory.checkpoint[row] + first * memory.embedding_activation[row] / twice)
    activations = activations + last * ahead_bytes(one, scenario, 0.0) + first * memory.first_peak[row]
    activations = activations + (again > 0) * memory.take(np.full(pp, row)).working_at(last) + memory.passing[row]
    whole = memory.everywhere[row] - memory.passing[row]
    outer = first * memory.embedding_parameters[row], last * memory.head_parameters[row]
    weights = params * state.weights[row] + experts * expert_state.weights[row] + whole
    weights = weights + (outer[0] + outer[1]) * memory.edge_weights[row]
    gradients = params * state.gradients[row] + experts * expert_state.gradients[row]
    optimizer = params * state.optimizer[row] + experts * expert_state.optimizer[row]
    optimizer = optimizer + (outer[0] + outer[1]) * memory.edges[row]
    logits = last * memory.logits[row]
    slack = slack_of(one, scenario) * (weights + gradients + optimizer + activations + logits)
    largest = np.maximum(largest_matrix(one, scenario), np.maximum(*outer))
    peak = first * memory.first_peak[row]
    scattered = first * (one.vocabulary == 0) * scattered_bytes(one, scenario)
    flat = flat_bytes(one, scenario, params + experts, largest=largest, scattered=scattered)
    waiting = np.maximum(flat - peak, 0.0)
    waiting = waiting + waiting_bytes(one, scenario, copies(one) * layers / one.vpp, first=first)
    layer = np.full(pp, memory.layer_parameters[row] + memory.expert_parameters[row])
    waiting = waiting + buffer_bytes(one, scenario, layer=layer, ends=outer)
    waiting = waiting + last * (one.vocabulary == 0) * idle_bytes(one, scenario)
    reserved = np.full(pp, scenario.stack.reserved)
    needed = (weights + gradients + optimizer + activations + logits) + slack + reserved + waiting
    listed = listed_bytes(one, scenario, parameters=params + experts, optimizer=optimizer, last=last)
    fits = needed + listed <= scenario.group.accelerator.usable_memory
    waiting = waiting + np.where(fits, listed, 0.0)  # else all is given back once, and activations share what it left
    return Footprint(weights, gradients, optimizer, activations, logits, slack, reserved, waiting)


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
