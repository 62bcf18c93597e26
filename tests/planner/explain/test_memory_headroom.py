"""A plan that all but fills the memory says so, and what leaving a margin costs."""

import re

import pytest

from planner import PlanRequest, plan

FULL = {"model": "llama3.1-405b", "gpus": 64}


@pytest.fixture(scope="module")
def full():
    return plan(PlanRequest(**FULL, time_limit=60.0))


def test_a_plan_that_fills_the_memory_says_that_it_may_run_out(full):
    first, second = full.warnings[:2]
    assert re.match(r"stage \d fills (9[5-9]\.\d|100\.0)% of the usable memory: .* may run out; leave room with", first)
    assert second.startswith("with --memory-margin 5%: ")


def test_the_plan_with_a_margin_is_the_plan_that_is_asked_for_with_one(full):
    """What nothing fits without is asked for by the plan itself, and so it is here."""
    pins = {"offload": full.strategy.offload}
    safe = plan(PlanRequest(**FULL, memory_margin=0.05, pins=pins, reasons=False))
    slower = safe.prediction.iteration_seconds / full.prediction.iteration_seconds - 1.0
    told = full.warnings[1]
    assert f": {slower:.1%} slower, TP {safe.strategy.tp} " in told
    assert f"PP {safe.strategy.pp} " in told
    assert not any("usable memory" in warning for warning in safe.warnings)


def test_a_plan_with_room_or_with_a_margin_asked_for_says_nothing():
    for asked in ({"model": "llama3-8b", "gpus": 64}, FULL | {"memory_margin": 0.02, "pins": {"offload": "any"}}):
        assert not any("--memory-margin" in warning for warning in plan(PlanRequest(**asked)).warnings)


def test_what_fits_with_a_margin_only_by_what_saves_memory_is_not_said_to_fit_not_at_all():
    told = plan(PlanRequest(model="llama3-8b", gpus=2, cluster="dgx-h100")).warnings
    safe = plan(PlanRequest(model="llama3-8b", gpus=2, cluster="dgx-h100", memory_margin=0.05, reasons=False))
    assert safe.strategy.offload != "none"
    assert "with --memory-margin 5% nothing fits without offloading or recomputing layers together" in told
