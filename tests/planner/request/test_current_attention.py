"""A question about a framework is of its current release, and answers say so."""

from planner import PlanRequest
from planner.request.resolve import resolve
from tests.each import each


def assumed(**asked):
    return "; ".join(resolve(PlanRequest(model="llama3-8b", gpus=64, **asked)).defaults)


@each("stack", ["deepspeed", "fsdp", "torchtitan", "paddle", "mindformers", "nanotron", "generic"])
def test_attention_of_a_current_framework_is_fused(stack):
    asked = PlanRequest(model="llama3-8b", gpus=64, stack=stack)
    assert resolve(asked).scenario.rates.attention is not None
    assert "unfused" not in assumed(stack=stack)


def test_attention_that_a_model_may_have_otherwise_is_said():
    assert "attention kernel cudnn (PyTorch's SDPA)" in assumed(framework="deepspeed")
    assert "attention kernel flash-2 (PyTorch's SDPA)" in assumed(stack="fsdp", cluster="dgx-a100-80gb")
    assert "SDPA" not in assumed(stack="deepspeed", changes={"stack.attention_backend": "flash-2"})


def test_unfused_attention_is_said_with_the_kernel_that_the_device_has():
    assert (
        "attention unfused (stack megatron-lm-2022; --set stack.attention_backend=flash-2 prices a fused kernel)"
        in assumed(stack="megatron-lm-2022")
    )
    older = assumed(stack="mindformers", cluster="v100-dgx2", precision="fp16")
    assert "attention unfused (stack mindformers" in older
    assert "flash-2" not in older


def test_constants_that_no_run_taught_are_said():
    assert "constants of stack deepspeed are not calibrated" in assumed(stack="deepspeed")
    assert "not calibrated" not in assumed(stack="nemo")
