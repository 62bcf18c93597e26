"""Gradients that come as activations go, and what they leave room for."""

from dataclasses import replace

import numpy as np
import pytest

from costmodels.layout.split import Assignment
from costmodels.memory.limits import device_limit, fresh_gradients, late_bytes, memory_limit, needed_bytes
from costmodels.memory.peaks import step_bytes
from costmodels.names import Recompute
from costmodels.pricing import price_strategy, row_assignment
from costmodels.strategy import strategies
from tests.scenarios import toy_model, toy_scenario, with_experts

SCENARIO = toy_scenario()
ALONE = {"tp": 8, "sequence_parallel": 1, "micro_batch_size": 16, "num_microbatches": 1}


def anew(of=SCENARIO, **fields):
    """The scenario with gradients that are made anew in every step."""
    return replace(of, stack=of.stack.changed({"gradients.set_to_none": True} | fields))


def peak(row, scenario, recomputed=None):
    split = row_assignment(row, scenario.model.num_layers)
    if recomputed is not None:
        split = Assignment(split.layers, np.array([recomputed]))
    return price_strategy(row, scenario, split).footprint


def test_what_is_left_out_is_the_smaller_of_gradients_and_of_what_goes_before_them():
    row = strategies(**ALONE)
    found, kept = peak(row, anew()), peak(row, SCENARIO)
    assert found.late == pytest.approx(np.minimum(found.gradients, found.late))
    assert 0 < found.late[0] <= found.gradients[0]
    slack = anew().stack.allocator.fragmentation
    assert found.total == pytest.approx(kept.total - (1.0 + slack) * found.late)  # no slack of what is never there
    assert found.allocated == pytest.approx(kept.allocated)


def test_gradients_larger_than_all_activations_lie_beside_none_of_them():
    tiny = strategies(**ALONE | {"micro_batch_size": 1})
    found = peak(replace(tiny, recompute=np.array([int(Recompute.FULL)])), anew())
    assert found.late[0] < found.gradients[0]
    assert found.handed_out[0] >= found.weights[0] + found.optimizer[0] + found.gradients[0]


@pytest.mark.parametrize(
    ("axes", "fresh"),
    [
        ({}, True),
        ({"num_microbatches": 2}, False),
        ({"pp": 2, "tp": 4}, False),
        ({"dp": 2, "tp": 4}, False),
        ({"dp": 8, "tp": 1, "sequence_parallel": 0, "zero_stage": 3, "sharding_degree": 8}, True),
    ],
)
def test_they_are_made_anew_for_one_micro_batch_without_buckets(axes, fresh):
    rows = strategies(**ALONE | axes)
    scenario = anew(**{"sharding.fsdp_stage2": True, "sharding.scatters_each_micro_batch": True})
    assert fresh_gradients(rows, scenario) == fresh
    assert (memory_limit(scenario, rows) > device_limit(scenario, rows)) == fresh
    assert not fresh_gradients(rows, SCENARIO)


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
@pytest.mark.parametrize("micro_batch", [1, 16])
@pytest.mark.parametrize("of", [SCENARIO, toy_scenario(model=with_experts(toy_model()))], ids=["dense", "experts"])
def test_a_strategy_fits_by_its_limit_where_it_fits_by_its_peak(recompute, micro_batch, of):
    row, scenario = strategies(**ALONE | {"micro_batch_size": micro_batch, "recompute": int(recompute)}), anew(of)
    found = peak(row, scenario)
    room = memory_limit(scenario, row) - device_limit(scenario, row)
    assert room == pytest.approx(found.late)


def test_what_the_step_takes_is_room_that_late_gradients_have_not():
    row, scenario = strategies(**ALONE), anew(**{"gradients.gradient_bytes": 2, "gradients.flattened_copy": True})
    step = step_bytes(row, scenario)
    assert step > 0
    late = late_bytes(row, scenario, kept=np.array([1000.0]), parameters=np.array([10.0]), gradients=np.array([2000.0]))
    assert late == 1000.0 - 10.0 * step


def test_every_split_of_a_strategy_that_recomputes_some_layers_has_the_room_of_its_limit():
    row, scenario = strategies(**ALONE, recompute=int(Recompute.PARTIAL)), anew()
    room = (memory_limit(scenario, row) - device_limit(scenario, row))[0]
    for recomputed in (0, 3, scenario.model.num_layers):
        assert peak(row, scenario, recomputed).late[0] == pytest.approx(room)


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
@pytest.mark.parametrize("slack", [0.0, 0.3])
def test_total_bytes_and_limits_are_one_rule(recompute, slack):
    row, scenario = strategies(**ALONE, recompute=int(recompute)), anew(**{"allocator.fragmentation": slack})
    found = peak(row, scenario)
    assert needed_bytes(row, scenario, found.allocated) == pytest.approx(found.total)
    for usable in found.total[0] * np.array([0.999, 1.001]):
        device = scenario.group.accelerator.model_copy(update={"usable_memory": usable})
        small = replace(scenario, group=scenario.group.model_copy(update={"accelerator": device}))
        fits = bool(found.total[0] <= usable)
        assert bool(found.handed_out[0] <= device_limit(small, row)[0]) == fits
        assert bool(found.allocated[0] <= memory_limit(small, row)[0]) == fits
