"""A plan that its stack's framework refuses says so, with what that framework would get."""

import re

import pytest

from planner import PlanRequest, plan, predict
from planner.analyses.size import size
from planner.analyses.what_if import what_if
from planner.api.short import short_plan
from planner.request.budget import Budget


def remarks(**asked):
    answer = plan(PlanRequest(**{"top": 0, **asked}))
    said = [one for one in answer.warnings if "cannot start this plan" in one]
    assert answer.startable == (not said)
    return said


def test_a_plan_that_megatron_refuses_says_so_and_what_it_starts():
    (said,) = remarks(model="llama3-70b", gpus=8, framework="any")
    assert said.startswith("megatron-lm cannot start this plan: it takes no optimizer adam")
    assert said.endswith("--for megatron-lm searches for one that it can")


def test_what_another_framework_would_start_has_its_price():
    (said,) = remarks(model="llama3-8b", gpus=64, stack="torchtitan", framework="any")
    own = plan(PlanRequest(model="llama3-8b", gpus=64, framework="torchtitan", reasons=False))
    (seconds,) = re.findall(r"it starts [a-z\d ]+, ([\d.]+) s \(\+", said)
    assert float(seconds) >= own.prediction.iteration_seconds * (1 - 1e-3)


def test_a_plan_that_starts_or_was_asked_for_a_framework_says_nothing():
    assert not remarks(model="llama3-8b", gpus=64)
    assert not remarks(model="llama3-8b", gpus=64, framework="torchtitan")
    assert not remarks(model="llama3-8b", gpus=64, stack="generic")


def test_sizes_points_of_sweeps_and_what_ifs_say_so_as_a_plan_does():
    asked = PlanRequest(model="llama3-8b", gpus=64, framework="any", stack="torchtitan")
    short, refused = short_plan(asked, Budget()), "torchtitan cannot start this plan"
    assert not short.startable
    for said in (short.warnings, what_if(asked).warnings, size(asked, days=1e5).answer.careful):
        assert [refused in one for one in said].count(True) == 1


def beyond(**asked):
    return [one.text for one in plan(PlanRequest(**asked, top=0)).choices if one.subject == "--for any"]


def test_a_plan_starts_with_the_framework_of_its_stack_and_what_does_not_stands_beside_it():
    asked = {"model": "llama3.1-405b", "gpus": 16384, "cluster": "meta-24k"}
    found, free = (plan(PlanRequest(**asked, **more, reasons=False)) for more in ({}, {"framework": "any"}))
    assert found.strategy.rank_order == "tp-cp-ep-dp-pp"
    assert "a plan that megatron-lm starts (--for any allows others)" in found.defaults
    gain = 1.0 - free.prediction.iteration_seconds / found.prediction.iteration_seconds
    (said,) = beyond(**asked)
    assert said.startswith(f"{gain:.1%} faster, ")
    assert "megatron-lm cannot start it: it takes no rank order tp-cp-ep-pp-dp with" in said


def test_what_needs_a_users_own_code_is_planned_only_where_its_axis_is_pinned():
    asked = {"model": "llama3-8b", "gpus": 64, "stack": "deepspeed", "seq_length": 65536, "reasons": False}
    assert plan(PlanRequest(**asked)).strategy.cp == 1
    assert plan(PlanRequest(**asked, pins={"cp": "2.."})).strategy.cp >= 2


def test_where_the_framework_starts_nothing_of_what_is_pinned_it_is_planned_without():
    pins = {"rank_order": "tp-cp-ep-pp-dp", "cp": 4, "tp": 4, "pp": 8}
    found = plan(PlanRequest(model="175b", gpus=1024, pins=pins))
    assert found.strategy.rank_order == "tp-cp-ep-pp-dp"
    assert "framework any (nothing fits that the stack's framework can start)" in found.defaults
    assert any(
        "megatron-lm cannot start this plan: it takes no rank order tp-cp-ep-pp-dp" in said for said in found.warnings
    )


@pytest.mark.parametrize(
    "asked", [{"stack": "torchtitan", "cluster": "v100"}, {"stack": "nanotron", "precision": "fp8"}]
)
@pytest.mark.parametrize("reasons", [False, True])
def test_a_format_that_the_framework_never_takes_is_named_with_no_search_for_another_plan(asked, reasons):
    (said,) = remarks(model="llama3-8b", gpus=32, seq_length=2048, top=0, reasons=reasons, **asked)
    assert f"{asked['stack']} cannot start this plan: it takes no precision fp" in said
    assert "--for" not in said


def test_a_given_strategy_that_the_framework_refuses_is_not_said_to_be_launched_by_its_files():
    asked = PlanRequest(model="llama3-8b", gpus=8, stack="nanotron", precision="fp8", pins={"tp": 2, "pp": 2})
    launched = predict(asked).summary().partition("Launch")[2]
    assert "nanotron cannot start this plan: it takes no precision fp8" in " ".join(launched.split())


def test_degrees_that_a_plan_does_without_are_no_gain_of_another_framework_or_of_offloading():
    found = plan(PlanRequest(model="nemotron-h-8b", gpus=64))
    assert found.proof.scope[0] == "among strategies with at most VPP 1, the most that was measured"
    assert not found.choices
    assert not any("offload" in line.subject for line in found.what_helps)
