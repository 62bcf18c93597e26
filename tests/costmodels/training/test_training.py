import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.training import training
from tests.scenarios import toy_cluster

CLUSTER = toy_cluster()
"""Devices at 3.6 $/h and 500 W in nodes of four that take another kilowatt."""


def totals(**changes):
    usual = {"cluster": CLUSTER, "gpus": 8, "iteration": 2.0, "tokens": 1_000_000, "tokens_per_iteration": 1000.0}
    return training.totals(**(usual | changes))


def test_a_run_takes_its_iterations_times_their_seconds():
    run = totals()
    assert run.iterations == 1000
    assert run.seconds == 2000.0
    assert run.gpu_hours == pytest.approx(8 * 2000 / 3600)


def test_money_is_devices_times_hours_times_price():
    assert totals().cost == pytest.approx(8 * 2000 / 3600 * 3.6)


def test_a_cluster_without_a_price_costs_an_unknown_amount():
    group = CLUSTER.groups[0]
    free = group.model_copy(update={"accelerator": group.accelerator.model_copy(update={"price": None})})
    assert totals(cluster=CLUSTER.model_copy(update={"groups": (free,)})).cost is None


def test_energy_is_the_device_and_its_quarter_of_the_node():
    assert totals().joules == pytest.approx(8 * 2000 * (500 + 1000 / 4))


@given(st.integers(1, 10**13), st.integers(1, 10**8))
def test_the_last_iteration_is_whole_and_no_more_than_one(tokens, batch):
    steps = training.iterations(tokens=tokens, tokens_per_iteration=batch)
    assert steps * batch >= tokens
    assert (steps - 1) * batch < tokens
