"""Experts' traffic overlapped with another micro-batch's passes: what has no partner, and what waits for a host."""

import pytest

from costmodels.iteration import core_seconds
from costmodels.layer.blocks import layer_seconds
from costmodels.names import Recompute
from costmodels.strategy import strategies
from tests.scenarios import toy_group, toy_link, toy_model, toy_scenario, toy_stack, toy_tiers, with_experts

SLOW = toy_group(tiers=toy_tiers(inner=toy_link(bandwidth=2e9)))
"""Machines whose traffic outlasts the computation."""


def overlapping(**changes):
    """Experts whose traffic overlaps another micro-batch's passes, taking a quarter of the units."""
    stack = toy_stack(overlap={"ep": 0.25}, **changes)
    return toy_scenario(model=with_experts(toy_model()), group=SLOW, gpus=8, stack=stack)


def test_a_pass_that_is_repeated_has_no_partner_to_hide_its_traffic():
    rows, scenario = strategies(dp=4, ep=2, recompute=int(Recompute.FULL)), overlapping()
    layer = layer_seconds(rows, scenario)
    assert layer.ep.forward < layer.ep_alone.forward
    repeated = layer.compute.forward + layer.tp.forward + layer.cp.forward + layer.ep_alone.forward
    assert core_seconds(rows, scenario).recompute == pytest.approx(repeated)


def test_traffic_goes_on_while_a_pass_waits_for_its_host():
    rows = strategies(dp=4, ep=2)
    ready, late = (layer_seconds(rows, overlapping(launch_time=launch)) for launch in ("0 s", "1 ms"))
    assert ready.launch.forward == 0 < late.launch.forward
    assert (late.ep_alone.forward, late.ep_alone.backward) == (ready.ep_alone.forward, ready.ep_alone.backward)
    assert late.ep.forward + late.ep.backward < ready.ep.forward + ready.ep.backward
