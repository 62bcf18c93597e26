"""Degrees beyond all that was measured are named."""

import pytest

from costmodels.strategy import strategies
from planner import PlanRequest
from planner.request.resolve import resolve
from planner.trust.extents import degrees_past, measured_extents, past_measured
from planner.trust.table import measured


def asked(**changes):
    return resolve(PlanRequest(**({"model": "deepseek-v3", "gpus": 2048} | changes))).scenario


def test_the_extents_are_those_of_runs_of_models_with_such_layers():
    known = measured()
    for model, kind in (("deepseek-v3", "experts"), ("llama3-8b", "dense")):
        alike = known.traits.names["kind"] == kind
        most = {axis: 2.0 ** known.traits.sizes[axis][alike].max() for axis in ("tp", "cp", "pp", "vpp", "ep")}
        assert measured_extents(asked(model=model)) == pytest.approx(most)


def test_a_degree_just_beyond_is_named_and_the_largest_measured_is_not():
    most = measured_extents(asked())["ep"]
    inside, beyond, far = (strategies(ep=ep, dp=2048) for ep in (most, 2 * most, 4 * most))
    assert (degrees_past(asked(), inside), past_measured(asked(), inside)) == ({}, ())
    assert past_measured(asked(), beyond) == (
        f"beyond all that was measured of such models: EP {2 * most} (at most {most})",
    )
    assert degrees_past(asked(), far) == {"ep": most}
    assert past_measured(asked(), far) == ()  # the validated region speaks of it


@pytest.mark.parametrize(("stack", "told"), [("fsdp", True), ("maxtext", False)])
def test_parameters_sharded_over_more_ranks_than_anywhere_under_such_software_are_told(stack, told):
    scenario = asked(model="opt-175b", gpus=1024, stack=stack)
    row = strategies(dp=1024, zero_stage=3, sharding_degree=1024)
    assert any("sharded over 1,024 ranks" in line for line in past_measured(scenario, row)) == told
