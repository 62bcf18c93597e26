"""Whoever asks can follow how far the answer has come, and the answer is the same."""

from pathlib import Path
from typing import get_type_hints

import pytest

from planner import PlanRequest, allocate, calibrate, plan, plan_sparse, replan, validate, why_not
from planner.allocation.document import in_words
from planner.allocation.queue import queue_of
from planner.request.changes import RequestChanges, RequestFields
from planner.request.progress import Progress
from tests.scenarios import toy_cluster, toy_model, toy_stack

EXAMPLES = Path(__file__).parents[2] / "examples"
QUEUE = {
    "cluster": "dgx-h100",
    "gpus": 32,
    "jobs": [{"name": name, "model": "gpt3-1.3b", "tokens": "300B", "gpus": [8, 16, 24]} for name in "abc"],
}
ASKED = PlanRequest(model=toy_model(), cluster=toy_cluster(), stack=toy_stack(uneven_stages=True), gpus=16)


def told(ask, *arguments, **named):
    said = []
    return ask(*arguments, progress=said.append, **named), said


def test_a_plan_tells_its_best_its_gap_and_what_it_does_next():
    answer, said = told(plan, ASKED)
    assert all(isinstance(one, Progress) for one in said)
    assert said[0].doing == "searching"
    assert {one.doing for one in said} >= {"searching", "comparing with other choices", "looking for what would help"}
    assert said[-1].best == pytest.approx(answer.proof.fastest_seconds or answer.prediction.iteration_seconds)
    gaps = [one.gap for one in said if one.gap is not None]
    assert gaps
    assert all(0.0 <= gap <= 1.0 for gap in gaps)


def test_being_told_changes_no_answer():
    with_talk, _ = told(plan, ASKED)
    silent = plan(ASKED)
    assert with_talk.strategy == silent.strategy
    assert with_talk.why_not == silent.why_not
    assert with_talk.what_helps == silent.what_helps


def test_the_best_never_gets_worse_nor_falls_below_the_bound():
    _, said = told(plan, ASKED)
    best = [one.best for one in said if one.best is not None]
    assert best == sorted(best, reverse=True)
    assert all(one.bound <= one.best * (1 + 1e-9) for one in said if one.best and one.bound is not None)


def test_whoever_is_told_may_end_the_question():
    class Enough(Exception):
        pass

    def stop(_progress):
        raise Enough

    with pytest.raises(Enough):
        plan(ASKED, progress=stop)


def test_every_question_that_searches_tells():
    assert told(why_not, ASKED.model_copy(update={"pins": {"tp": 2}}))[1]
    assert told(replan, plan(ASKED.model_copy(update={"reasons": False})), 8)[1]
    from planner import robust, size, what_if

    few = {"gpus": 4, "pins": {"pp": 1, "cp": 1, "recompute": "none", "zero_stage": 1}}
    assert {one.doing for one in told(what_if, ASKED)[1]} >= {"searching", "turning levers"}
    assert told(robust, ASKED.model_copy(update=few), "10%")[1][-1].total > 1
    sizes = told(size, ASKED.model_copy(update={"tokens": 10**9}), days=1000.0)[1]
    assert any(one.doing.endswith("GPUs") for one in sizes)


def test_a_search_of_machines_for_a_sparse_model_tells_its_best_in_words():
    model, servers = EXAMPLES / "ctr-dnn.toml", "fleet-cpu"
    answer, said = told(plan_sparse, model, servers, min_throughput="1M", mode="async")
    assert said[-1].so_far == f"best so far ${answer.cost_per_hour:,.2f} an hour"
    assert said[-1].gap < 1e-6
    _, said = told(plan_sparse, model, servers, max_cost_per_hour=5.0, mode="async")
    rates = [one for one in said if one.so_far]
    assert rates[0].so_far.endswith("examples/s")
    assert [one.best for one in rates] == sorted((one.best for one in rates), reverse=True)
    assert all(0.0 <= one.gap <= 1.0 for one in rates)


@pytest.mark.parametrize("objective", ["weighted-finish", "fairness"])
def test_a_division_of_a_cluster_tells_its_placements_then_its_best(objective):
    answer, said = told(allocate, queue_of(QUEUE | {"objective": objective}))
    assert [one.done for one in said if one.total == answer.searches] == [*range(1, answer.searches + 1)]
    dividing = [one for one in said if one.doing == "searching the best division among the jobs"]
    assert dividing[-1].so_far == f"best so far {in_words(objective, answer.value)}"
    assert (dividing[-1].gap is None) == (objective == "fairness")


def test_judged_runs_and_a_fit_tell_their_error_so_far():
    runs = EXAMPLES / "calibrate" / "runs.jsonl"
    _, said = told(validate, runs)
    assert said[-1].done == said[-1].total == 3
    assert said[-1].so_far.startswith("median error of times so far ")
    _, said = told(calibrate, runs)
    assert {one.doing for one in said} == {"pricing your runs", "predicting each run from the others"}
    assert said[-1].so_far.endswith(" after the fit")


def test_an_editor_offers_every_field_of_a_question_and_none_that_is_not_there():
    """The types that people write are listed with those that a request keeps."""
    assert set(get_type_hints(RequestChanges)) == set(PlanRequest.model_fields) - {"gpus"}
    assert RequestFields.__optional_keys__ == set(PlanRequest.model_fields) - {"gpus", "model"}
