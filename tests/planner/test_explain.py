"""Explanations carry numbers, and the numbers are those that asking outright would give."""

import pytest

from hardware.records import NodeGroup
from planner import PlanRequest, plan
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
        pinned = ask(pins={axis.lower(): int(degree)})
        assert line.iteration_seconds == pytest.approx(pinned.prediction.iteration_seconds, rel=1e-9)


def test_helping_never_means_slower_and_the_most_useful_comes_first(answer):
    seconds = [line.iteration_seconds for line in answer.what_helps]
    assert seconds == sorted(seconds)
    assert all(value <= answer.prediction.iteration_seconds * (1 + 1e-12) for value in seconds)


def test_a_faster_network_helps_at_least_as_much_as_the_advice_says(answer):
    """The advice keeps the strategy; a new plan may do better still."""
    outer = toy_tiers(outer=toy_link(bandwidth=20e9))
    replanned = ask(cluster=toy_cluster(tiers=outer))
    promised = by_subject(answer.what_helps)["network 2x"].iteration_seconds
    assert replanned.prediction.iteration_seconds <= promised * (1 + 1e-9)


def test_faster_arithmetic_helps_at_least_as_much_as_the_advice_says(answer):
    replanned = ask(cluster=toy_cluster(device=toy_device(peak=125e12)))
    promised = by_subject(answer.what_helps)["arithmetic 1.25x"].iteration_seconds
    assert replanned.prediction.iteration_seconds <= promised * (1 + 1e-9)


def test_a_machine_of_one_node_has_no_network_to_improve():
    lines = by_subject(ask(gpus=4).what_helps)
    assert "network 2x" not in lines or lines["network 2x"].text == "nothing"


def test_the_closest_run_is_named(answer):
    assert answer.closest_run


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_the_nearest_machine_that_works_does_work_in_the_time_it_says(gpus):
    small = toy_cluster(device=toy_device(memory=1.2e8))
    asked = {"cluster": small, "gpus": gpus, "stack": toy_stack(zero_stages=(0, 1, 2, 3))}
    refused = ask(**asked)
    assert refused.status == "infeasible"
    number = int(refused.nearest.subject.split()[0])
    enough = ask(**(asked | {"gpus": number}))
    assert enough.status == "optimal"
    assert enough.prediction.iteration_seconds == pytest.approx(refused.nearest.iteration_seconds)


def test_the_nearest_plan_of_impossible_pins_is_the_plan_without_them():
    refused = ask(pins={"micro_batch_size": 512})
    assert refused.nearest.subject == "without the pinned micro_batch_size"
    assert refused.nearest.iteration_seconds == pytest.approx(ask().prediction.iteration_seconds)


def test_rejections_count_what_the_space_holds(answer):
    rules = [rejection for rejection in answer.rejected if rejection.rule != "memory"]
    assert 0 < sum(rejection.count for rejection in rules) <= answer.proof.candidates


def test_the_toy_group_is_one_group():
    assert isinstance(toy_cluster().groups[0], NodeGroup)
