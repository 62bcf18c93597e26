"""Where nothing fits: the rule that really stands in the way, and the nearest request that works, solved."""

import pytest
from click.testing import CliRunner

from planner import PlanRequest, plan, predict
from planner.cli import main
from planner.explain.infeasible import deciding_rules, rejections
from planner.request.pins import parse_pins
from planner.request.resolve import resolve
from planner.search.best_first import Outcome
from planner.space.active_rules import binding
from planner.space.lattice import build
from tests.scenarios import toy_cluster, toy_device, toy_model, toy_stack

FALCON = {"model": "falcon-7b", "gpus": 64, "framework": "maxtext"}
MIXTRAL = {"model": "mixtral-8x7b", "gpus": 64, "framework": "nanotron"}
MEGASCALE = {
    "model": "22b", "gpus": 24, "cluster": "megascale", "framework": "megatron-bridge", "optimizer": "adafactor",
}  # fmt: skip


@pytest.mark.parametrize("degrees", ["2..8", "3..6", "2,3,4"])
def test_a_degree_of_a_range_that_could_never_be_does_not_hide_what_refuses_the_others(degrees):
    answer = plan(PlanRequest(model="deepseek-v3", gpus=96, framework="accelerate", pins={"tp": degrees}))
    assert answer.status == "infeasible"
    assert [one.rule for one in answer.rejected] == ["experts-sequence", "stack-sequence"]
    assert "sequence parallelism" in answer.rejected[0].example


def test_one_line_tells_both_of_two_rules_that_stand_together():
    said = CliRunner().invoke(
        main, ["--model", "deepseek-v3", "--gpus", "96", "--for", "accelerate", "--tp", "2..8"]
    ).stderr.splitlines()  # fmt: skip
    assert len(said) == 1
    assert "need sequence parallelism; tp 1 does not; stack fsdp has no sequence parallelism; nearest: " in said[0]


def due_in(**asked):
    """The rules that decide, and what is left without each."""
    scenario, pins = resolve(PlanRequest(**asked)).scenario, parse_pins(asked["pins"])
    space = build(scenario, pins)
    assert not space.allowed.any()
    due = deciding_rules(rejections(space, Outcome(), scenario), scenario, pins, binding(scenario))
    return {one.rule: bool(build(scenario, pins, without=one.rule).allowed.any()) for one in due}


@pytest.mark.parametrize(
    ("pins", "rules"),
    [
        ({"schedule": "1f1b", "vpp": "4,6"}, ["schedule"]),
        ({"tp": "3,6"}, ["heads"]),
        ({"tp": "2,3", "pp": 2, "vpp": "9,11"}, ["equal-chunks"]),
        ({"tp": "2,3", "zero_stage": "2,3"}, ["stack-zero"]),
    ],
)
def test_a_rule_that_refuses_all_that_is_asked_for_alone_is_told_alone(pins, rules):
    assert list(due_in(model="22b", gpus=24, pins=pins)) == rules


def test_without_any_of_the_rules_that_stand_together_something_is_left():
    due = due_in(model="deepseek-v3", gpus=96, framework="accelerate", pins={"tp": "2..8"})
    assert len(due) > 1
    assert all(due.values())


@pytest.mark.parametrize(
    ("asked", "near", "freed"),
    [
        (FALCON, "without --for maxtext (stack megatron-core)", "framework"),
        (MIXTRAL, "without --for nanotron (stack megatron-core)", "framework"),
        (MEGASCALE, "without --optimizer adafactor", "optimizer"),
    ],
)
def test_what_an_option_rules_out_works_without_it_and_takes_as_long_as_is_said(asked, near, freed):
    refused = plan(PlanRequest(**asked))
    assert refused.status == "infeasible"
    assert [one.rule.partition("-")[0] for one in refused.rejected] == [refused.rejected[0].rule.partition("-")[0]]
    assert refused.nearest.subject == near
    works = plan(PlanRequest(**{name: value for name, value in asked.items() if name != freed}, reasons=False))
    fastest = works.proof.fastest_seconds or works.prediction.iteration_seconds
    assert refused.nearest.iteration_seconds == pytest.approx(fastest, rel=1e-9)


def test_of_two_obstacles_both_are_removed():
    asked = {"model": "llama3-70b", "framework": "torchtitan", "global_batch_size": 512}
    refused = plan(PlanRequest(**asked, gpus=8, optimizer="adafactor", pins={"offload": "none"}))
    assert refused.nearest.subject == "without --optimizer adafactor, and without --offload"
    assert plan(PlanRequest(**asked, gpus=8, reasons=False)).status == "optimal"
    larger = {**asked, "model": "llama3.1-405b"}
    far = plan(PlanRequest(**larger, gpus=8, optimizer="adafactor"))
    option, _, count = far.nearest.subject.partition(", on ")
    assert option == "without --optimizer adafactor"
    assert plan(PlanRequest(**larger, gpus=int(count.split()[0]), reasons=False)).status == "optimal"


def test_where_nothing_near_works_what_was_tried_is_said():
    tiny = toy_cluster(device=toy_device(memory=1e6))
    asked = {"model": toy_model(), "cluster": tiny, "stack": toy_stack(), "gpus": 8, "global_batch_size": 16}
    answer = plan(PlanRequest(**asked, memory_margin=0.1, pins={"tp": 2}))
    assert (answer.status, answer.nearest) == ("infeasible", None)
    assert answer.nothing_near.startswith("fewer pins; up to 64 times as many GPUs, and fewer than 8; without one of ")
    assert "--memory-margin 0.1" in answer.nothing_near


def test_a_batch_nearby_is_named_before_tensor_ranks_over_several_nodes():
    pins = {"tp": 8, "pp": 35, "vpp": 3, "schedule": "interleaved-1f1b"}
    asked = {"model": "megascale-530b", "gpus": 11200, "pins": pins}
    refused = predict(PlanRequest(**asked, global_batch_size=6160))
    assert refused.nearest.subject == "--global-batch 5600"
    assert predict(PlanRequest(**asked, global_batch_size=5600)).fits


def test_chunks_take_the_schedule_of_their_number_of_micro_batches_where_nobody_names_one():
    asked, pins = {"model": "megascale-530b", "gpus": 11200}, {"tp": 8, "pp": 35, "vpp": 3}
    found, named = (
        predict(PlanRequest(**asked, global_batch_size=6160, pins=pins | more))
        for more in ({}, {"schedule": "interleaved-groups"})
    )
    assert found.fits
    assert found.prediction == named.prediction
    usual = predict(PlanRequest(**asked, global_batch_size=5600, pins=pins))
    assert usual.strategy.schedule == "interleaved-1f1b"


def test_chunks_of_a_stack_without_that_schedule_are_refused_for_one_reason():
    asked = {"model": "llama3-8b", "gpus": 64, "stack": "torchtitan", "global_batch_size": 72}
    refused = predict(PlanRequest(**asked, pins={"pp": 8, "vpp": 2}))
    assert [one.rule for one in refused.rejected] == ["interleave-groups"]


def test_adapters_that_do_not_fit_are_told_the_narrow_weights_under_which_they_do():
    asked = {"model": "qwen2.5-14b", "gpus": 1, "cluster": "rtx4090-8x", "adapters": "16", "reasons": False}
    refused = plan(PlanRequest(**asked))
    assert (refused.status, refused.nearest.subject) == ("infeasible", "--base-precision nf4")
    found = plan(PlanRequest(**asked, base_precision="nf4"))
    assert found.prediction.iteration_seconds == pytest.approx(refused.nearest.iteration_seconds)
    wide = plan(PlanRequest(**asked, base_precision="bf16"))
    assert wide.nearest.subject != "--base-precision nf4"


def test_chunks_need_not_divide_the_gpus():
    refused = predict(PlanRequest(model="175b", gpus=1024, pins={"tp": 8, "pp": 16, "vpp": 5}))
    assert refused.rejected[0].example.endswith("; 4 and 6 do")


def test_what_does_not_fit_is_told_the_sharding_under_which_it_does():
    asked = {"model": "palm-540b", "gpus": 6144, "cluster": "tpu-v4", "global_batch_size": 2048}
    assert predict(PlanRequest(**asked, pins={"tp": 12})).nearest.subject == "--zero 3"
    assert predict(PlanRequest(**asked, pins={"tp": 12, "zero_stage": 3})).fits
