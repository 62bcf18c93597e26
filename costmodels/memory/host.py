"""The host's memory: what of a device's data is offloaded there, and whether it fits."""

from __future__ import annotations

import numpy as np

from costmodels.layout.split import even_layers
from costmodels.layout.stage_contents import in_flight_at, queued
from costmodels.memory.activations import kept_bytes_of_layer
from costmodels.names import WORD
from costmodels.scenario import Scenario
from costmodels.stack.optimizers import kept_bytes
from costmodels.step.offload import EVERYTHING, activations_away, share_offloaded, updated_parameters
from costmodels.strategy import Bools, Floats, Strategies


def host_room(scenario: Scenario) -> float:
    """Bytes of the host's memory per device; 0 where the cluster does not say."""
    return (scenario.group.host_memory or 0.0) / scenario.group.gpus_per_node


def host_fits(strategies: Strategies, scenario: Scenario) -> Bools:
    """Whether what is offloaded fits the host's memory, shape (N,)."""
    if not strategies.offload.any():
        return np.ones(len(strategies), dtype=np.bool_)
    return host_need(strategies, scenario) <= host_room(scenario)


def host_need(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes of the host's memory that one device's offloaded data take, under the even split's heaviest stage, (N,).

    With the states lie the gradients that the CPUs read, and where parameters are offloaded these too.
    """
    stack, mine = scenario.stack, updated_parameters(strategies, scenario)
    states = mine * share_offloaded(strategies, scenario) * (kept_bytes(stack) + stack.gradients.gradient_bytes)
    parameters = np.where(strategies.offload == EVERYTHING, mine * WORD, 0.0)
    held = in_flight_at(strategies, np.zeros_like) + queued(strategies, stack.pipeline.vocabulary_in_flight)
    layers = even_layers(scenario.model.num_layers, strategies).high
    activations = activations_away(strategies, scenario) * held * layers
    (away,) = np.nonzero(activations)
    activations[away] *= kept_bytes_of_layer(strategies.take(away), scenario)
    return states + parameters + activations
