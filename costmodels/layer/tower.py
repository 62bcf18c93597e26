"""A vision tower: seconds of a micro-batch's images, and of the projection of its output.

It stands on the first stage, in front of the embedding. Tensor ranks split its layers as they split the decoder's;
context ranks each encode all images of their sequences. A frozen one runs forward only.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from costmodels.layer.blocks import kind_seconds
from costmodels.layer.forward_backward import Passes, linear, no_passes
from costmodels.model.layer_kinds import DENSE
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Strategies


def of_images(strategies: Strategies, scenario: Scenario) -> Strategies:
    """The strategies with images in place of sequences."""
    images = strategies.micro_batch_size * scenario.stack.switches.images_per_sample * scenario.task.sequences
    return replace(strategies, micro_batch_size=images, cp=np.ones_like(strategies.cp))


def tower_seconds(strategies: Strategies, scenario: Scenario) -> Passes:
    """The tower and its projection for the images of one micro-batch, (N,); the projection trains with the decoder."""
    tower, model = scenario.tower, scenario.model.tower
    if tower is None or model is None:
        return no_passes(strategies)
    images = of_images(strategies, scenario)
    layer = kind_seconds(images, tower, DENSE)
    layers = model.num_layers * (layer.compute + layer.tp)
    rows = images.micro_batch_size * scenario.image_tokens / strategies.tp
    out = scenario.model.hidden_size
    projected = linear(rows, float(out), model.projection / out, scenario)
    if scenario.frozen:
        projected = Passes(projected.forward, np.zeros(len(strategies)))
    if not scenario.tower_trains:
        layers = Passes(layers.forward, np.zeros(len(strategies)))
    return layers + projected


def repeated_tower_seconds(strategies: Strategies, scenario: Scenario) -> Floats:
    """Forward seconds that full recomputation repeats of a tower that trains, (N,)."""
    if scenario.tower is None or scenario.model.tower is None or not scenario.tower_trains:
        return np.zeros(len(strategies))
    layer = kind_seconds(of_images(strategies, scenario), scenario.tower, DENSE)
    return scenario.model.tower.num_layers * (layer.compute + layer.tp).forward
