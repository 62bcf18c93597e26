import time

import numpy as np
from hypothesis import HealthCheck, assume, given, settings

from costmodels.memory import even_peaks, memory_limit, row_bytes
from planner import PlanRequest, plan
from planner.memory_search import leanest
from planner.space import build
from tests.scenarios import drawn_scenarios, toy_cluster, toy_model, toy_scenario, toy_stack

SOME = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@SOME
@given(drawn_scenarios(gpus=(1, 2, 4, 8), batches=(8, 16), layers=(1, 2, 4, 6)))
def test_the_leanest_is_the_least_of_all_even_splits(scenario):
    space = build(scenario, {})
    assume(len(space.cores))
    core, option = np.nonzero(space.allowed)
    rows = space.rows(core, option)
    peaks = even_peaks(rows, row_bytes(rows, scenario), scenario.model.num_layers)
    outcome = leanest(space, scenario, deadline=time.perf_counter() + 60)
    assert outcome.proved
    if peaks.min() > memory_limit(scenario):
        assert outcome.best is None
    else:
        assert outcome.best.peak == peaks.min()


def test_small_chunks_change_nothing(monkeypatch):
    scenario = toy_scenario(gpus=16, batch=32, stack=toy_stack(uneven_stages=True, zero_stages=(0, 1, 2, 3)))
    space = build(scenario, {})
    whole = leanest(space, scenario, deadline=time.perf_counter() + 60).best
    monkeypatch.setattr("planner.memory_search.CHUNK", 5)
    parts = leanest(space, scenario, deadline=time.perf_counter() + 60).best
    assert parts.peak == whole.peak
    assert parts.row.row(0) == whole.row.row(0)


def test_asking_for_memory_never_needs_more_than_asking_for_time():
    asked = {"model": toy_model(), "cluster": toy_cluster(), "stack": toy_stack(), "gpus": 8, "global_batch_size": 16}
    lean, fast = (plan(PlanRequest(**asked, objective=objective)) for objective in ("memory", "time"))
    assert max(s.total for s in lean.memory_bytes) <= max(s.total for s in fast.memory_bytes)
    assert lean.prediction.iteration_seconds >= fast.prediction.iteration_seconds
    assert "GiB" in lean.proof.statement


def test_out_of_time_proves_nothing():
    scenario = toy_scenario()
    outcome = leanest(build(scenario, {}), scenario, deadline=time.perf_counter() - 1)
    assert not outcome.proved
    assert outcome.best is None
