"""What a device has room for: bytes that may be handed out, and gradients that come as activations go."""

from __future__ import annotations

import numpy as np

from costmodels.memory.autocast import is_autocast
from costmodels.memory.peaks import step_bytes
from costmodels.memory.rows import row_bytes, slack_of
from costmodels.names import SHARDED_GRADIENTS, Recompute
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats, Strategies


def device_limit(scenario: Scenario, strategies: Strategies) -> Floats:
    """Bytes that the allocator may hand out, (N,): usable memory less the reserve, less the allocator's slack."""
    usable = scenario.group.accelerator.usable_memory
    return (usable - scenario.stack.allocator.reserved) / (1.0 + slack_of(strategies, scenario))


def memory_limit(scenario: Scenario, strategies: Strategies) -> Floats:
    """Bytes that states and activations may add up to, (N,): what may be handed out, and gradients that come late."""
    return device_limit(scenario, strategies) + late_gradients(strategies, scenario)


def needed_bytes(strategies: Strategies, scenario: Scenario, allocated: Floats) -> Floats:
    """Bytes that the device must have for strategies whose fullest stage allocates so much, late gradients too, (N,).

    The rule of ``memory_limit`` and of ``Footprint.total`` said of bytes: the slack is of what may be handed out.
    """
    handed_out = allocated - late_gradients(strategies, scenario)
    return handed_out * (1.0 + slack_of(strategies, scenario)) + scenario.stack.allocator.reserved


def late_gradients(strategies: Strategies, scenario: Scenario) -> Floats:
    """``late_bytes`` of every strategy, (N,).

    Of those that recompute some layers as if all were, so that every split has room for so many.
    """
    late = np.zeros(len(strategies))
    places = np.flatnonzero(fresh_gradients(strategies, scenario))
    if not places.size:
        return late
    rows, layers = strategies.take(places), float(scenario.model.num_layers)
    memory, again = row_bytes(rows, scenario), rows.recompute >= Recompute.FULL
    kept = layers * np.where(again, np.minimum(memory.checkpoint, memory.stored), memory.stored)
    dense = layers * memory.layer_parameters + memory.embedding_parameters + memory.head_parameters
    experts = layers * memory.expert_parameters
    late[places] = late_bytes(
        rows,
        scenario,
        kept=kept + memory.logits - again * memory.logits_released,
        parameters=dense + experts,
        gradients=dense * memory.state.gradients + experts * memory.expert_state.gradients,
    )
    return late


def fresh_gradients(strategies: Strategies, scenario: Scenario) -> Bools:
    """Whether gradients come only as activations go, (N,): one micro-batch, and PyTorch makes them anew for it.

    ``zero_grad`` lets go those of the step before, and a backward pass makes each layer's as its activations go; full
    sharding in a pool of the reductions' own stream [FSDP1] [FSDP2], for which an allocator without room gives back
    what the other pool no longer needs (``release_cached_blocks`` of PyTorch). DDP has buckets of all of them, which
    stay.
    """
    stack = scenario.stack
    fully = stack.sharding.fsdp_stage2 and stack.sharding.scatters_each_micro_batch
    pooled = np.where(strategies.zero_stage >= SHARDED_GRADIENTS, fully, strategies.dp * strategies.cp == 1)
    return stack.gradients.set_to_none & (strategies.num_microbatches == 1) & (strategies.pp == 1) & pooled


def late_bytes(
    strategies: Strategies, scenario: Scenario, *, kept: Floats, parameters: Floats, gradients: Floats
) -> Floats:
    """Bytes of ``gradients`` that never coexist with the ``kept`` activations and logits, (N,).

    The optimizer's step, during which all gradients exist, takes room of its own. Under autocast the casts of weights
    go as activations do.

    Args:
        strategies: (N,) of them, or of one for every stage.
        scenario: model, stack and precision.
        kept: bytes that a backward pass has let go by its end.
        parameters: on the rank.
        gradients: their bytes.
    """
    step = step_bytes(strategies, scenario) * parameters
    kept = kept + scenario.word * is_autocast(strategies, scenario) * parameters
    return np.where(fresh_gradients(strategies, scenario), np.clip(kept - step, 0.0, gradients), 0.0)
