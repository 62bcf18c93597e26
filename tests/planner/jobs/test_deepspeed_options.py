"""What DeepSpeed's JSON switches: buckets, what overlaps, one GPU, and what is read and not priced."""

import json
from pathlib import Path

import pytest

from planner import PlanRequest, plan, predict
from planner.jobs.deepspeed.read import deepspeed_job
from planner.jobs.imported import complete
from planner.jobs.registry import export
from tests.each import each
from tests.planner.jobs.scripts import import_job

CASES = Path(__file__).parent / "cases"
MICRO = "train_micro_batch_size_per_gpu"
JOB = {"model": str(CASES / "ds_buckets_model.json"), "cluster": "dgx-a100-40gb", "gpus": 8, "seq_length": 512}


def predicted(job, **usual):
    fields, pins = complete(usual | job.fields, job.pins)
    return predict(
        PlanRequest(**fields, framework="deepspeed", pins=pins | {"recompute": "full"}, reasons=False, top=0)
    )


def total(answer):
    return max(stage.total for stage in answer.memory_bytes)


def test_two_buckets_of_two_thousand_million_values_are_held_beside_the_states():
    document = json.loads((CASES / "ds_buckets_2e9.json").read_text())
    usual = {"stack": "deepspeed", **JOB}
    large = predicted(deepspeed_job(document), **usual)
    document["zero_optimization"] |= {"reduce_bucket_size": 5e7, "overlap_comm": False}
    small = predicted(deepspeed_job(document), **usual)
    assert total(large) - total(small) == pytest.approx(2 * 4e9 - 1e8, rel=0.05)
    assert not large.fits
    assert small.fits


def test_one_gpu_runs_zero_with_its_states_on_the_host():
    job = import_job("deepspeed", CASES / "zero2_one_gpu.json")
    answer = predicted(job, model="llama2-7b", gpus=1)
    assert (answer.strategy.zero_stage, answer.strategy.offload, answer.strategy.dp) == (2, "optimizer", 1)
    assert answer.memory_bytes[0].gradients + answer.memory_bytes[0].optimizer == 0


def test_one_gpu_shares_nothing_where_nothing_is_offloaded():
    job = deepspeed_job({MICRO: 1, "zero_optimization": {"stage": 3}})
    _, pins = complete({"gpus": 1, **job.fields}, job.pins)
    assert pins["zero_stage"] == 0


@each(
    ("zero", "changes"),
    [
        ({"stage": 2}, {}),
        ({"stage": 2, "overlap_comm": True}, {"stack.overlap_grad_reduce": True}),
        ({"stage": 3, "overlap_comm": False}, {"stack.overlap_zero3": False}),
        ({"stage": 1, "reduce_bucket_size": 2e8}, {"stack.reduce_bucket_size": "400000000 B"}),
        ({"stage": 3, "reduce_bucket_size": "auto", "overlap_comm": "auto"}, {}),
        ({"stage": 3, "zero_hpz_partition_size": 8}, {"stack.zero_hpz": True}),
        ({"stage": 0, "overlap_comm": True}, {}),
    ],
)
def test_switches_of_zero_are_those_of_the_stack(zero, changes):
    job = deepspeed_job({MICRO: 1, "bf16": {"enabled": True}, "zero_optimization": zero})
    assert job.fields.get("changes", {}) == changes


@each(
    ("document", "said"),
    [
        ({"zero_optimization": {"stage": 3, "zero_quantized_weights": True}}, "gathered in 8 bits"),
        ({"optimizer": {"type": "OneBitAdam"}}, "gradients are sent in one bit"),
        ({"activation_checkpointing": {"partition_activations": True}}, "--recompute full says so"),
        ({"zero_optimization": {"stage": 2, "reduce_scatter": False}}, "more communication"),
        ({"pipeline": {"stages": 4}}, "--pp gives their number"),
        ({"compile": {"deepcompile": True}}, "a shorter iteration"),
    ],
)
def test_what_is_read_and_not_priced_is_said_with_its_effect(document, said):
    assert any(said in one for one in deepspeed_job({MICRO: 1} | document).unpriced)


def test_what_is_switched_off_is_not_spoken_of():
    off = {"zero_quantized_weights": False, "offload_param": {"device": "none"}, "reduce_scatter": True}
    job = deepspeed_job({MICRO: 1, "zero_optimization": {"stage": 3, **off}, "amp": {"enabled": "false"}})
    assert job.unpriced == ()


def test_an_export_says_the_buckets_and_the_overlap_that_were_priced():
    changes = {"stack.overlap_grad_reduce": True, "stack.reduce_bucket_size": "100 MB"}
    asked = {"model": "llama2-7b", "gpus": 8, "stack": "deepspeed", "changes": changes, "reasons": False, "top": 0}
    pins = {"zero_stage": 2, "dp": 8, "offload": "none", "recompute": "none"}
    made = export(predict(PlanRequest(**asked, pins=pins)), "deepspeed")
    zero = json.loads(made.files["ds_config.json"])["zero_optimization"]
    assert (zero["overlap_comm"], zero["reduce_bucket_size"]) == (True, 50_000_000)
    assert deepspeed_job(json.loads(made.files["ds_config.json"])).fields["changes"] == {
        "stack.overlap_grad_reduce": True,
        "stack.reduce_bucket_size": "100000000 B",
    }
    assert not any("cannot express" in one for one in made.remarks)


@each(
    ("optimizer", "offload", "keys"),
    [
        ("adam", "optimizer", {}),
        ("sgd", "none", {"zero_allow_untested_optimizer": True}),
        ("sgd", "optimizer", {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}),
    ],
)
def test_the_keys_without_which_deepspeed_refuses_an_optimizer_are_written(optimizer, offload, keys):
    asked = {"model": "llama3-8b", "gpus": 8, "stack": "deepspeed", "reasons": False, "top": 0}
    made = export(
        plan(PlanRequest(optimizer=optimizer, pins={"offload": offload, "zero_stage": 2}, **asked)), "deepspeed"
    )
    document = json.loads(made.files["ds_config.json"])
    assert {
        key: value for key, value in document.items() if key.startswith("zero_") and key[5:] != "optimization"
    } == keys
    assert any("DeepSpeedCPUAdam" in line for line in made.remarks) == ((optimizer, offload) == ("adam", "optimizer"))
