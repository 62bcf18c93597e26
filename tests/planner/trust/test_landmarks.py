"""The published runs to compare with; ``.ci/run`` compares them with the measurements they are from."""

import pytest

from hardware.catalogue import accelerator
from planner import PlanRequest
from planner.explain.verdict import closest_run
from planner.request.resolve import resolve
from planner.trust.published import landmarks


def nearest(**asked):
    return closest_run(resolve(PlanRequest(**asked)).scenario)


def test_measured_is_on_an_accelerator_of_the_catalogue_and_says_something():
    for run in landmarks():
        device = accelerator(run.accelerator)
        assert run.family == f"{device.vendor} {device.architecture}"
        assert run.source
        assert run.model
        assert run.result
        assert run.billions > 0
        assert run.gpus > 0


@pytest.mark.parametrize(
    ("model", "gpus", "cluster", "words"),
    [
        ("llama3-8b", 8, "dgx-h100", "LLAMA3-8B (8.03B) on 8 h100-sxm, bf16: "),
        ("llama3-70b", 64, "dgx-h100", "LLAMA3-70B (70.6B) on 64 h100-sxm"),
        ("kimi-k2", 256, "dgx-h100", "Kimi-K2-1T (1.03T) on 256 h100-sxm"),
        ("gpt3-175b", 12288, "dgx-a100-80gb", "GPT-175B (175B) on 12,288 a100-sxm-80gb, bf16: 55.2 % MFU"),
    ],
)
def test_the_run_nearest_to_a_usual_question_is_of_its_model_and_machine(model, gpus, cluster, words):
    assert nearest(model=model, gpus=gpus, cluster=cluster).startswith(words)


def test_a_machine_without_runs_is_compared_with_its_own_generation():
    assert not any(run.accelerator == "h20" for run in landmarks())
    hopper = {run.accelerator for run in landmarks() if run.family == "NVIDIA Hopper"}
    named = nearest(model="llama3-8b", gpus=8, cluster="dgx-h20").split(" on 8 ")[1]
    assert named.split(",")[0] in hopper
