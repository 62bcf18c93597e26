"""What lies on the host: what it saves on the device, and what moving it and stepping there take."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.iteration import row_seconds
from costmodels.layer.forward_backward import Passes
from costmodels.memory.host import host_fits, host_need
from costmodels.memory.rows import row_bytes
from costmodels.memory.states import state_bytes
from costmodels.pricing import price, price_strategy, row_assignment
from costmodels.primitives.host import cpu_adam_seconds
from costmodels.stack.choices import chosen
from costmodels.step.offload import (
    ACTIVATIONS,
    EVERYTHING,
    OPTIMIZER,
    host_stream,
    link_bandwidth,
    step_offload_seconds,
    updated_parameters,
)
from costmodels.strategy import strategies
from tests.costmodels.step.test_savers import SOME
from tests.drawn import drawn_scenarios
from tests.scenarios import random_rows, toy_scenario, toy_stack

OFFLOADED = strategies(
    dp=8, zero_stage=3, sharding_degree=8, num_microbatches=2, offload=[0, ACTIVATIONS, OPTIMIZER, EVERYTHING]
)


HOSTED = toy_scenario(stack=toy_stack(zero_stages=(0, 1, 2, 3)))


def with_host(scenario, **changes):
    return replace(scenario, group=scenario.group.model_copy(update=changes))


def test_adam_on_the_cpus_moves_thirty_bytes_a_parameter():
    assert cpu_adam_seconds(parameters=np.array([1e9]), word=12.0, bandwidth=30e9) == pytest.approx([1.0])
    assert np.isinf(cpu_adam_seconds(parameters=np.array([1e9]), word=12.0, bandwidth=0.0))


def test_gradients_that_the_host_scales_first_cost_it_more():
    scaled = replace(HOSTED, stack=HOSTED.stack.changed({"offload.host_gradient_traffic": 12.0}))
    once, again = (row_seconds(OFFLOADED, x).offload for x in (HOSTED, scaled))
    assert (again[2:] > once[2:]).all()
    assert again[:2] == pytest.approx(once[:2])


def test_weights_that_are_cast_behind_a_step_on_the_host_take_longer():
    """By hand: a cast moves 6 bytes for the 2 that Adam writes, and 6 more go through a buffer of the driver."""
    behind = replace(HOSTED, stack=HOSTED.stack.changed({"offload.copies_weights_from_stage": 3}))
    below = replace(HOSTED, stack=HOSTED.stack.changed({"offload.copies_weights_from_stage": 4}))
    fused, cast = (row_seconds(OFFLOADED, x).offload for x in (below, behind))
    parameters, stream = updated_parameters(OFFLOADED, behind), host_stream(behind)
    assert cast[OPTIMIZER] - fused[OPTIMIZER] == pytest.approx(10 * parameters[OPTIMIZER] / stream)
    assert cast[EVERYTHING] - fused[EVERYTHING] == pytest.approx(4 * parameters[EVERYTHING] / stream)
    assert cast[:2] == pytest.approx(fused[:2])


def test_what_is_offloaded_leaves_the_device():
    memory = row_bytes(OFFLOADED, HOSTED)
    assert memory.stored[1] == memory.checkpoint[1] == 0
    assert (memory.state.optimizer[[2, 3]] == 0).all()
    assert memory.state.total[3] == 0
    assert memory.everywhere[1] - memory.everywhere[0] == pytest.approx(2 * memory.stored[0])
    assert memory.state.weights[2] == memory.state.weights[0]


def test_scattered_gradients_follow_offloaded_states_where_the_stack_moves_them():
    rows = strategies(dp=8, zero_stage=[1, 2, 3, 3], sharding_degree=8, offload=[OPTIMIZER, OPTIMIZER, OPTIMIZER, 0])
    follows = replace(HOSTED, stack=HOSTED.stack.changed({"offload.gradients_offloaded": True}))
    assert (state_bytes(rows, follows).gradients > 0).tolist() == [True, False, False, True]
    assert (state_bytes(rows, HOSTED).gradients > 0).all()


def test_part_of_the_states_may_stay():
    half = replace(HOSTED, stack=chosen(HOSTED.stack, offload_fraction=0.5))
    kept = [float(state_bytes(OFFLOADED, x).optimizer[2]) for x in (HOSTED, half)]
    assert kept == pytest.approx([0.0, 12.0 / 8 / 2])
    slow, fast = (row_seconds(OFFLOADED, x).offload[2] for x in (HOSTED, half))
    assert 0 < fast < slow


def test_some_layers_may_keep_their_activations_here_and_have_the_longer_for_the_others():
    quarter = replace(HOSTED, stack=HOSTED.stack.changed({"switches.offloaded_layers": 0.25}))
    none, some = (row_bytes(OFFLOADED, quarter).stored[place] for place in (0, 1))
    assert some == pytest.approx(0.75 * none)
    assert row_bytes(OFFLOADED, quarter).everywhere[1] == pytest.approx(row_bytes(OFFLOADED, quarter).everywhere[0])
    away = [row_seconds(OFFLOADED, x).layer_offload[1] for x in (HOSTED, quarter)]
    assert 0 <= away[1] <= away[0] / 4
    assert host_need(OFFLOADED, quarter)[1] == pytest.approx(host_need(OFFLOADED, HOSTED)[1] / 4)


def test_nothing_offloaded_costs_nothing():
    seconds = row_seconds(OFFLOADED, HOSTED)
    assert seconds.offload[0] == seconds.layer_offload[0] == 0


def test_the_step_on_the_host_replaces_the_step_on_the_device():
    seconds = row_seconds(OFFLOADED, HOSTED)
    assert seconds.optimizer[2] < seconds.optimizer[0]
    assert seconds.offload[2] > seconds.optimizer[0]


def test_without_a_link_nothing_arrives():
    unlinked = with_host(HOSTED, host_link=None)
    assert link_bandwidth(unlinked) == 0
    assert np.isinf(row_seconds(OFFLOADED, unlinked).offload[2])


@SOME
@given(drawn_scenarios(), st.integers(0, 99), st.integers(0, 3), st.floats(1.1, 10))
def test_faster_hosts_and_links_never_hurt(scenario, seed, code, factor):
    rows = random_rows(scenario, 10, seed)
    rows = replace(rows, offload=np.full(len(rows), code))
    group = scenario.group
    faster = with_host(scenario, host_link=group.host_link * factor, host_bandwidth=group.host_bandwidth * factor)
    assert (price(rows, faster).iteration <= price(rows, scenario).iteration * (1 + 1e-9)).all()


def test_what_lies_on_the_host_passes_its_link_as_often_as_it_is_needed():
    """By hand, with nothing to hide behind: gradients of 4 bytes out, weights of 2 in; parameters for every pass."""
    seconds = step_offload_seconds(OFFLOADED, HOSTED, Passes(np.zeros(4), np.zeros(4)))
    mine, link = updated_parameters(OFFLOADED, HOSTED), 0.75 * 50e9
    step = cpu_adam_seconds(parameters=mine, word=12.0, bandwidth=host_stream(HOSTED))
    assert seconds[OPTIMIZER] == pytest.approx((4 * mine / link + np.maximum(step, 2 * mine / link))[OPTIMIZER])
    assert seconds[EVERYTHING] == pytest.approx((step + 2 * (2 + 4) * mine / link)[EVERYTHING])


def test_gradients_hide_behind_the_last_backward_pass():
    hidden = HOSTED.stack.changed({"switches.overlap_grad_reduce": True})
    long = Passes(np.ones(4), np.ones(4))
    apart, behind = (step_offload_seconds(OFFLOADED, replace(HOSTED, stack=s), long) for s in (HOSTED.stack, hidden))
    assert behind[2] < apart[2]


def test_a_small_host_refuses_what_does_not_fit_it():
    needed = host_need(OFFLOADED, HOSTED)
    assert needed[0] == 0
    assert (needed[1:] > 0).all()
    assert needed[3] > needed[2]
    tight = with_host(HOSTED, host_memory=float(needed[2] * 4 * 1.001))
    assert host_fits(OFFLOADED, tight).tolist() == [True, bool(needed[1] <= needed[2] * 1.001), True, False]


@SOME
@given(drawn_scenarios(), st.integers(0, 99), st.integers(1, 3))
def test_the_terms_of_an_offloaded_iteration_add_up(scenario, seed, code):
    rows = random_rows(scenario, 1, seed)
    rows = replace(rows, offload=np.full(len(rows), code))
    priced = price_strategy(rows, scenario, row_assignment(rows, scenario.model.num_layers))
    assert sum(priced.breakdown.values()) == pytest.approx(priced.iteration)
    assert priced.breakdown["offload"] >= 0
