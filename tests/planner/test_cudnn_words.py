"""Which cuDNN attends in a measured run, by its container or its month, and in how many bits."""

import pytest

from planner.validation.cudnn_words import cudnn_changes


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
