"""Who finds and shares the scales of 8-bit products, by the release that a measured run names."""

import pytest

from planner.runs.words.mapping import case
from planner.runs.words.scale_words import scale_changes
from tests.planner.measured_run import run

CONTAINER = {"framework": "NeMo/Megatron-Core (MLPerf container)"}


def changed(source, framework="NeMo"):
    return scale_changes(run(source=source, stack={"framework": framework}))


@pytest.mark.parametrize(
    ("version", "kernels", "sharing", "narrow"),
    [("3.0", 10, "data", False), ("3.1", 10, "none", False), ("4.0", 0, "data", True), ("4.1", 0, "tensor", True)],
)
def test_rounds_of_mlperf_find_and_share_scales_as_their_containers_did(version, kernels, sharing, narrow):
    row = run(source=f"MLPerf Training v{version} results repo, NVIDIA/results/eos", stack=CONTAINER)
    found = case(row).scenario.stack
    assert (found.kernels.scale_kernels, found.exchange.amax_group, found.switches.fp8_param_gather) == (
        kernels,
        sharing,
        narrow,
    )


def test_megatron_core_shares_over_tensor_ranks_in_one_release_alone():
    assert changed("GitHub AI-Hypercomputer/gpu-recipes", "NeMo 24.07") == {"shared_magnitudes": "tensor"}
    assert changed("GitHub AI-Hypercomputer/gpu-recipes", "NeMo 24.09") == {}


def test_gpt_3_of_a_benchmark_runs_an_older_container_than_its_other_models():
    assert changed("dgxc-benchmarking v24.11.1, gpt3 175b") == {"shared_magnitudes": "none"}
    assert changed("dgxc-benchmarking v24.11.1, llama3.1 70b") == {}


def test_llm_foundry_has_modules_that_scale_for_themselves():
    assert changed("llm-foundry README", "LLM Foundry / Composer FSDP")["scale_kernels"] == 10


def test_without_user_buffers_tensor_ranks_wait_for_8_bits():
    flags = {"framework": "NeMo 24.07", "flags": {"tp_comm_overlap": False}}
    assert case(run(stack=flags)).scenario.stack.exchange.fp8_tensor_gather
    assert not case(run(stack={"framework": "NeMo 24.07"})).scenario.stack.exchange.fp8_tensor_gather
