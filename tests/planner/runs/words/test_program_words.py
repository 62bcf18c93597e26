"""The words of a measured run on the program that trained it, and on what that program does."""

import pytest

from planner.runs.words.mapping import case
from tests.planner.measured_run import run


@pytest.mark.parametrize(
    "words",
    ["torch.compile", "torch.compile; no TP", "torch_compile", "torch compiled", "compile=True", "compile: true"],
)
def test_a_compiler_is_named_in_many_ways(words):
    plain = {"framework": "PyTorch FSDP"}
    assert case(run(stack=plain | {"overlap": words})).scenario.stack.switches.fused_elementwise
    assert not case(run(stack=plain)).scenario.stack.switches.fused_elementwise


@pytest.mark.parametrize(
    "words",
    ["compile=False", "torch_compile: false", "torch.compile (off)", "compiled from source", "no torch_compile"],
)
def test_words_on_compiling_that_fuse_nothing(words):
    assert not case(
        run(stack={"framework": "PyTorch FSDP", "overlap": words})
    ).scenario.stack.switches.fused_elementwise


@pytest.mark.parametrize(
    "framework", ["TRL SFTTrainer", "LLaMA Factory", "HF PEFT", "ms-swift", "axolotl", "HF Trainer"]
)
def test_programs_that_train_transformers_models_do_so_under_any_name(framework):
    stack = case(run(stack={"framework": framework})).scenario.stack
    assert (stack.name, stack.kernels.saved_tensors[:2]) == ("fsdp", ("gate", "norm"))


@pytest.mark.parametrize("framework", ["Megatron-SWIFT (ms-swift)", "control", "scripts of a trlx fork"])
def test_other_frameworks_are_none_of_them(framework):
    assert "norm" not in case(run(stack={"framework": framework})).scenario.stack.kernels.saved_tensors


def test_programs_for_fine_tuning_load_frozen_weights_in_16_bits():
    known = case(run(task="lora", stack={"framework": "TRL"})).scenario.stack
    assert (known.states.weight_bytes, case(run(stack={"framework": "TRL"})).scenario.stack.states.weight_bytes) == (
        2,
        4,
    )
    assert case(run(task="lora", stack={"framework": "PyTorch FSDP"})).scenario.stack.states.weight_bytes == 4


@pytest.mark.parametrize(("words", "size"), [("optimizer in backward", 0), ("optimizer step before backward", 4)])
def test_an_optimizer_that_steps_in_the_backward_pass_leaves_no_gradients(words, size):
    assert case(run(stack={"framework": "torchtitan", "notes": words})).scenario.stack.gradients.gradient_bytes == size
