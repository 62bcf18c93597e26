"""Bytes of a vision tower on the first stage: weights where it is frozen, what it keeps of images where it trains."""

from __future__ import annotations

import numpy as np

from costmodels.layer.tower import of_images
from costmodels.layout.parameters_per_rank import tower_parameters
from costmodels.memory.activations import kept_bytes_of_kind
from costmodels.model.layer_kinds import DENSE
from costmodels.names import SHARDED_PARAMETERS
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Strategies


def frozen_tower_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes of a frozen tower's weights, (N,), sharded where ZeRO shards parameters.

    Those of one that trains are with the embedding's states.
    """
    shards = np.where(strategies.zero_stage >= SHARDED_PARAMETERS, strategies.sharding_degree, 1)
    return scenario.word * tower_parameters(strategies, scenario, trained=False) / shards


def image_activation_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes that a tower that trains keeps of one micro-batch's images, (N,); its layers' inputs where it repeats."""
    if scenario.tower is None or not scenario.tower_trains:
        return np.zeros(len(strategies))
    images = of_images(strategies, scenario)
    return scenario.tower.model.num_layers * kept_bytes_of_kind(images, scenario.tower, DENSE)
