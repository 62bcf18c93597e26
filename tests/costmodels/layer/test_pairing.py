"""Experts' traffic overlapped with the computation of another micro-batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.layer.blocks import kind_seconds
from costmodels.layer.forward_backward import Passes
from costmodels.layer.launches import exposed_launches, launch_floor
from costmodels.layer.overlapped_experts import exposed_seconds, further_axes, is_overlapped, unpaired_share
from costmodels.model.layer_kinds import EXPERTS
from costmodels.names import SCHEDULE_NAMES
from costmodels.strategy import strategies
from tests.drawn import drawn_expert_models, drawn_scenarios
from tests.scenarios import random_rows, toy_stack

LEFT = 0.25


def alone(*, pp=1, vpp=1, num_microbatches=4):
    schedule = SCHEDULE_NAMES.index("interleaved-1f1b" if vpp > 1 else "1f1b") if pp > 1 else 0
    return unpaired_share(strategies(pp=pp, vpp=vpp, num_microbatches=num_microbatches, schedule=schedule))[0]


def passes(forward, backward):
    return Passes(np.full(1, forward), np.full(1, backward))


def beside(traffic, layer, experts):
    stack = toy_stack(overlap={"ep": LEFT})
    return exposed_seconds(passes(*traffic), layer=passes(*layer), experts=passes(*experts), stack=stack)


def exposed(traffic, layer, experts):
    return beside(traffic, layer, experts)[0]


def test_a_single_micro_batch_has_nothing_to_hide_behind():
    assert alone(num_microbatches=1) == pytest.approx(1.0)


def test_one_of_m_micro_batches_has_no_partner():
    assert alone(num_microbatches=8) == pytest.approx(1 / 8)


def test_passes_that_fill_the_pipeline_have_none_either_and_fewer_do_in_chunks():
    assert alone(pp=4, num_microbatches=8) == pytest.approx(4 / 11)
    assert alone(pp=4, vpp=3, num_microbatches=8) == pytest.approx(2 / 9)


def test_traffic_that_every_part_outlasts_costs_the_units_that_it_takes():
    beside = exposed((2.0, 4.0), layer=(20.0, 40.0), experts=(10.0, 20.0))
    assert beside.forward == pytest.approx(LEFT * 2.0)
    assert beside.backward == pytest.approx(LEFT * 4.0)


def test_each_exchange_hides_behind_the_part_that_runs_beside_it_and_no_other():
    """Attention forward takes 1 second, during the 3 seconds of the other micro-batch's combine; experts are long."""
    beside = exposed((6.0, 6.0), layer=(101.0, 110.0), experts=(100.0, 100.0))
    assert beside.forward == pytest.approx(LEFT * 6.0)
    assert beside.backward == pytest.approx((3.0 - 1.0 + LEFT * 1.0) + LEFT * 3.0)


def test_the_pass_that_computes_is_the_one_whose_computation_is_taken():
    """Attention forward, of 1 second, is all taken by the 3 seconds of the combine backward."""
    taken = beside((8.0, 6.0), layer=(101.0, 110.0), experts=(100.0, 100.0))[1]
    assert taken.forward == pytest.approx(1.0 + 3.0)
    assert taken.backward == pytest.approx(4.0 + 4.0)


def test_without_computation_all_of_it_is_exposed():
    beside = exposed((2.0, 4.0), layer=(0.0, 0.0), experts=(0.0, 0.0))
    assert beside.forward + beside.backward == pytest.approx(6.0)


def test_only_a_stack_that_overlaps_micro_batches_prices_layers_by_their_number():
    assert is_overlapped(toy_stack(overlap={"ep": LEFT}))
    assert not further_axes(toy_stack(overlap={"ep": 1.0}))
    assert not further_axes(toy_stack(overlap={"ep": LEFT, "paired_passes": True}))


@settings(max_examples=60, deadline=None)
@given(drawn_scenarios(gpus=(4, 8, 16), models=drawn_expert_models), st.integers(0, 2**32 - 1))
def test_no_second_of_a_layer_or_of_its_wait_hides_its_own_experts_traffic_and_another_micro_batchs(scenario, seed):
    rows = random_rows(scenario, 10, seed)
    layer = kind_seconds(rows, scenario, EXPERTS)
    busy = layer.compute + layer.tp + layer.cp
    busy = busy + exposed_launches(launch_floor(rows, scenario, EXPERTS), busy, scenario)  # it goes on meanwhile
    taken = layer.hidden_ep + layer.paired
    assert (taken.forward <= busy.forward * (1 + 1e-12)).all()
    assert (taken.backward <= busy.backward * (1 + 1e-12)).all()
