"""A plan that its stack's framework refuses says so, with what that framework would get."""

from planner import PlanRequest, plan
from planner.answer.text import format_seconds


def remarks(**asked):
    return [said for said in plan(PlanRequest(**asked)).warnings if "cannot start this plan" in said]


def test_a_plan_that_megatron_refuses_says_so_and_what_it_starts():
    (said,) = remarks(model="llama3-70b", gpus=8)
    assert said.startswith("megatron-lm cannot start this plan: no optimizer adam")
    assert said.endswith("--for megatron-lm searches for one that it can")


def test_what_another_framework_would_start_has_its_price():
    (said,) = remarks(model="llama3-8b", gpus=64, stack="torchtitan")
    own = plan(PlanRequest(model="llama3-8b", gpus=64, framework="torchtitan", reasons=False))
    assert f"it starts dp {own.strategy.dp}, {format_seconds(own.prediction.iteration_seconds)} (+" in said


def test_a_plan_that_starts_or_was_asked_for_a_framework_says_nothing():
    assert not remarks(model="llama3-8b", gpus=64)
    assert not remarks(model="llama3-8b", gpus=64, framework="torchtitan")
    assert not remarks(model="llama3-8b", gpus=64, stack="generic")
