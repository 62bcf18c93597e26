"""Which stack a measured run's framework stands for, named or not."""

import pytest

from planner.runs.words.mapping import case
from planner.runs.words.stack_words import stack_of
from tests.planner.measured_run import run


def row(framework, accelerator="a100-sxm-80gb", attention=True, **plan):
    return {
        "source": "",
        "cluster": {"accelerator": accelerator},
        "stack": {"framework": framework, "attention": attention},
        "strategy": plan,
    }


@pytest.mark.parametrize(
    ("framework", "stack"),
    [
        ("GPT-NeoX", "gpt-neox"),
        ("Megatron-DeepSpeed (Sailor fork)", "megatron-deepspeed"),
        ("DeepSpeed 3D (Megatron v1.1.5)", "megatron-deepspeed-2021"),
        ("LargeScale (Megatron-DeepSpeed, DeepSpeed 0.6.1)", "megatron-deepspeed-2021"),
        ("Megatron-DeepSpeed (2021)", "megatron-deepspeed-2021"),
        ("LLM Foundry", "fsdp"),
        ("HF Accelerate, FSDP", "fsdp"),
        ("HF Transformers Trainer + DeepSpeed ZeRO-3", "deepspeed"),
        ("axolotl", "fsdp"),
        ("metaseq (FSDP + Megatron TP)", "fsdp"),
        ("OLMo (PyTorch FSDP)", "fsdp"),
        ("OLMo-core", "torchtitan"),
        ("torchtune", "torchtitan"),
        ("TRL SFTTrainer (HF Transformers, PyTorch FSDP2)", "torchtitan"),
        ("HF Transformers + DeepSpeed, as FSDP2 would", "deepspeed"),
        ("SimpleFSDP / FSDP2", "torchtitan"),
        ("Levanter (JAX)", "maxtext"),
        ("Pathways / T5X (JAX)", "maxtext"),
        ("Mesh-TensorFlow", "maxtext"),
        ("Alpa", "maxtext"),
        ("Alpaca trainer", "generic"),
        ("NeuronX Distributed", "maxtext"),
        ("MindSpeed-LLM", "megatron-core"),
        ("MindSpore 2.3", "mindformers"),
        ("Primus (Megatron-LM backend)", "megatron-core"),
        ("PaddlePaddle fleet", "paddle"),
        ("NeMo 24.07", "nemo"),
        ("NeMo 22.11", "megatron-lm-2022"),
        ("Megatron-LM core 0.17 (NeMo 26.04 container)", "megatron-core"),
        ("HAI-LLM", "deepseek"),
        ("picotron", "nanotron"),
        ("nanoGPT", "generic"),
        ("Colossal-AI (Gemini)", "generic"),
        ("HF Transformers (DDP)", "fsdp"),
        ("HF Transformers + PEFT", "fsdp"),
        ("HF Transformers + PEFT + DeepSpeed ZeRO-2", "deepspeed"),
        ("Megatron-LM + DeepSpeed (2024)", "megatron-deepspeed"),
        ("Megatron/DeepSpeed (2021)", "megatron-deepspeed-2021"),
        ("NeMo-Megatron (2022)", "megatron-lm-2022"),
        ("NeMo-Megatron (2024)", "nemo"),
        ("Primus-TorchTitan", "torchtitan"),
        ("Primus-MaxText", "maxtext"),
        ("NVIDIA MLPerf v3.1 container", "nemo"),
        ("Megatron-LM core_r0.7.0", "megatron-core"),
        ("Pai-Megatron-Patch", "megatron-core"),
        ("Megatron-SWIFT 2025", "megatron-core"),
        (None, "generic"),
    ],
)
def test_every_framework_that_publishes_measurements_has_a_stack(framework, stack):
    assert stack_of(row(framework)) == stack


@pytest.mark.parametrize(
    ("accelerator", "attention", "stack"),
    [
        ("a100-sxm-80gb", False, "megatron-lm-2022"),
        ("a100-sxm-80gb", None, "megatron-lm-2022"),
        ("a100-sxm-80gb", "v2", "megatron-core"),
        ("v100-sxm2-32gb", False, "megatron-lm-2020"),
        ("h100-sxm", None, "megatron-core"),
        ("mi300x", True, "megatron-core"),
    ],
)
def test_megatron_lm_is_built_on_its_core_where_attention_or_the_machine_says_so(accelerator, attention, stack):
    assert stack_of(row("Megatron-LM", accelerator, attention)) == stack


@pytest.mark.parametrize(
    ("accelerator", "attention", "plan", "stack"),
    [
        ("tpu-v5p", True, {"tp": 4}, "maxtext"),
        ("trainium2", True, {"tp": 8, "pp": 4}, "maxtext"),
        ("a100-sxm-80gb", True, {"tp": 8}, "megatron-core"),
        ("a100-sxm-80gb", False, {"pp": 2}, "megatron-lm-2022"),
        ("h100-sxm", None, {"tp": 2, "pp": 2}, "megatron-core"),
        ("h100-sxm", True, {"tp": 1, "pp": None}, "generic"),
    ],
)
def test_an_unknown_framework_is_priced_like_its_kin(accelerator, attention, plan, stack):
    assert stack_of(row("in-house", accelerator, attention, **plan)) == stack


@pytest.mark.parametrize(("source", "stack"), [("of 2021", "megatron-lm-2021"), ("of 2024", "megatron-core")])
def test_runs_of_before_fused_attention_that_say_nothing_of_it_had_none(source, stack):
    assert stack_of({**row("in-house", attention=None, tp=8), "source": source}) == stack


@pytest.mark.parametrize(
    ("framework", "attention", "stack"),
    [
        ("Megatron-LM (2024)", None, "megatron-core"),
        ("Megatron-LM (2023)", False, "megatron-core"),
        ("Pretraining on Megatron-LM, 2025", None, "megatron-core"),
        ("Megatron-LM (March 2023)", False, "megatron-lm-2022"),
        ("Megatron-LM v2.4 (rebuilt 2024)", False, "megatron-lm-2022"),
        ("Megatron-LM (2022)", None, "megatron-lm-2022"),
        ("Megatron-LM (April 2021)", False, "megatron-lm-2021"),
    ],
)
@pytest.mark.parametrize("accelerator", ["a100-sxm-80gb", "v100-sxm2-32gb"])
def test_a_framework_is_of_the_year_that_its_name_says_whatever_it_runs_on(accelerator, framework, attention, stack):
    assert stack_of(row(framework, accelerator, attention)) == stack


@pytest.mark.parametrize(
    ("framework", "source", "stack"),
    [
        ("DeepSpeed ZeRO-3", "measured 2024, GPT-3 shape of Brown et al. 2020", "deepspeed"),
        ("DeepSpeed ZeRO-3", "GPT-3 shape of Brown et al. 2020, in a report of 2024", "deepspeed"),
        ("DeepSpeed ZeRO-3 (2021)", "measured 2024", "deepspeed-2021"),
        ("Megatron-LM", "SC21 artifact", "megatron-lm-2021"),
        ("Megatron-LM", "SC21 artifact, rerun in May 2024", "megatron-core"),
        ("Megatron-LM", "README (GPT-3 example, 2021-2023)", "megatron-lm-2021"),
        ("Megatron-LM", "a paper of 2024", "megatron-lm-2022"),
    ],
)
def test_a_run_is_of_when_it_was_measured_and_not_of_what_its_source_cites(framework, source, stack):
    assert stack_of({**row(framework, attention=False, zero_stage=3), "source": source}) == stack


def test_the_age_of_the_accelerator_dates_only_a_run_that_nothing_else_does():
    old = row("Megatron-LM", "v100-sxm2-32gb", attention=False)
    assert stack_of(old) == "megatron-lm-2020"
    assert stack_of({**old, "source": "a report of 2022"}) == "megatron-lm-2022"


def test_sequences_that_no_fused_softmax_takes_had_fused_attention():
    of_2022 = {**row("Megatron-LM", attention=None, tp=8), "source": "of 2022"}
    assert stack_of(of_2022) == "megatron-lm-2022"
    assert stack_of({**of_2022, "model": {"seq_length": 8192}}) == "megatron-core"


@pytest.mark.parametrize(
    ("accelerator", "attention", "kernels"),
    [
        ("a100-sxm-80gb", None, ("unfused",)),
        ("a100-sxm-80gb", True, ("flash-2", "flash-1")),
        ("h100-sxm", None, ("flash-2", "flash-1")),
        ("h100-sxm", False, ("unfused",)),
    ],
)
def test_an_old_framework_attends_with_fused_kernels_where_the_run_or_its_machine_says_so(
    accelerator, attention, kernels
):
    said = {"framework": "Megatron-DeepSpeed", "attention": attention}
    assert (
        case(run(stack=said, cluster={"accelerator": accelerator})).scenario.stack.switches.attention_backend == kernels
    )


@pytest.mark.parametrize(("accelerator", "usual"), [("v100-sxm2-32gb", "fp16"), ("a100-sxm-80gb", "bf16")])
def test_a_run_that_does_not_say_its_format_has_the_usual_one_of_its_machine(accelerator, usual):
    mapped = case(run(cluster={"accelerator": accelerator}, strategy={"precision": None}))
    assert mapped.scenario.precision == usual
