"""The nearest plan that a target starts, which a refused export names."""

import re

import pytest

from planner import api
from planner.jobs.job import Inexpressible
from planner.jobs.nearest import nearest_expressible
from planner.jobs.registry import export
from planner.request.request import PlanRequest


def hint(pins, target):
    """What a refused export says of the nearest plan that the target starts."""
    asked = api.plan(PlanRequest(model="llama3-8b", gpus=64, pins=pins, top=0))
    return nearest_expressible(asked, target)


def test_the_nearest_plan_keeps_the_pins_that_it_can():
    pins = {"pp": 2, "tp": 2, "vpp": 1, "schedule": "gpipe", "micro_batch_size": 1}
    said = hint(pins, "megatron-lm")
    assert "pp 2" in said
    assert said.endswith("(plan --for megatron-lm, without --schedule)")
    said = hint({"micro_batch_size": 2, "pp": 2}, "megatron-lm")
    assert said.endswith("(plan --for megatron-lm with these degrees pinned)")


@pytest.mark.parametrize("model", ["llama2-7b", "mixtral-8x7b"])
@pytest.mark.parametrize("name", ["paddle", "deepspeed"])
def test_the_nearest_plan_is_what_its_question_answers_fits_and_can_be_exported(model, name):
    pins = {"pp": 4, "tp": 2, "vpp": 2}
    asked = {"model": model, "gpus": 64, "global_batch_size": 256, "reasons": False}
    refused = api.plan(PlanRequest(**asked, stack="megascale", pins=pins))
    with pytest.raises(Inexpressible):
        export(refused, name)
    said = nearest_expressible(refused, name)
    words, seconds, stack, question = re.match(r"; nearest: (.*) in (.*) s on stack (\S+) \(plan (.*)\)", said).groups()
    degrees = dict(zip(words.split()[::2], map(int, words.split()[1::2]), strict=True))
    gone = re.findall(r"--(\w+)", question.partition("without ")[2])
    left = {axis: value for axis, value in pins.items() if axis not in gone}
    left |= degrees if "with these degrees pinned" in question else {}
    found = api.plan(PlanRequest(**asked, framework=name, pins=left))
    assert (f"{found.prediction.iteration_seconds:.4g}", found.request["stack"]) == (seconds, stack)
    assert export(found, name).files


def test_a_usual_margin_of_memory_is_that_of_the_stack_that_is_named():
    asked = {"model": "llama3.1-405b", "gpus": 1024, "reasons": False}
    said = nearest_expressible(api.plan(PlanRequest(**asked)), "deepspeed")
    found = api.plan(PlanRequest(**asked, framework="deepspeed"))
    assert f" in {found.prediction.iteration_seconds:.4g} s on stack deepspeed (plan --for deepspeed)" in said


def test_pins_that_have_to_go_are_named():
    said = hint({"pp": 2, "tp": 2}, "accelerate")
    assert "pp 1" in said
    assert said.endswith(" on stack fsdp (plan --for accelerate, without --pp)")
