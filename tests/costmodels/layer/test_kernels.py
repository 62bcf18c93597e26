"""The kernels of a layer add up to its price, and multiply what the model has."""

import numpy as np
import pytest
from hypothesis import given, settings

from costmodels.layer.blocks import kind_seconds
from costmodels.layer.kernels import layer_kernels
from costmodels.model.flops import attention_flops, kind_matmul_weights
from costmodels.model.layer_kinds import DENSE
from costmodels.strategy import strategies
from tests.drawn import drawn_scenarios
from tests.scenarios import random_rows, toy_model, toy_scenario


def summed(kernels, part, way):
    return sum(getattr(getattr(kernel, part), way) for kernel in kernels)


@given(scenario=drawn_scenarios())
@settings(deadline=None)
def test_kernels_take_what_the_layer_takes(scenario):
    rows = random_rows(scenario, 8, seed=1)
    for kind in scenario.depth.kinds:
        kernels, layer = layer_kernels(rows, scenario, kind), kind_seconds(rows, scenario, kind)
        priced = layer.matmul + layer.attention + layer.stream
        for way in ("forward", "backward"):
            assert summed(kernels, "seconds", way) == pytest.approx(getattr(priced, way), rel=1e-9)


def test_kernels_of_a_dense_layer_multiply_its_weights_and_pairs():
    scenario = toy_scenario(model=toy_model(num_layers=1))
    rows = strategies(tp=np.array([1, 2]), micro_batch_size=np.array([1, 3]))
    kernels = layer_kernels(rows, scenario, DENSE)
    tokens = scenario.seq_length * rows.micro_batch_size
    per_token = 2.0 * kind_matmul_weights(scenario.model, DENSE)
    products = [kernel for kernel in kernels if kernel.kind == "product"]
    assert summed(products, "flops", "forward") * rows.tp == pytest.approx(per_token * tokens)
    assert summed(products, "flops", "backward") == pytest.approx(2.0 * summed(products, "flops", "forward"))
    fused = scenario.rates.attention is not None
    pairs = attention_flops(scenario.model, seq_length=scenario.seq_length, causal=fused)
    core = next(kernel for kernel in kernels if kernel.kind == "attention")
    assert core.flops.forward * rows.tp == pytest.approx(pairs * tokens)


def test_the_products_of_a_backward_pass_move_what_two_of_the_forward_pass_do():
    kernels = layer_kernels(strategies(tp=np.array([1, 2])), toy_scenario(), DENSE)
    products = [kernel for kernel in kernels if kernel.kind == "product"]
    forward, backward = (summed(products, "traffic", way) for way in ("forward", "backward"))
    assert backward == pytest.approx(2.0 * forward)


@given(scenario=drawn_scenarios())
@settings(deadline=None)
def test_no_kernel_reaches_beyond_the_roofs(scenario):
    """Neither more FLOP per second than the device has, nor more bytes."""
    rows, device = random_rows(scenario, 8, seed=1), scenario.group.accelerator
    peak = max(device.peak_rate(scenario.recipe.arithmetic), device.half_rate)
    for kind in scenario.depth.kinds:
        for kernel in layer_kernels(rows, scenario, kind):
            if kernel.kind == "product":
                assert (kernel.flops.forward <= 1.001 * peak * kernel.seconds.forward).all(), kernel.name
