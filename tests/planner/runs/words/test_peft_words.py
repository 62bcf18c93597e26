"""Runs whose adapters are PEFT's are priced with its kernels, and others are not."""

import pytest

from planner.runs.judge import judge_row
from planner.runs.words.mapping import case
from tests.planner.measured_run import only, run

PLAIN = {"tp": 1, "pp": 1, "vpp": 1, "dp": 16, "schedule": "none", "sequence_parallel": False}
TRL = "TRL SFTTrainer, Accelerate FSDP"


def kernels(framework, notes=None, source="a test", **strategy):
    """Kernels of the run's adapters, and whether some inputs are dropped."""
    stack = {"framework": framework, "notes": notes}
    row = run(task="lora", source=source, stack=stack, strategy=PLAIN | {"sharding_degree": 16} | strategy)
    found = case(row).scenario.stack.switches.adapters
    return found.kernels, found.dropout


@pytest.mark.parametrize(
    "framework",
    [
        TRL,
        "HF Transformers",
        "Hugging Face PEFT",
        "axolotl",
        "LLaMA-Factory",
        "ms-swift",
        "DeepSpeed (HF transformers)",
    ],
)
def test_adapters_of_programs_on_peft_are_cast_and_dropped_by_kernels_of_their_own(framework):
    assert kernels(framework) == ("autocast", True)


@pytest.mark.parametrize(
    "framework",
    ["NeMo 24.07", "Megatron-Bridge", "torchtune", "LitGPT", "NeMo AutoModel", "Unsloth", "Optimum Habana",
     "HF Transformers (PyTorch/XLA)", "TRL, torch.compile", "PyTorch FSDP", "Megatron-SWIFT"],
)  # fmt: skip
def test_adapters_that_are_fused_compiled_or_not_pefts_are_summed(framework):
    assert kernels(framework) == ("summed", False)


@pytest.mark.parametrize("notes", ["no torch.compile", "torch.compile: false", "without compile"])
def test_a_compiler_that_did_not_run_joins_none_of_pefts_operations(notes):
    assert kernels(TRL, notes)[0] == "autocast"


@pytest.mark.parametrize(
    ("source", "notes", "expected"),
    [
        ("README 2024-05", None, "16-bit"),
        ("README 2024-05", "fp32 weights", "autocast"),
        ("README 2024-11", None, "autocast"),
        ("README 2024-11", "torch_dtype bfloat16, no autocast", "32-bit"),
        ("README 2024-05", "torch_dtype bfloat16, no autocast", "16-bit"),
        ("README 2024-11", "NF4 base weights", "16-bit"),
        ("README 2024-11", "NF4 base weights; dtype bfloat16 without autocast", "32-bit"),
    ],
)
def test_adapters_have_32_bits_since_peft_casts_them_and_where_nothing_else_does(source, notes, expected):
    assert kernels(TRL, notes, source=source)[0] == expected


@pytest.mark.parametrize(
    ("notes", "dropped"),
    [
        ("lora_dropout 0", False), ("lora_dropout=0.0", False), ("dropout: 0", False), ("no dropout", False),
        ("lora_dropout 0.05", True), ("lora_dropout=0.1", True), (None, True),
        ("attention_dropout 0.0; lora_dropout 0.05", True),
    ],
)  # fmt: skip
def test_inputs_are_dropped_unless_notes_say_that_none_are(notes, dropped):
    assert kernels(TRL, notes)[1] is dropped


def test_flags_say_that_no_input_is_dropped():
    stack = {"framework": TRL, "flags": {"lora_dropout": 0.0}}
    assert not case(run(task="lora", stack=stack, strategy=PLAIN)).scenario.stack.switches.adapters.dropout


def test_a_run_that_says_its_kernels_has_those():
    assert kernels(TRL, adapters="16/summed") == ("summed", False)
    assert kernels("torchtune", adapters="16:linear_qkv/32-bit+dropout") == ("32-bit", True)


def test_a_verdict_names_the_kernels_in_words_that_can_be_asked_for():
    stack = {"framework": TRL}
    found = only(judge_row(run(task="lora", stack=stack, strategy=PLAIN)), "iteration_time")
    said = next(note for note in found.notes if note.startswith("adapters "))
    assert said.startswith("adapters 16:linear_qkv,linear_proj,linear_fc1,linear_fc2/autocast+dropout")
