"""Among strategies that measurements cannot tell apart the better-validated is taken, and the proof stays true."""

import json
from functools import cache

import numpy as np
import pytest
from click.testing import CliRunner

from costmodels.names import SCHEDULE_NAMES
from costmodels.strategy import strategies
from planner import PlanRequest, plan
from planner.cli import main
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.request.resolve import resolve
from planner.runs import residuals
from planner.search.best_first import search
from planner.search.choice import (
    CLOSE,
    NEARLY_FULL,
    SURE,
    TIGHT,
    WIDEST,
    Doubts,
    better_validated,
    choose,
    doubts,
    faster,
    reason,
    switches,
    width,
)
from planner.space.lattice import build

QUESTIONS = (
    {"model": "gpt3-175b", "gpus": 512},
    {"model": "llama2-13b", "gpus": 64, "cluster": "dgx-h200"},
    {"model": "mixtral-8x7b", "gpus": 64},
)


def found(**asked):
    resolved = resolve(PlanRequest(**asked))
    space = build(resolved.scenario, parse_pins({}))
    return search(space, resolved.scenario, budget=Budget()), resolved.scenario


@pytest.fixture(scope="module", params=QUESTIONS, ids=lambda q: q["model"])
def searched(request):
    return found(**request.param)


def test_the_fastest_is_taken_where_ties_do_not_count(searched):
    outcome, scenario = searched
    choice = choose(outcome, scenario, width("fastest"))
    assert choice.taken is outcome.best
    assert choice.reason == ""


@pytest.mark.parametrize("within", [CLOSE, 0.02, 0.05])
def test_what_is_taken_is_tied_and_less_speaks_against_it(searched, within):
    outcome, scenario = searched
    taken, words = choose(outcome, scenario, within)
    assert outcome.best.iteration * (1 - 1e-9) <= taken.iteration <= outcome.best.iteration * (1 + within)
    if taken is outcome.best:
        assert words == ""
        return
    both = [against(one, scenario) for one in (outcome.best, taken)]
    assert both[1] < both[0]
    assert words


def against(one, scenario):
    from costmodels.pricing import price_strategy

    allocated = np.array([np.max(price_strategy(one.row, scenario, one.assignment).footprint.allocated)])
    return float(doubts(one.row, allocated, scenario).total[0])


def test_the_choice_is_the_same_every_time(searched):
    outcome, scenario = searched
    first, second = (choose(outcome, scenario, 0.05) for _ in range(2))
    assert first.taken.row.row(0) == second.taken.row.row(0)
    again = choose(outcome.__class__(**{**vars(outcome), "pool": outcome.pool[::-1]}), scenario, 0.05)
    assert again.taken.row.row(0) == first.taken.row.row(0)


def test_a_wider_tie_is_named_but_not_taken(searched):
    outcome, scenario = searched
    taken = choose(outcome, scenario, CLOSE).taken
    widest = choose(outcome, scenario, width("validated"))
    told = better_validated(outcome, taken, scenario)
    assert (told is None) == (widest.taken.row.row(0) == taken.row.row(0))
    if told:
        assert told.iteration_seconds == widest.taken.iteration
        assert widest.reason in told.text


@pytest.fixture(scope="module", params=["close", "validated"])
def answered(request):
    return request.param, plan(PlanRequest(model="gpt3-175b", gpus=12288, ties=request.param, top=3))


def test_the_proof_is_of_the_fastest_whatever_is_taken(answered):
    ties, answer = answered
    proof, seconds = answer.proof, answer.prediction.iteration_seconds
    fastest = search_seconds()
    assert proof.lower_bound_seconds == pytest.approx(fastest, rel=1e-9)
    assert proof.gap == pytest.approx((seconds - fastest) / seconds, abs=1e-9)
    assert f"none can beat {fastest:.4g} s" in proof.statement
    assert proof.gap <= width(ties) + 1e-9
    assert (answer.status == "optimal") == (proof.gap <= CLOSE)
    assert answer.request["ties"] == ties


@cache
def search_seconds():
    fastest = plan(PlanRequest(model="gpt3-175b", gpus=12288, ties="fastest", reasons=False))
    assert (fastest.status, fastest.proof.gap) == ("optimal", 0.0)
    return fastest.prediction.iteration_seconds


def test_a_plan_that_is_not_the_fastest_says_so_and_why(answered):
    _, answer = answered
    if answer.proof.fastest_seconds is None:
        assert answer.proof.gap == pytest.approx(0.0, abs=1e-9)
        return
    assert "taken: " in answer.proof.statement
    assert "because it" in answer.proof.statement
    assert answer.proof.fastest_seconds <= answer.prediction.iteration_seconds


def test_alternatives_within_the_tie_are_marked(answered):
    _, answer = answered
    least = answer.proof.lower_bound_seconds
    for other in answer.alternatives:
        close, far = (other.iteration_seconds <= least * (1.0 + share) for share in (1e-4, WIDEST))
        assert far or not other.tied
        assert other.tied or not close


def test_strategies_that_are_surely_slower_are_not_tied(searched):
    outcome, scenario = searched
    taken = choose(outcome, scenario, width("validated")).taken
    resolved = resolve(PlanRequest(model="gpt3-175b", gpus=512)) if scenario.gpus == 512 else None
    if resolved is None or taken is outcome.best:
        return
    assert faster(outcome.best, taken, resolved) < SURE + 0.05


def test_tight_memory_and_switches_speak_against_a_strategy():
    tight, roomy = (Doubts(np.zeros(1), np.array([filled]), np.zeros(1)) for filled in (0.99, NEARLY_FULL))
    assert tight.total[0] - roomy.total[0] == TIGHT
    plain = strategies(pp=2, dp=4, schedule=SCHEDULE_NAMES.index("1f1b"), sharding_degree=4, zero_stage=1)
    assert switches(plain)[0] == 0.0
    odd = {
        "vpp": 4, "cp": 2, "recompute": 1, "zero_stage": 3, "offload": 1, "vocabulary": 1, "rank_order": 1,
        "sharding_degree": 2, "schedule": SCHEDULE_NAMES.index("zb-v"),
    }  # fmt: skip
    usual = {name: getattr(plain, name)[0] for name in ("pp", "dp", "schedule", "sharding_degree", "zero_stage")}
    for name, value in odd.items():
        assert switches(strategies(**(usual | {name: value})))[0] >= 1.0, name


def test_the_reason_names_memory_nearness_and_plainness():
    was = Doubts(np.array([1.0]), np.array([0.99]), np.array([3.0]))
    now = Doubts(np.array([0.5]), np.array([0.9]), np.array([1.0]))
    assert reason(was, now) == (
        "fills 90% of the memory in place of 99%, is nearer to measured runs (0.50 in place of 1.00) and "
        "needs fewer unusual settings"
    )


def test_the_curse_is_what_the_fastest_predicted_misses_beyond_its_sweep():
    runs = residuals.priced_runs({"zero-bubble"})
    cells = residuals.sweeps(runs)
    expected = [float(m[np.argmin(p)] - p[np.argmin(p)] - np.median(m - p)) for p, m in cells.values()]
    assert residuals.curse(runs) == pytest.approx(max(np.mean(expected), 0.0))


def test_the_command_line_takes_ties_and_refuses_other_words():
    call = ["--model", "llama3-8b", "--gpus", "8", "--format", "json"]
    good = CliRunner().invoke(main, [*call, "--ties", "validated"])
    assert good.exit_code == 0, good.stderr
    assert json.loads(good.stdout)["request"]["ties"] == "validated"
    bad = CliRunner().invoke(main, [*call, "--ties", "lucky"])
    assert bad.exit_code == 2
    assert "validated" in bad.stderr
    assert len(bad.stderr.strip().splitlines()) == 1
