"""What Megatron-LM's arguments say of its software is priced, or told where it is not."""

import json

import pytest
from click.testing import CliRunner

from planner import PlanRequest, why_not
from planner.cli import main
from planner.jobs.megatron.read import LOOPED, megatron_job

WORDS = (
    "pretrain_gpt.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --bf16 "
    "--max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size 64 --use-distributed-optimizer "
    "--overlap-grad-reduce --overlap-param-gather --vocab-size 51200 --attention-backend fused "
)
EXPERTS = WORDS + "--num-experts 8 --expert-model-parallel-size 2 "
SHARDED = WORDS + "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params "


def predict(text, tmp_path, *arguments):
    path = tmp_path / "run.sh"
    path.write_text(text)
    return CliRunner().invoke(
        main, ["predict", "--from", "megatron-args", str(path), "--gpus", "8", "--format", "json", *arguments]
    )


def test_experts_that_run_one_after_another_are_told():
    assert LOOPED in megatron_job(EXPERTS).remarks
    assert LOOPED not in megatron_job(EXPERTS + "--moe-grouped-gemm").remarks
    assert LOOPED in megatron_job(EXPERTS + "--moe-grouped-gemm --transformer-impl local").remarks
    assert LOOPED not in megatron_job(WORDS).remarks


def test_megatron_fsdp_is_priced_with_whole_sharding(tmp_path):
    done = predict(SHARDED, tmp_path)
    assert done.exit_code == 0, done.stdout
    plan = json.loads(done.stdout)
    assert plan["strategy"]["zero_stage"] == 3
    assert plan["request"]["changes"]["stack.sharding.state_copies"] == "none"
    assert "not read" not in done.stderr


def test_what_is_set_beside_a_file_is_joined_to_what_it_says(tmp_path):
    changes = json.loads(predict(SHARDED, tmp_path, "--set", "stack.host.launch_time=0.5x").stdout)["request"][
        "changes"
    ]
    assert {"stack.supports.zero_stages", "stack.host.launch_time"} <= set(changes)
    changes = json.loads(predict(SHARDED, tmp_path, "--set", "stack.sharding.state_copies=both").stdout)["request"][
        "changes"
    ]
    assert changes["stack.sharding.state_copies"] == "both"


def test_sharding_inside_a_pipeline_is_refused_with_the_nearest_that_works(tmp_path):
    done = predict(SHARDED + "--pipeline-model-parallel-size 2", tmp_path)
    assert done.exit_code == 3
    assert "stack megatron-core has no ZeRO stage 3" not in done.stderr
    assert "nearest: zero_stage 1" in done.stderr


@pytest.mark.parametrize("backend", ["unfused", "local", "auto --transformer-impl local"])
def test_unfused_attention_is_priced_as_such(backend, tmp_path):
    slow = json.loads(predict(WORDS.replace("backend fused", f"backend {backend}"), tmp_path).stdout)
    fast = json.loads(predict(WORDS, tmp_path).stdout)
    assert slow["memory_bytes"][0]["activations"] > 1.5 * fast["memory_bytes"][0]["activations"]


@pytest.mark.parametrize("pins", [{"zero_stage": 3}, {"tp": 1, "pp": 1, "cp": 1}])
def test_why_not_names_the_nearest_that_works(pins):
    answer = why_not(PlanRequest(model="llama3-70b", gpus=64, pins=pins))
    assert answer.nearest is not None
    said = [word for name, value in pins.items() for word in (f"--{name.removesuffix('_stage')}", str(value))]
    done = CliRunner().invoke(main, ["why-not", "--model", "llama3-70b", "--gpus", "64", *said])
    assert "Nearest that works" in done.stdout


def test_why_not_of_what_runs_names_none():
    assert why_not(PlanRequest(model="llama3-8b", gpus=8, pins={"tp": 2})).nearest is None
