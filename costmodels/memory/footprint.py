"""The memory of one strategy, stage by stage and by cause, and what a device would show of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from costmodels.layout.layers_by_kind import stage_layers
from costmodels.layout.parameters_per_rank import kind_expert_parameters
from costmodels.layout.split import Assignment
from costmodels.layout.stage_contents import copies, ends, in_flight, of_both_ways
from costmodels.memory.allocator import (
    embedding_gradient_bytes,
    gather_buffer_bytes,
    gather_list_bytes,
    gradient_copy_bytes,
    logits_block_bytes,
    unreleased_sums,
)
from costmodels.memory.limits import late_bytes, late_gradients
from costmodels.memory.rows import RowBytes, mtp_bytes, slack_of
from costmodels.model.layer_kinds import mtp_kind
from costmodels.model.parameters import mtp_sets
from costmodels.names import Recompute
from costmodels.scenario import Scenario
from costmodels.step.gathered import largest_matrix
from costmodels.strategy import Floats, Ints, Strategies


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
    reclaimable: NDArray[np.float64]
    """What the allocator reserves further and gives back before it fails, so that it counts in readings alone."""
    late: NDArray[np.float64]
    """Of the gradients: what comes as activations and logits go, and never coexists with them."""

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
        return self.handed_out + self.slack + self.reserved


def readings(peak: Footprint, scenario: Scenario) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bytes that the allocator has taken of the device at the end, and that the device shows in use, each (pp,).

    The allocator keeps what it took once, as long as the device has room.
    """
    usable = scenario.group.accelerator.usable_memory
    taken = (1.0 + scenario.stack.calibrated.cached_share) * peak.allocated + peak.reclaimable
    shown = np.minimum(taken + peak.reserved, np.maximum(usable, peak.total))
    return shown - peak.reserved, shown


def footprint(
    strategies: Strategies, memory: RowBytes, scenario: Scenario, *, row: int, layers: Ints, recomputed: Ints
) -> Footprint:
    """The memory of every stage of one of the strategies under a given split, arrays (pp,)."""
    one = np.array([row])
    (found,) = footprints(strategies.take(one), memory.take(one), scenario, [Assignment(layers, recomputed)])
    return found


def footprints(
    strategies: Strategies, memory: RowBytes, scenario: Scenario, splits: Sequence[Assignment]
) -> list[Footprint]:
    """The memory of every stage of N strategies, each under its own split, which costs little more than one's."""
    counts = [len(split.layers) for split in splits]
    every, stages = np.repeat(np.arange(len(splits)), counts), np.concatenate([np.arange(pp) for pp in counts])
    by_stage, at = strategies, memory
    if len(every) > len(splits):
        by_stage, at = strategies.take(every), memory.take(every)  # the same strategy for every stage
    sums = _stage_sums(strategies, memory, at, scenario, splits)
    layers = np.concatenate([split.layers for split in splits])
    found = _peaks(by_stage, at, scenario, stages=stages, layers=layers, sums=sums)
    columns, after = [getattr(found, field.name) for field in fields(Footprint)], accumulate(counts)
    return [Footprint(*(column[end - pp : end] for column in columns)) for pp, end in zip(counts, after, strict=True)]


def _peaks(
    by_stage: Strategies,
    at: RowBytes,
    scenario: Scenario,
    *,
    stages: Ints,
    layers: Ints,
    sums: tuple[Floats, Floats, Floats, Floats],
) -> Footprint:
    """The memory of M stages that hold so many ``layers``, with the ``_stage_sums`` of these."""
    twice, (first, last) = copies(by_stage), ends(by_stage, stages)
    parameters, experts, stored, again = sums
    outer = first * at.embedding_parameters, last * at.head_parameters
    params = twice * parameters + outer[0] + outer[1]
    model, mtp = scenario.model, mtp_kind(scenario.model)
    experts = twice * experts + last * mtp_sets(model) * kind_expert_parameters(by_stage, scenario, mtp)
    kept, moment = _activations(by_stage, at, scenario, stages=stages, stored=stored, again=again)
    weights = params * at.state.weights + experts * at.expert_state.weights + (at.everywhere - at.passing)
    weights = weights + (outer[0] + outer[1]) * at.end_weights_extra
    gradients = params * at.state.gradients + experts * at.expert_state.gradients
    optimizer = params * at.state.optimizer + experts * at.expert_state.optimizer
    optimizer = optimizer + (outer[0] + outer[1]) * at.end_optimizer_extra
    activations, logits = kept + moment, last * at.logits
    reserved = np.full(len(stages), scenario.stack.allocator.reserved)
    reclaimable = _reclaimable(by_stage, at, scenario, stages, layers=layers, parameters=params + experts, outer=outer)
    gone = kept + logits - (again > 0) * last * at.logits_released
    late = late_bytes(by_stage, scenario, kept=gone, parameters=params + experts, gradients=gradients)
    if (partly := by_stage.recompute == Recompute.PARTIAL).any():
        late = np.where(partly, np.minimum(late, late_gradients(by_stage, scenario)), late)
    slack = slack_of(by_stage, scenario) * (weights + gradients + optimizer + activations + logits - late)
    found = Footprint(weights, gradients, optimizer, activations, logits, slack, reserved, reclaimable, late)
    listed = gather_list_bytes(by_stage, scenario, parameters=params + experts, optimizer=optimizer, last=last)
    fits = found.total + reclaimable + listed <= scenario.group.accelerator.usable_memory
    # Else all is given back once, and activations share what it left.
    return replace(found, reclaimable=reclaimable + np.where(fits, listed, 0.0))


def _activations(
    by_stage: Strategies, at: RowBytes, scenario: Scenario, *, stages: Ints, stored: Floats, again: Floats
) -> tuple[Floats, Floats]:
    """What forward passes in flight keep on every stage, and what lives for a moment, each (M,).

    ``stored`` is what a micro-batch leaves on the stage, ``again`` how many of its layers are recomputed.
    """
    held, (first, last) = in_flight(by_stage, stages) + at.queued, ends(by_stage, stages)
    kept = held * (stored + again * at.checkpoint + first * at.embedding_activation / copies(by_stage))
    kept = kept + last * mtp_bytes(by_stage, scenario, 0.0)
    return kept, first * at.first_peak + at.passing + (again > 0) * at.working_at(last)


def _reclaimable(
    by_stage: Strategies,
    at: RowBytes,
    scenario: Scenario,
    stages: Ints,
    *,
    layers: Ints,
    parameters: Floats,
    outer: tuple[Floats, Floats],
) -> Floats:
    """What the allocator has reserved beyond the peak on every stage, (M,), but for lists of the whole stage's states.

    ``parameters`` are all of a stage, ``outer`` those of its embedding and of its head.
    """
    first, last = ends(by_stage, stages)
    largest = np.maximum(largest_matrix(by_stage, scenario), np.maximum(*outer))
    scattered = first * (by_stage.vocabulary == 0) * embedding_gradient_bytes(by_stage, scenario)
    flat = gradient_copy_bytes(by_stage, scenario, parameters, largest=largest, scattered=scattered)
    taken = np.maximum(flat - first * at.first_peak, 0.0)
    taken = taken + unreleased_sums(by_stage, scenario, copies(by_stage) * layers / by_stage.vpp, first=first)
    layer = at.layer_parameters + at.expert_parameters
    taken = taken + gather_buffer_bytes(by_stage, scenario, layer=layer, ends=outer)
    return taken + last * (by_stage.vocabulary == 0) * logits_block_bytes(by_stage, scenario)


def _stage_sums(
    strategies: Strategies, memory: RowBytes, at: RowBytes, scenario: Scenario, splits: Sequence[Assignment]
) -> tuple[Floats, Floats, Floats, Floats]:
    """Of the layers that a micro-batch passes on every stage of the strategies, (M,).

    Parameters, parameters of experts, stored activations of the micro-batch, and how many are recomputed.
    """
    if memory.kinds is None:
        both = [(split.layers, split.recomputed) for split in splits]
        passed, again = (
            np.concatenate([of_both_ways(held, twice) for held, twice in zip(part, copies(strategies), strict=True)])
            for part in zip(*both, strict=True)
        )
        return passed * at.layer_parameters, passed * at.expert_parameters, (passed - again) * at.stored, again
    each = [memory.kinds.each(name) for name in ("layer_parameters", "expert_parameters", "stored")]
    sums = []
    for row, split in enumerate(splits):
        held, repeated = stage_layers(strategies, scenario.depth, split.layers, split.recomputed, row=row)
        parameters, experts, stored = (part[:, row] for part in each)
        sums.append((held @ parameters, held @ experts, (held - repeated) @ stored, repeated.sum(axis=1)))
    parameters, experts, stored, again = map(np.concatenate, zip(*sums, strict=True))
    return parameters, experts, stored, again
