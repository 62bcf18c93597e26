"""What a framework has otherwise than its stack: all layers recomputed or none, formats of its files."""

import pytest

from planner import PlanRequest, plan
from planner.frameworks.registry import FRAMEWORKS
from planner.jobs.registry import export

WHOLE = [name for name, framework in FRAMEWORKS.items() if framework.recompute == "whole"]
TIGHT = {"model": "llama-7b", "gpus": 8, "cluster": "rtx4090-8x", "seq_length": 16384, "global_batch_size": 8}


def asked(framework, **more):
    cluster = {"cluster": "tpu-v5e-pod", "gpus": 16} if framework == "maxtext" else {}
    return plan(PlanRequest(**{**TIGHT, **cluster, "framework": framework, "reasons": False, **more}))


@pytest.mark.parametrize("framework", WHOLE)
def test_pinning_full_recomputation_finds_nothing_that_the_search_without_a_pin_lacks(framework):
    free, pinned = asked(framework), asked(framework, pins={"recompute": "full"})
    assert pinned.status == "optimal"
    assert free.prediction.iteration_seconds <= pinned.prediction.iteration_seconds * (1 + 1e-9)


def test_what_fits_only_with_all_layers_recomputed_is_not_called_impossible():
    long = {"gpus": 4, "cluster": "dgx-h100", "seq_length": 65536, "global_batch_size": 4}
    device = {"offload": "none"}
    assert asked("nanotron", **long, pins={**device, "tp": 2, "recompute": "full"}).status == "optimal"
    assert asked("nanotron", **long, pins=device).status == "optimal"


def test_the_leanest_plan_may_recompute_all_layers_without_sharding_gradients():
    easy = {"cluster": "dgx-h100", "seq_length": 2048, "global_batch_size": 2048, "objective": "memory"}
    free, pinned = (asked("nanotron", **easy, pins=pins) for pins in ({}, {"tp": 8, "recompute": "full"}))
    peaks = [max(stage.total for stage in answer.memory_bytes) for answer in (free, pinned)]
    assert peaks[0] <= peaks[1]


@pytest.mark.parametrize("framework", ["megatron-bridge", "paddle"])
def test_gradients_are_priced_as_the_files_of_the_framework_have_them(framework):
    easy = {"model": "llama3-8b", "gpus": 64, "framework": framework, "reasons": False}
    unsaid, said = (plan(PlanRequest(**easy, **grads)) for grads in ({}, {"main_grads": "fp32"}))
    assert unsaid.strategy == said.strategy
    assert unsaid.prediction == said.prediction
    assert any(line.startswith("main gradients fp32") for line in unsaid.defaults)
    assert not any(line.startswith("main gradients") for line in said.defaults)


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        ("megatron-bridge", {"framework": "megatron-bridge"}),
        ("megatron-bridge", {"framework": "megatron-bridge", "stack": "nemo"}),
        ("megatron-bridge", {"framework": "megatron-bridge", "precision": "fp16"}),
        ("paddle", {"framework": "paddle", "precision": "fp16"}),
        ("paddle", {"stack": "paddle"}),
    ],
)
def test_a_plan_for_a_framework_has_gradients_that_its_files_say_and_is_asked_again_alike(target, asked):
    found = plan(PlanRequest(model="llama3-8b", gpus=64, reasons=False, **asked))
    assert not [remark for remark in export(found, target).remarks if "cannot express" in remark]
    again = plan(PlanRequest(**found.request, reasons=False))
    assert again.prediction == found.prediction


def test_gradients_that_are_asked_for_are_priced_as_asked():
    easy = {"model": "llama3-8b", "gpus": 64, "framework": "megatron-bridge", "reasons": False}
    lean, usual = (plan(PlanRequest(**easy, main_grads=grads)) for grads in ("bf16", None))
    assert lean.prediction.iteration_seconds < usual.prediction.iteration_seconds
