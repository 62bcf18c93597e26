"""Effort is counted; a clock is looked at only where the user gave a time limit."""

import json
import math
import pickle
import re
import time
from itertools import count
from pathlib import Path

import pytest

import planner
from planner import PlanRequest, plan
from planner.answer.text import NOT_KNOWN
from planner.api import answers
from planner.explain import why_not
from planner.request import budget as budgets
from planner.request.budget import BEGUN, Budget
from planner.search import best_first
from planner.search.question import resolve_search
from planner.space import table
from planner.space.cache import cached_space
from planner.space.lattice import build

SOURCE = Path(planner.__file__).parent

REPORTING = {
    "request/budget.py",
    "cli/ending.py",
    "cli/live.py",
    "runs/probe/measure/__main__.py",
    "runs/probe/measure/collectives.py",
    "runs/probe/measure/host.py",
    "runs/probe/measure/products.py",
    "runs/probe/measure/timing.py",
    "service/app.py",
    "service/metrics.py",
    "studies/answer.py",
    "studies/engines.py",
    "studies/progress.py",
}
"""Modules that may import the clock: the budget decides by it, the others only report how long something took."""


def test_effort_that_is_spent_ends_a_search_and_time_does_not(monkeypatch):
    budget = Budget(effort=3.0)
    monkeypatch.setattr(time, "perf_counter", lambda: math.inf)
    assert not budget.spent()
    assert budget.seconds == math.inf
    budget.spend(3.0)
    assert (budget.spent(), budget.late) == (True, False)


def test_a_time_limit_counts_from_the_start_of_the_command_s_process_where_that_is_known(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", lambda: 100.0)
    monkeypatch.setattr(budgets, "_start_up", [99.0])
    budget = Budget(2.0)
    assert (budget.seconds, budget.elapsed) == (pytest.approx(2.0 * BEGUN - 1.0), 0.0)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux says when a process started")
def test_the_start_of_the_process_is_read_from_the_system(monkeypatch):
    monkeypatch.setattr(budgets, "_start_up", [0.0])
    budgets.count_start_up()
    assert 0.1 < time.perf_counter() - budgets._start_up[0] < time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_time_limit_counts_in_place_of_the_effort(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", lambda: 100.0)
    budget = Budget(2.0)
    budget.spend(1e30)
    assert (budget.spent(), budget.seconds) == (False, pytest.approx(2.0 * BEGUN))
    monkeypatch.setattr(time, "perf_counter", lambda: 102.5)
    assert (budget.spent(), budget.seconds, budget.elapsed) == (True, 0.0, 2.5)


def test_a_part_has_its_own_effort_or_its_share_of_the_time(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", lambda: 10.0)
    counted, timed = Budget(effort=5.0), Budget(8.0)
    part = counted.part(2.0, share=0.5)
    part.spend(2.0)
    assert (part.spent(), counted.effort) == (True, 5.0)
    half, short = timed.part(2.0, share=0.5), timed.part(2.0)
    assert (half.effort, half.seconds) == (math.inf, pytest.approx(4.0 * BEGUN))
    assert (short.effort, short.seconds) == (2.0, pytest.approx(8.0 * BEGUN))


def test_the_solver_is_told_its_deterministic_time_or_the_clock():
    assert Budget(effort=2.5e6).solver_limits == {"max_deterministic_time": 1.0}
    assert Budget(effort=-1.0).solver_limits == {"max_deterministic_time": 0.0}
    assert list(Budget(30.0).solver_limits) == ["max_time_in_seconds"]


def test_a_budget_goes_to_another_process():
    budget = pickle.loads(pickle.dumps(Budget(30.0)))  # noqa: S301 - our own
    assert 0.0 < budget.seconds <= 30.0


def document(**asked):
    found = json.loads(plan(PlanRequest(**asked)).to_json())
    found.get("proof", {}).pop("wall_seconds", None)
    return json.dumps(found)


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "llama3-8b", "gpus": 16},
        {"model": "llama3-70b", "gpus": 8, "pins": {"offload": "none"}},
        {"model": "22b", "gpus": 64, "cluster": "a100-h100-mixed", "pins": {"cp": 1, "micro_batch_size": 1}},
        {"model": "mixtral-8x7b", "gpus": 32, "top": 0, "pins": {"cp": 1, "micro_batch_size": 1}},
    ],
)
def test_a_machine_that_is_slower_without_end_gives_the_same_bytes(asked, monkeypatch):
    usual = document(**asked)
    clock = count()
    for name in ("perf_counter", "monotonic", "time"):
        monkeypatch.setattr(time, name, lambda: 1e6 * next(clock))
    assert document(**asked) == usual


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "llama3.1-405b", "gpus": 2048},
        {"model": "175b", "gpus": 12288},
        {"model": "llama3-8b", "gpus": 64, "objective": "memory"},
        {"model": "llama3-8b", "gpus": 96, "cluster": "a100-h100-mixed"},
    ],
)
def test_a_time_limit_holds_within_a_tenth_on_a_clock_that_effort_turns(asked, monkeypatch):
    clock, spend, seconds = [0.0], Budget.spend, 1.5

    def turned(budget, effort):
        clock[0] += 4e-6 * effort
        spend(budget, effort)

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(Budget, "spend", turned)
    found = plan(PlanRequest(**asked, time_limit=seconds))
    assert found.fits
    assert clock[0] < 1.1 * seconds


def test_a_time_limit_holds_within_a_tenth_of_the_process_s_own_seconds(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", time.process_time)  # whatever else this machine does
    asked = {"model": "llama3-8b", "gpus": 96, "cluster": "a100-h100-mixed"}
    plan(PlanRequest(**asked, reasons=False))  # loads what a process loads once
    started = time.process_time()
    plan(PlanRequest(**asked, time_limit=2.0))
    assert time.process_time() - started < 2.2


def test_no_row_is_bounded_tightly_once_a_time_limit_has_passed(monkeypatch):
    resolved, price = resolve_search(PlanRequest(model="llama3-70b", gpus=256)), best_first._price_chunk
    space, clock, late = cached_space(resolved.scenario, {}), [0.0], []

    def priced(*given):
        clock[0] = math.inf  # the limit passes while the first chunk is priced
        return price(*given)

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(best_first, "_price_chunk", priced)
    monkeypatch.setattr(best_first, "stage_bounds", lambda *_: late.append(1))
    found = best_first.search(space, resolved.scenario, budget=Budget(5.0))
    assert not late
    assert not found.proved
    assert 0.0 < found.lower_bound <= found.best.iteration


def test_no_reason_is_looked_for_once_a_time_limit_has_passed(monkeypatch):
    clock, settled, late = [0.0], answers._with_trust, []

    def found(*given):
        clock[0] = 1e9  # the limit passes while the plan is put together
        return settled(*given)

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(answers, "_with_trust", found)
    monkeypatch.setattr(why_not, "build", lambda *_: late.append("a lattice"))
    for name in ("stage_bounds", "_price_chunk", "_confirm"):
        do = getattr(best_first, name)
        monkeypatch.setattr(
            best_first, name, lambda *given, do=do, name=name: late.extend([name] * (clock[0] > 0.0)) or do(*given)
        )
    answer = plan(PlanRequest(model="llama3-70b", gpus=256, time_limit=60.0))
    assert late == []
    assert not answer.alternatives_complete
    assert all(line.proved or line.text == NOT_KNOWN for line in answer.what_helps)
    assert {line.text for line in answer.why_not} == {NOT_KNOWN}


@pytest.mark.parametrize("asked", [{"model": "llama3-8b", "gpus": 2}, {"model": "llama3-8b", "gpus": 16}])
def test_an_answer_reads_the_clock_to_report_alone(asked, monkeypatch):
    """As often on an idle machine as on a busy one: where parts of the effort begin, and at the end."""
    readings = []
    for step in (1e-9, 1e9):
        clock = count()
        monkeypatch.setattr(time, "perf_counter", lambda clock=clock, step=step: step * next(clock))
        document(**asked)
        readings.append(next(clock))
    assert readings[0] == readings[1]


def test_only_the_budget_decides_by_the_clock():
    clock = re.compile(r"^\s*(import time\b|from time import)", re.MULTILINE)
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if clock.search(path.read_text())}
    assert found <= REPORTING


def test_a_rule_on_many_rows_looks_at_a_time_limit_in_between(monkeypatch):
    scenario, budget, looks = resolve_search(PlanRequest(model="llama3-8b", gpus=64)).scenario, Budget(1e6), []
    monkeypatch.setattr(Budget, "spent", lambda _: bool(looks.append(1)))
    whole, few = build(scenario, {}, budget=budget), len(looks)
    looks.clear()
    monkeypatch.setattr(table, "SLAB", 64)
    parts = build(scenario, {}, budget=budget)
    assert len(looks) > 2 * few
    assert (parts.candidates, len(parts.cores)) == (whole.candidates, len(whole.cores))
    assert {one.rule: one.count for one in parts.refusals} == {one.rule: one.count for one in whole.refusals}
