"""What an answer says depends on effort that is counted, not on how busy the machine is."""

import json
import subprocess
import sys
import time

import pytest

from planner import OutOfTime, PlanRequest, plan
from planner.request.budget import Budget
from planner.search.question import resolve_search
from planner.space.cache import cached_space

BUSY = [sys.executable, "-c", "while True: pass"]


def said(request):
    """The document of a plan, without how long it took."""
    document = json.loads(plan(request).to_json())
    del document["proof"]["wall_seconds"]
    return document


def test_an_answer_is_the_same_on_an_idle_and_on_a_busy_machine():
    asked = PlanRequest(model="llama3-8b", gpus=64)
    idle = said(asked)
    busy = [subprocess.Popen(BUSY) for _ in range(2)]
    try:
        assert said(asked) == idle
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_time_limit_ends_the_laying_out_of_a_lattice():
    resolved, began = resolve_search(PlanRequest(model="kimi-k2", gpus=14_400_000)), time.process_time()
    with pytest.raises(OutOfTime, match=r"no plan: .* within 0\.01 s; --time-limit 2 is likely enough"):
        cached_space(resolved.scenario, {}, Budget(0.01))
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("objective", ["time", "memory"])
def test_a_strategy_that_was_sampled_before_a_time_limit_is_the_plan_with_what_is_known_of_better_ones(
    objective, monkeypatch
):
    asked = PlanRequest(model="deepseek-v3", gpus=16384, objective=objective, reasons=False)
    best = plan(asked)
    monkeypatch.setattr("planner.search.objective.near_lattice", passed)
    found = plan(asked)
    assert (best.status, found.status, found.fits) == ("optimal", "feasible", True)
    assert found.proof.candidates == best.proof.candidates
    assert found.proof.gap > 0.0
    if objective == "time":
        assert found.proof.lower_bound_seconds <= best.prediction.iteration_seconds
        assert found.prediction.iteration_seconds >= best.prediction.iteration_seconds


def passed(*_asked):
    raise OutOfTime("the time limit has passed")


def test_what_is_laid_out_as_a_time_limit_passes_still_has_a_plan(monkeypatch):
    asked = PlanRequest(model="llama3-8b", gpus=64, reasons=False, time_limit=60)
    monkeypatch.setattr(Budget, "spent", lambda self: self.timed)
    monkeypatch.setattr("planner.space.table.Table.check_budget", lambda *_: None)
    monkeypatch.setattr("planner.space.table.Table.check_time", lambda *_: None)
    found = plan(asked)
    assert found.fits
    assert 0.0 <= found.proof.gap < 1.0
