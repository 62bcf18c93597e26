"""Which cuDNN attends in a measured run, by its container or its month, and in how many bits."""

import pytest

from planner.runs.words.cudnn_words import SPILLED, cudnn_changes


def run(framework: str, source: str = "", **fields) -> dict:
    return {"source": source, "stack": {"framework": framework}, "strategy": {}} | fields | {"cluster": {}}


@pytest.mark.parametrize(
    "framework",
    [
        "Megatron-Bridge (NeMo 26.02.01 container)",
        "Megatron-LM core_v0.16.1, Transformer Engine (NGC PyTorch 26.01)",
        "Transformer Engine 2.11.0, PyTorch 2.10 (NVIDIA 26.01 family), CUDA 13.1",
    ],
)
def test_containers_of_2026_have_the_later_cudnn(framework):
    assert cudnn_changes(run(framework)) == {"recent_cudnn": True}


@pytest.mark.parametrize(
    "framework",
    ["Megatron-Bridge (NeMo 25.11 container)", "NeMo 24.07", "NeMo/Megatron-Core (MLPerf container, NGC 25.09)"],
)
def test_containers_before_have_an_earlier_one_whatever_the_source_is_dated(framework):
    assert cudnn_changes(run(framework, "tables of 2026-08")) == {"recent_cudnn": False}


def test_without_a_container_the_month_of_the_run_decides_and_without_either_it_is_an_early_one():
    assert cudnn_changes(run("Megatron-Core (main, 2026-08)"))["recent_cudnn"]
    assert not cudnn_changes(run("torchtitan", "pytorch/torchtitan, 2025-06"))["recent_cudnn"]
    assert not cudnn_changes(run("Megatron-LM"))["recent_cudnn"]


@pytest.mark.parametrize("said", ["attention products in fp8 (FP8_DPA)", "fp8_dot_product_attention", "FP8 attention"])
def test_attention_in_8_bits_is_read_from_the_words_of_frameworks(said):
    assert cudnn_changes(run("NeMo 25.09", notes=said))["fp8_attention"]
    assert "fp8_attention" not in cudnn_changes(run("NeMo 25.09", notes="attention in bf16 under fp8"))


def recipe(release: str, model: str, device: str, **fields) -> dict:
    """A run of Megatron-Bridge's performance recipes."""
    row = run(f"Megatron-Bridge (NeMo {release} container)", model={"name": model, "experts": 128})
    return row | {"cluster": {"accelerator": device}, "strategy": {"precision": "mxfp8"}} | fields


@pytest.mark.parametrize("release", ["26.06", "26.06.01", "26.08"])
def test_recipes_with_experts_in_mxfp8_attend_in_8_bits_since_june_2026(release):
    assert cudnn_changes(recipe(release, "Qwen3-30B-A3B", "gb200"))["fp8_attention"]
    assert cudnn_changes(recipe(release, "GPT-OSS-120B", "gb300"))["fp8_attention"]


@pytest.mark.parametrize(
    "row",
    [
        recipe("26.04", "Qwen3-30B-A3B", "gb200"),
        recipe("26.06", "GPT-OSS-120B", "b300"),
        recipe("26.06", "DeepSeek-V3", "gb200"),
        recipe("26.06", "Llama3-70B", "gb200") | {"model": {"name": "Llama3-70B"}},
        recipe("26.06", "Qwen3-30B-A3B", "h100", strategy={"precision": "fp8"}),
        recipe("26.06", "Qwen3-30B-A3B", "gb200", stack={"framework": "NeMo AutoModel (NeMo 26.06 container)"}),
    ],
)
def test_other_releases_models_formats_and_frameworks_do_not(row):
    assert "fp8_attention" not in cudnn_changes(row)


@pytest.mark.parametrize(
    "framework", ["Megatron-Bridge (NeMo 26.06.01 container)", "Megatron-LM, cudnn-frontend v1.25.0"]
)
def test_gradients_of_biases_spill_in_the_one_release_whose_notes_say_so(framework):
    assert cudnn_changes(run(framework))["bias_gradient_slowdown"] == SPILLED


@pytest.mark.parametrize(
    "framework",
    ["Megatron-Bridge (NeMo 26.06 container)", "Megatron-Bridge (NeMo 26.08 container)", "cudnn-frontend 1.26.0"],
)
def test_the_releases_before_and_after_it_sum_them_in_registers(framework):
    assert "bias_gradient_slowdown" not in cudnn_changes(run(framework))
