"""What fine-tuners write of their adapters, their frozen weights, their kernels and their states is read."""

import pytest

from costmodels.stack.adapters import ADAPTED, OF_ATTENTION
from planner.runs.words.mapping import case
from tests.planner.measured_run import run

QKV, OUT, INTO_MLP, OUT_OF_MLP = ADAPTED
SEVERAL_PASSES = 92
"""Bytes per parameter of PyTorch's AdamW of many kernels."""
PLAIN = {"tp": 1, "pp": 1, "vpp": 1, "dp": 16, "schedule": "none", "sequence_parallel": False}


def found(stack=None, strategy=None, **more):
    """The case of a run of adapters under FSDP."""
    named = {"framework": "PyTorch FSDP"} | (stack or {})
    return case(run(task="lora", stack=named, strategy=PLAIN | (strategy or {}), **more))


def adapters(words, **more):
    return found(notes=words, **more).scenario.stack.switches.adapters


@pytest.mark.parametrize(
    ("words", "rank", "modules"),
    [
        ("LoRA rank 64 on q_proj, v_proj, output_proj and the MLP", 64, (QKV, OUT, INTO_MLP, OUT_OF_MLP)),
        ("LoRA rank 16 on q_proj, k_proj, v_proj, o_proj", 16, (QKV, OUT)),
        ("LoRA (r=8, alpha=16), target_modules q_proj v_proj; the MLP is frozen", 8, (QKV,)),
        ("LoRA with rank 32 on all linear layers", 32, ADAPTED),
        ("LoRA, rank 4, on attention projections", 4, OF_ATTENTION),
        ("--lora_rank 8 --lora_target_modules query_key_value dense dense_h_to_4h dense_4h_to_h", 8, ADAPTED),
        ("rank-12 adapters on gate_proj, up_proj and down_proj", 12, (INTO_MLP, OUT_OF_MLP)),
        ("LoRA rank 8 on q_proj and v_proj, without MLP", 8, (QKV,)),
        ("LoRA rank 8 on q_proj, frozen MLP", 8, (QKV,)),
        ("LoRA on q_proj and v_proj with rank 8", 8, (QKV,)),
        ("lora_target: q_proj,o_proj; lora_rank: 16", 16, (QKV, OUT)),
        ("lora_r: 32, lora_target_linear: true", 32, ADAPTED),
        ("MLP recomputed, LoRA rank 8 on q_proj. The MLP is in fp8", 8, (QKV,)),
    ],
)
def test_notes_name_the_rank_and_the_modules_of_adapters(words, rank, modules):
    said = adapters(words)
    assert (said.rank, said.modules) == (rank, modules)


@pytest.mark.parametrize(
    "flags",
    [{"lora_r": 32, "lora_target_modules": ["q_proj", "v_proj"]}, ["lora_r: 32", "lora_target_modules: q_proj v_proj"]],
)
def test_flags_name_them_too(flags):
    said = found(stack={"flags": flags}).scenario.stack.switches.adapters
    assert (said.rank, said.modules) == (32, (QKV,))


def test_where_notes_name_a_rank_alone_the_modules_are_the_programs_usual_ones():
    said = found(stack={"framework": "LitGPT"}, notes="LoRA rank 5").scenario.stack.switches.adapters
    assert (said.rank, said.modules) == (5, (QKV,))


@pytest.mark.parametrize(
    "words",
    ["started on rank 3", "local rank 0 and LoRA", "tensor rank 2", "LoRA fine-tuning, peak memory on rank 3", None],
)
def test_the_rank_of_a_process_is_not_that_of_adapters(words):
    priced = found(notes=words)
    assert priced.scenario.stack.switches.adapters.rank == 16
    assert any("does not say which" in note for note in priced.notes)


def test_a_field_of_its_own_speaks_before_the_notes():
    assert adapters("LoRA rank 64 on all linear layers", strategy={"adapters": "8:linear_qkv"}).rank == 8


def test_adapters_of_which_experts_have_some_are_priced_where_attention_has_them():
    experts = {"kind": "moe", "experts": 8, "top_k": 2, "expert_ffn": 8192}
    priced = found(model=experts, notes="LoRA rank 16 on all linear layers")
    assert priced.scenario.stack.switches.adapters.modules == OF_ATTENTION
    assert "adapters on experts are left out of the price" in priced.notes


@pytest.mark.parametrize(
    ("words", "packed"),
    [("base weights in NF4", True), ("bitsandbytes NF4", True), ("weights in bf16, not NF4", False), ("no NF4", False)],
)
def test_a_runs_notes_say_that_frozen_weights_have_four_bits(words, packed):
    assert (found(notes=words).scenario.stack.states.frozen_bytes == pytest.approx(0.516)) is packed


@pytest.mark.parametrize(
    ("stack", "packed"),
    [
        ({"notes": "LoRA r=16, 4-bit"}, True),
        ({"flags": {"load_in_4bit": True}}, True),
        ({"flags": {"load_in_4bit": False}}, False),
        ({"notes": "4-bit optimizer states"}, False),
    ],
)
def test_four_bits_alone_or_as_a_flag_are_those_of_frozen_weights(stack, packed):
    assert (found(stack=stack).scenario.stack.states.frozen_bytes > 0) is packed


def test_notes_on_four_bits_say_nothing_of_a_run_that_trains_all_weights():
    assert case(run(task="pretrain", notes="as fast as in NF4")).scenario.stack.switches.adapters is None


def fused(framework, notes):
    return case(run(stack={"framework": framework, "notes": notes})).scenario.stack.switches.fused_elementwise


@pytest.mark.parametrize("words", ["torch.compile; chunked loss", "Liger kernels", "fused ops and kernels, packed"])
@pytest.mark.parametrize("framework", ["torchtune", "PyTorch FSDP", "torchtitan"])
def test_notes_name_the_compiler_or_the_library_of_fused_kernels(framework, words):
    assert fused(framework, words)
    assert not fused(framework, None)


@pytest.mark.parametrize(
    "words",
    ["no torch.compile", "without torch.compile", "torch.compile: false", "torch.compile=off",
     "torch.compile (disabled)", "without Liger", "no fused ops and kernels", "compiled with CUDA 12"],
)  # fmt: skip
def test_a_compiler_that_did_not_run_fuses_nothing(words):
    assert not fused("torchtune", words)


@pytest.mark.parametrize("framework", ["Megatron-DeepSpeed", "Megatron-LM"])
def test_megatrons_kernels_are_its_own_whatever_notes_name(framework):
    assert fused(framework, "fused ops and kernels") == fused(framework, None)


@pytest.mark.parametrize(
    ("framework", "source", "notes", "many"),
    [
        ("torchtune", "README 2024-11", None, False),
        ("torchtune", "README 2024-08", None, True),
        ("torchtune", "README 2024-08", "fused AdamW", False),
        ("torchtune", "README 2024-08", "AdamW (fused)", False),
        ("torchtune", "README 2024-08", "fused kernels", True),
        ("torchtune", "README 2024-08", "adamw_torch_fused: false", True),
        ("torchtune", "README 2024-08", "AdamW fused off", True),
        ("torchtitan", "README 2024-11", None, True),
        ("torchtitan", "README 2025-04", None, False),
    ],
)
def test_a_step_of_many_kernels_is_priced_until_a_program_took_the_fused_one(framework, source, notes, many):
    priced = case(run(source=source, stack={"framework": framework, "notes": notes})).scenario.stack
    assert (priced.states.optimizer_traffic == SEVERAL_PASSES) is many


@pytest.mark.parametrize(
    ("words", "narrow"),
    [
        ("torch_dtype bfloat16, no autocast (mixed_precision no)", True),
        ("dtype=torch.bfloat16 without autocast", True),
        ("torch_dtype bfloat16, mixed_precision: no", True),
        ("torch_dtype bfloat16, mixed_precision bf16", False),
        ("torch_dtype float32, no autocast", False),
        ("torch_dtype bfloat16; another run without autocast", False),
    ],
)
def test_a_model_loaded_in_16_bits_that_nothing_casts_has_states_of_16_bits(words, narrow):
    stack = case(run(stack={"framework": "PyTorch FSDP", "notes": words})).scenario.stack
    assert (
        (stack.switches.optimizer, stack.states.weight_bytes, stack.gradients.gradient_bytes) == ("adam-bf16", 2, 2)
    ) is narrow


@pytest.mark.parametrize("words", ["optimizer_in_bwd", "optimizer-in-backward", "optimizer step in backward"])
def test_an_optimizer_within_the_backward_pass_keeps_no_gradients(words):
    assert case(run(stack={"framework": "torchtune", "notes": words})).scenario.stack.gradients.gradient_bytes == 0


def test_flags_that_are_off_name_no_fused_step():
    stack = {"framework": "PyTorch FSDP", "flags": {"fused_adamw": False}}
    usual = case(run(stack={"framework": "PyTorch FSDP"})).scenario.stack
    assert case(run(stack=stack)).scenario.stack.states.optimizer_traffic == usual.states.optimizer_traffic
