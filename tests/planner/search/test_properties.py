"""What must hold of every plan: more of anything good never hurts, and less choice never helps."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from costmodels.memory.even_peaks import even_peaks
from costmodels.memory.limits import memory_limit
from costmodels.memory.rows import row_bytes
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.search.best_first import search
from planner.space.lattice import build
from tests.drawn import drawn_scenarios
from tests.planner.searched import price_cores
from tests.scenarios import changed_device, changed_link, random_rows

SOME = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
SCENARIOS = drawn_scenarios(gpus=(2, 4, 8), batches=(8, 16), layers=(2, 3, 4, 6))
SLACK = 1 + 1e-8


def best(scenario, pins=None):
    """Seconds of the best plan; infinite where nothing fits."""
    outcome = search(build(scenario, parse_pins(pins or {})), scenario, budget=Budget())
    assert outcome.proved
    return outcome.best.iteration if outcome.best else np.inf


def with_memory(scenario, share):
    """So much memory that about a share of the strategies fits."""
    space = build(scenario, {})
    assume(len(space.cores))
    peaks = price_cores(space, np.arange(len(space.cores)), scenario).even_split_peak_bytes
    limit = (
        float(np.quantile(peaks, share)) * (1 + scenario.stack.allocator.fragmentation)
        + scenario.stack.allocator.reserved
    )
    return changed_device(scenario, usable_memory=limit)


@SOME
@given(SCENARIOS, st.floats(0, 0.9), st.floats(1.01, 3))
def test_more_memory_never_makes_a_plan_slower_and_refuses_nothing_that_fitted(scenario, share, factor):
    small = with_memory(scenario, share)
    large = changed_device(small, usable_memory=small.group.accelerator.usable_memory * factor)
    assert best(large) <= best(small) * SLACK
    rows = random_rows(scenario, 20, 0)
    peaks = even_peaks(rows, row_bytes(rows, scenario), scenario.model.num_layers)
    assert ((peaks <= memory_limit(large, rows)) >= (peaks <= memory_limit(small, rows))).all()


@SOME
@given(SCENARIOS, st.floats(0.1, 1.0), st.floats(1.01, 10), st.integers(0, 2))
def test_a_faster_tier_never_makes_a_plan_slower(scenario, share, factor, index):
    scenario = with_memory(scenario, share)
    assume(index < len(scenario.group.tiers))
    bandwidth = scenario.group.tiers[index].link.bandwidth * factor
    assert best(changed_link(scenario, index, bandwidth=bandwidth)) <= best(scenario) * SLACK


@SOME
@given(SCENARIOS, st.floats(0.1, 1.0), st.floats(1.01, 10))
def test_faster_arithmetic_and_memory_never_make_a_plan_slower(scenario, share, factor):
    scenario, device = with_memory(scenario, share), scenario.group.accelerator
    now = best(scenario)
    assert best(changed_device(scenario, memory_bandwidth=device.memory_bandwidth * factor)) <= now * SLACK
    peak = {name: rate * factor for name, rate in device.peak.items()}
    assert best(changed_device(scenario, peak=peak)) <= now * SLACK


@SOME
@given(
    SCENARIOS,
    st.floats(0.1, 1.0),
    st.sampled_from([{"tp": 1}, {"pp": "..2"}, {"recompute": "none"}, {"zero_stage": 0}, {"micro_batch_size": 1}]),
)
def test_a_pin_never_makes_a_plan_faster(scenario, share, pins):
    scenario = with_memory(scenario, share)
    assert best(scenario, pins) >= best(scenario) / SLACK


@SOME
@given(SCENARIOS, st.floats(0.1, 1.0))
def test_what_is_dominated_is_never_better(scenario, share):
    """Pinning an axis lets in what its dominated rule keeps out."""
    scenario = with_memory(scenario, share)
    everything = {
        "schedule": ",".join(scenario.stack.supports.schedules),
        "recompute": "none,selective,full,partial",
        "rank_order": "tp-cp-ep-dp-pp,tp-cp-ep-pp-dp",
    }
    assert best(scenario, everything) == pytest.approx(best(scenario), rel=1e-8)


@SOME
@given(SCENARIOS, st.floats(0.1, 1.0))
def test_a_stack_that_can_split_unevenly_is_never_slower(scenario, share):
    scenario = with_memory(scenario, share)
    even, uneven = (
        replace(scenario, stack=scenario.stack.changed({"supports.uneven_stages": switch})) for switch in (False, True)
    )
    assert best(uneven) <= best(even) * SLACK


@SOME
@given(SCENARIOS)
def test_the_same_question_has_the_same_answer(scenario):
    scenario = with_memory(scenario, 0.5)
    outcomes = [search(build(scenario, {}), scenario, budget=Budget()) for _ in range(2)]
    first, second = (outcome.best for outcome in outcomes)
    assume(first is not None)
    assert first.row.row(0) == second.row.row(0)
    assert first.iteration == second.iteration
    assert (first.assignment.layers == second.assignment.layers).all()
