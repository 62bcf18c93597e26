from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from costmodels.iteration import row_seconds
from costmodels.layout.stage_contents import copies
from costmodels.memory.even_peaks import even_peaks
from costmodels.memory.limits import memory_limit, needed_bytes
from costmodels.memory.rows import row_bytes
from costmodels.strategy import strategies
from planner import PlanRequest, plan, predict
from planner.request.budget import Budget
from planner.search.fitting import least_needed
from planner.search.least_bytes import least_bytes
from planner.search.least_memory import least_stage_peaks, peak_lower_bounds, search_least_memory
from planner.search.objective import Objective, near_lattice
from planner.space.lattice import begin, build
from planner.stages.from_strategies import stage_problems
from tests.drawn import drawn_scenarios
from tests.planner.brute_force import seconds_and_bytes, splits_of
from tests.scenarios import toy_cluster, toy_model, toy_scenario, toy_stack

SOME = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@SOME
@given(drawn_scenarios(gpus=(1, 2, 4, 8), batches=(8, 16), layers=(1, 2, 4, 6)))
def test_the_leanest_is_the_least_of_all_even_splits(scenario):
    scenario = replace(scenario, stack=scenario.stack.changed({"supports.uneven_stages": False}))
    space = build(scenario, {})
    assume(len(space.cores))
    core, option = np.nonzero(space.allowed)
    rows = space.rows(core, option)
    peaks = even_peaks(rows, row_bytes(rows, scenario), scenario.model.num_layers)
    outcome = search_least_memory(space, scenario, budget=Budget())
    assert outcome.proved
    peaks = np.where(peaks <= memory_limit(scenario, rows), peaks, np.inf)
    if peaks.min() == np.inf:
        assert outcome.best is None
    else:
        assert outcome.best.even_split_peak_bytes == peaks.min()


@SOME
@given(drawn_scenarios(gpus=(1, 2, 4, 8, 16), batches=(8, 16), layers=(1, 2, 4, 6)))
def test_no_strategy_needs_less_memory_than_its_layer_says(scenario):
    space = build(scenario, {})
    assume(len(space.cores))
    rows = space.rows(*np.nonzero(space.allowed))
    memory = row_bytes(rows, scenario)
    least = least_bytes(rows, scenario) * (1 - 1e-9)
    assert (least <= even_peaks(rows, memory, scenario.model.num_layers)).all()
    if scenario.depth.uniform and scenario.stack.supports.uneven_stages:
        problems = stage_problems(rows, row_seconds(rows, scenario), memory, scenario)
        peaks = least_stage_peaks(problems)
        assert (least <= peaks).all()
        assert (peak_lower_bounds(problems) <= peaks * (1 + 1e-9)).all()


def test_where_states_are_all_the_bound_of_memory_is_close_to_what_is_needed():
    scenario = toy_scenario(model=toy_model(hidden_size=8192, vocab_size=256, seq_length=128))
    rows = strategies(tp=[1, 8], dp=[8, 1], zero_stage=[1, 0], sharding_degree=[8, 1], num_microbatches=[2, 16])
    needed = needed_bytes(rows, scenario, even_peaks(rows, row_bytes(rows, scenario), 8))
    for bound in (least_bytes(rows, scenario), least_needed(rows, scenario)):
        assert (0.97 * needed < bound).all()
        assert (bound <= needed).all()


@SOME
@given(drawn_scenarios(gpus=(4, 8, 16), batches=(8, 16), layers=(2, 4, 6)))
def test_a_lattice_without_what_needs_far_more_memory_has_the_same_leanest(scenario):
    whole, begun, objective = build(scenario, {}), begin(scenario, {}), Objective("memory", scenario, 0.0)
    best = search_least_memory(whole, scenario, budget=Budget()).best
    assume(best)
    narrow = near_lattice(begun, objective, 1.3 * best.even_split_peak_bytes, begun.each(objective.passes_bound))
    found = search_least_memory(narrow, scenario, budget=Budget()).best
    assert found.even_split_peak_bytes == best.even_split_peak_bytes
    assert narrow.candidates == whole.candidates
    assert len(narrow.cores) <= len(whole.cores)


def test_small_chunks_change_nothing(monkeypatch):
    scenario = toy_scenario(gpus=16, batch=32, stack=toy_stack(uneven_stages=True, zero_stages=(0, 1, 2, 3)))
    space = build(scenario, {})
    whole = search_least_memory(space, scenario, budget=Budget()).best
    monkeypatch.setattr("planner.search.least_memory.CHUNK", 17)
    parts = search_least_memory(space, scenario, budget=Budget()).best
    assert parts.even_split_peak_bytes == whole.even_split_peak_bytes
    assert parts.row.row(0) == whole.row.row(0)


def test_asking_for_memory_never_needs_more_than_asking_for_time():
    asked = {"model": toy_model(), "cluster": toy_cluster(), "stack": toy_stack(), "gpus": 8, "global_batch_size": 16}
    lean, fast = (plan(PlanRequest(**asked, objective=objective)) for objective in ("memory", "time"))
    assert max(s.total for s in lean.memory_bytes) <= max(s.total for s in fast.memory_bytes)
    assert lean.prediction.iteration_seconds >= fast.prediction.iteration_seconds
    assert "GiB" in lean.proof.statement


def test_out_of_time_proves_nothing():
    scenario = toy_scenario()
    outcome = search_least_memory(build(scenario, {}), scenario, budget=Budget(effort=0.0))
    assert not outcome.proved
    assert outcome.best is None


def all_or_none(rows, scenario, index, seconds, memory):
    """The least peak of one row over all splits that recompute every layer of a stage or none."""
    layers, again = splits_of(rows.row(index), scenario)
    _, used = seconds_and_bytes(rows, scenario, index, seconds, memory)
    whole = ((again == 0) | (again == layers)).all(axis=1)
    alike = whole & ((again == layers).all(axis=1) | (again == 0).all(axis=1))
    return used[alike].min() if alike.any() else np.inf


@SOME
@given(drawn_scenarios(gpus=(2, 4, 8), batches=(4, 8), layers=(2, 3, 4, 5, 6)))
def test_the_leanest_is_the_least_of_all_uneven_splits(scenario):
    scenario = replace(scenario, stack=scenario.stack.changed({"supports.uneven_stages": True}))
    assume(scenario.depth.uniform)
    space = build(scenario, {})
    assume(0 < len(space.cores) <= 300)
    rows = space.rows(*np.nonzero(space.allowed))
    assume((copies(rows) == 1).all())
    seconds, memory = row_seconds(rows, scenario), row_bytes(rows, scenario)
    peaks = [all_or_none(rows, scenario, index, seconds, memory) for index in range(len(rows))]
    found = search_least_memory(space, scenario, budget=Budget()).best
    peaks = np.where(peaks <= memory_limit(scenario, rows) * (1 - 1e-6), peaks, np.inf)
    if min(peaks) < np.inf:
        assert found.even_split_peak_bytes == pytest.approx(min(peaks), rel=1e-6)


def test_the_leanest_split_of_24_layers_over_8_stages_spares_the_ends():
    asked = {
        "model": toy_model(num_layers=24, vocab_size=50000),
        "cluster": toy_cluster(),
        "stack": toy_stack(uneven_stages=True, zero_stages=(0,), schedules=("1f1b",)),
        "gpus": 8,
        "global_batch_size": 64,
        "pins": {"pp": 8, "vpp": 1, "recompute": "none", "micro_batch_size": 4},
    }
    lean = plan(PlanRequest(**asked, objective="memory", reasons=False))
    even = predict(PlanRequest(**asked), layers=[3] * 8)
    layers = [stage.layers for stage in lean.strategy.stages]
    assert sum(layers) == 24
    assert layers[0] == min(layers)
    assert layers[-1] < max(layers)
    assert max(s.total for s in lean.memory_bytes) < max(s.total for s in even.memory_bytes)
