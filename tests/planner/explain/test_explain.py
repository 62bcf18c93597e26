"""Explanations carry numbers, and the numbers are those that asking outright would give."""

import json
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from hardware.records import NodeGroup
from planner import PlanRequest, plan, why_not
from planner.answer.text import CUT_SHORT, NOT_KNOWN, format_bytes
from planner.api.answers import ONE_GROUP, found_plan
from planner.explain.what_helps import gained
from planner.render.page.source import shown_plan
from planner.render.terminal.terminal import render
from planner.request.budget import Budget
from planner.request.resolve import resolve
from planner.search.best_first import search
from planner.search.objective import Search
from planner.space.lattice import build
from tests.scenarios import toy_cluster, toy_device, toy_link, toy_model, toy_stack, toy_tiers

STACK = toy_stack(uneven_stages=False, zero_stages=(0, 1))


def ask(**changes):
    usual = {"model": toy_model(), "cluster": toy_cluster(), "stack": STACK, "gpus": 8, "global_batch_size": 16}
    return plan(PlanRequest(**(usual | changes)))


def by_subject(lines):
    return {line.subject: line for line in lines}


@pytest.fixture(name="answer", scope="module")
def fixture_answer():
    return ask()


def test_every_challenge_is_slower_or_says_why_it_cannot_be(answer):
    assert answer.why_not
    for line in answer.why_not:
        assert line.text
        if line.iteration_seconds is not None:
            assert line.iteration_seconds >= answer.prediction.iteration_seconds * (1 - 1e-9)


def test_the_best_is_no_challenge_to_itself():
    alone = ask(gpus=1)
    assert (alone.strategy.tp, alone.strategy.pp, alone.strategy.cp) == (1, 1, 1)
    assert "pure data parallel" not in by_subject(alone.why_not)
    assert "pure data parallel" not in by_subject(ask(pins={"tp": 1, "pp": 1, "cp": 1}).why_not)


def test_a_challenge_costs_what_pinning_it_costs(answer):
    lines = [line for line in answer.why_not if line.subject.startswith(("TP ", "PP ")) and line.iteration_seconds]
    assert lines
    for line in lines:
        axis, degree = line.subject.split()
        pinned = ask(pins={axis.lower(): int(degree)}, reasons=False)
        assert line.iteration_seconds == pytest.approx(pinned.prediction.iteration_seconds, rel=1e-9)


def test_helping_never_means_slower_and_the_most_useful_comes_first(answer):
    seconds = [line.iteration_seconds for line in answer.what_helps]
    assert seconds == sorted(seconds)
    assert all(value <= answer.prediction.iteration_seconds * (1 + 1e-12) for value in seconds)


def test_a_faster_network_helps_as_much_as_the_advice_says(answer):
    outer = toy_tiers(outer=toy_link(bandwidth=20e9))
    replanned = ask(cluster=toy_cluster(tiers=outer), reasons=False)
    promised = by_subject(answer.what_helps)["network 2x"].iteration_seconds
    assert replanned.prediction.iteration_seconds == pytest.approx(promised, rel=1e-9)


def test_faster_arithmetic_helps_as_much_as_the_advice_says(answer):
    replanned = ask(cluster=toy_cluster(device=toy_device(peak=125e12)), reasons=False)
    promised = by_subject(answer.what_helps)["arithmetic 1.25x"].iteration_seconds
    assert replanned.prediction.iteration_seconds == pytest.approx(promised, rel=1e-9)


def test_a_machine_of_one_node_has_no_network_to_improve():
    lines = by_subject(ask(gpus=4).what_helps)
    assert "network 2x" not in lines or lines["network 2x"].text == "nothing"


def test_the_closest_run_is_named(answer):
    assert answer.closest_run


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_the_nearest_machine_that_works_does_work_in_the_time_it_says(gpus):
    small = toy_cluster(device=toy_device(memory=1.5e8))
    asked = {"cluster": small, "gpus": gpus, "stack": toy_stack(zero_stages=(0, 1, 2, 3))}
    refused = ask(**asked)
    assert refused.status == "infeasible"
    number = int(refused.nearest.subject.split()[0])
    enough = ask(**(asked | {"gpus": number}), reasons=False)
    assert enough.status == "optimal"
    assert enough.prediction.iteration_seconds == pytest.approx(refused.nearest.iteration_seconds)


def test_the_nearest_plan_of_impossible_pins_is_the_plan_without_them():
    refused = ask(pins={"micro_batch_size": 512})
    assert refused.nearest.subject == "without --micro-batch"
    assert refused.nearest.iteration_seconds == pytest.approx(ask(reasons=False).prediction.iteration_seconds)


def test_rejections_count_what_the_space_holds(answer):
    rules = [rejection for rejection in answer.rejected if rejection.rule != "memory"]
    assert 0 < sum(rejection.count for rejection in rules) <= answer.proof.candidates


def test_the_toy_group_is_one_group():
    assert isinstance(toy_cluster().groups[0], NodeGroup)


@pytest.fixture(name="hurried", scope="module")
def fixture_hurried():
    """The answer whose reasons had no effort left."""
    with pytest.MonkeyPatch.context() as spent:
        no_effort(spent)
        return ask()


def no_effort(monkeypatch):
    monkeypatch.setattr("planner.api.answers.ONE_GROUP", ONE_GROUP._make([0.0] * 4))


def test_a_figure_that_time_left_unproved_is_said_to_be_a_bound_and_no_row_is_lost(answer, hurried):
    assert [line.subject for line in hurried.why_not] == [line.subject for line in answer.why_not]
    assert {line.subject for line in hurried.what_helps} == {line.subject for line in answer.what_helps}
    truth = by_subject(answer.why_not)
    late = [line for line in hurried.why_not if not line.proved]
    assert late
    assert not any(line.proved for line in hurried.what_helps if line.subject == "memory 2x")
    for line in late:
        known = truth[line.subject].iteration_seconds
        assert line.text.startswith("at most ") if line.iteration_seconds else line.text.startswith("not known: ")
        assert line.iteration_seconds is None or line.iteration_seconds >= known * (1 - 1e-9)
    assert all(line.proved for line in (*answer.why_not, *answer.what_helps))


def test_a_time_limit_that_is_asked_for_is_what_the_reasons_have(answer, monkeypatch):
    no_effort(monkeypatch)
    patient = ask(time_limit=120)
    assert patient.why_not == answer.why_not
    assert patient.what_helps == answer.what_helps
    assert patient.alternatives_complete


def test_a_gain_that_time_left_unproved_is_the_least_that_is_gained():
    assert gained("memory 2x", 9.0, 10.0, proved=False).text == "at least -1 s (-10.0%)"
    assert gained("memory 2x", 10.0, 10.0, proved=False).text == NOT_KNOWN
    assert gained("memory 2x", 10.0, 10.0).text == "nothing"


def test_what_was_not_proved_is_marked_in_every_form(answer, hurried):
    said = json.loads(hurried.to_json())
    assert not said["alternatives_complete"]
    assert [line["proved"] for line in said["why_not"]] == [line.proved for line in hurried.why_not]
    console = Console(width=120, record=True, file=StringIO())
    render(hurried, console)
    screen = console.export_text()
    late = next(line for line in hurried.why_not if not line.proved)
    for text in (late.text[:20], CUT_SHORT):
        assert text in screen
        assert text in json.dumps(shown_plan(hurried).plan["advice"])
    assert CUT_SHORT not in json.dumps(shown_plan(answer).plan["advice"])


def search_cut_short(**pins):
    """A request, its lattice, and a search that its budget ended when it had seen the pinned strategies alone."""
    resolved = resolve(PlanRequest(model=toy_model(), cluster=toy_cluster(), stack=STACK, gpus=8, global_batch_size=16))
    space = build(resolved.scenario, {})
    among = np.flatnonzero(np.all([getattr(space.cores, axis) == value for axis, value in pins.items()], axis=0))
    outcome = search(space, resolved.scenario, budget=Budget(), among=among)
    outcome.proved, outcome.lower_bound = False, 0.5 * outcome.best.iteration
    return Search(resolved, {}, space, outcome)


def test_what_the_runners_up_find_better_is_proposed_and_nothing_better_stands_beside_it(answer):
    asked = search_cut_short(tp=8)
    worse = asked.outcome.best.iteration
    found = found_plan(asked, Budget())
    assert found.prediction.iteration_seconds < worse * (1 - 1e-6)
    assert found.status == "feasible"
    assert found.prediction.iteration_seconds >= answer.prediction.iteration_seconds * (1 - 1e-9)
    others = [other.iteration_seconds for other in found.alternatives]
    assert all(seconds >= found.prediction.iteration_seconds * (1 - 1e-9) for seconds in others)
    assert worse in [pytest.approx(seconds, rel=1e-6) for seconds in others] or worse > max(others)
    for line in found.why_not:
        assert line.iteration_seconds is None or line.iteration_seconds >= found.prediction.iteration_seconds * (
            1 - 1e-9
        )


@pytest.mark.parametrize("objective", ["time", "mfu", "cost", "tokens-per-gpu-hour", "memory", "goodput"])
def test_every_reason_is_by_the_objective_that_is_asked_for(objective):
    found = ask(objective=objective, gpus=8)
    assert found.alternatives
    assert found.why_not
    for line in found.why_not:
        axis, _, degree = line.subject.partition(" ")
        if axis in ("TP", "PP") and line.iteration_seconds:
            pinned = ask(objective=objective, pins={axis.lower(): int(degree)}, reasons=False)
            assert pinned.value >= found.value * (1 - 1e-9)
            assert line.iteration_seconds == pytest.approx(pinned.prediction.iteration_seconds, rel=1e-3)
            assert line.peak_memory_bytes is None or line.peak_memory_bytes == pytest.approx(pinned.value, rel=1e-9)
            assert f"({pinned.value / found.value - 1:+.1%})" in line.text
    assert (objective == "memory") == any(line.peak_memory_bytes for line in found.why_not)
    assert objective != "memory" or not any(other.tied for other in found.alternatives)
    assert (objective == "goodput") == all(other.effective is not None for other in found.alternatives)


def test_the_leanest_plan_comes_first_among_its_alternatives_and_more_devices_help_it():
    found = ask(objective="memory")
    peaks = [other.peak_memory_bytes for other in found.alternatives]
    assert min(peaks) >= max(stage.total for stage in found.memory_bytes) * (1 - 1e-9)
    assert peaks == sorted(peaks)
    help_ = by_subject(found.what_helps)["16 GPUs"]
    assert help_.peak_memory_bytes == pytest.approx(ask(objective="memory", gpus=16, reasons=False).value, rel=1e-9)


def test_why_not_asks_by_the_objective():
    asked = PlanRequest(
        model=toy_model(), cluster=toy_cluster(), stack=STACK, gpus=8, global_batch_size=16, objective="memory",
        pins={"tp": 1, "pp": 1, "cp": 1, "zero_stage": 0},
    )  # fmt: skip
    answer = why_not(asked)
    assert "on its fullest device" in answer.verdict
    assert "more than" in answer.verdict
    this, best = (sum(pair[side] for pair in answer.memory_terms.values()) for side in (0, 1))
    assert this == pytest.approx(plan(asked).value, rel=1e-6)
    assert this > best


def test_the_best_plan_of_the_same_degrees_is_told_by_what_is_otherwise():
    asked = PlanRequest(model="llama3-8b", gpus=64, stack="torchtitan", framework="torchtitan", global_batch_size=64)
    pins = {"dp": 64, "zero_stage": 3, "recompute": "selective", "micro_batch_size": 1}
    found = why_not(asked.model_copy(update={"pins": pins}))
    assert found.best == "DP 64, ZeRO 2 instead of 3, recompute none instead of selective"


@pytest.mark.parametrize("framework", ["deepspeed", "torchtitan", "nanotron", "maxtext", "paddle", "megatron-lm"])
def test_full_recomputation_costs_what_pinning_it_costs_whatever_the_framework(framework):
    asked = {"model": "llama3-8b", "gpus": 16, "global_batch_size": 128, "framework": framework}
    line = by_subject(plan(PlanRequest(**asked, top=0)).why_not)["full recompute"]
    pinned = plan(PlanRequest(**asked, pins={"recompute": "full"}, reasons=False))
    fastest = pinned.proof.fastest_seconds or pinned.prediction.iteration_seconds
    assert line.iteration_seconds == pytest.approx(fastest, rel=1e-8)


def test_no_interleaving_costs_what_pinning_one_chunk_costs_a_pipeline_or_none():
    asked = {"model": "llama2-13b", "gpus": 64, "global_batch_size": 64}
    found = plan(PlanRequest(**asked))
    assert found.strategy.vpp > 1
    line = by_subject(found.why_not)["no interleaving"]
    pinned = plan(PlanRequest(**asked, pins={"vpp": 1}, reasons=False))
    assert pinned.strategy.pp == 1
    assert line.iteration_seconds == pytest.approx(pinned.prediction.iteration_seconds, rel=1e-8)


@pytest.mark.parametrize(("value", "told"), [(0, "0.0 GiB"), (15 * 2**20, "15 MiB"), (1.5 * 2**30, "1.5 GiB")])
def test_bytes_that_a_tenth_of_a_gibibyte_does_not_show_are_told_in_mebibytes(value, told):
    assert format_bytes(value) == told
