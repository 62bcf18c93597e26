"""What Megatron-LM's arguments say of its software is priced, or named where it is not."""

import json
import re

import pytest
from click.testing import CliRunner

from planner import PlanRequest, why_not
from planner.cli import main
from planner.jobs.megatron.dialect import MEGATRON, OF_THE_RUN, options_of
from planner.jobs.megatron.job import job_of
from planner.jobs.megatron.read_software import LOOPED
from tests.each import each
from tests.planner.jobs.scripts import megatron_job

WORDS = (
    "pretrain_gpt.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --bf16 "
    "--max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size 64 --use-distributed-optimizer "
    "--overlap-grad-reduce --overlap-param-gather --vocab-size 51200 --attention-backend fused "
)
EXPERTS = WORDS + "--num-experts 8 --expert-model-parallel-size 2 "
SHARDED = WORDS + "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params "


def predict(text, tmp_path, *arguments, form="json"):
    path = tmp_path / "run.sh"
    path.write_text(text)
    return CliRunner().invoke(
        main, ["predict", "--from", "megatron-args", str(path), "--gpus", "8", "--format", form, *arguments]
    )


def test_experts_that_run_one_after_another_are_told():
    assert LOOPED in megatron_job(EXPERTS).unpriced
    assert LOOPED not in megatron_job(EXPERTS + "--moe-grouped-gemm").unpriced
    assert LOOPED in megatron_job(EXPERTS + "--moe-grouped-gemm --transformer-impl local").unpriced
    assert LOOPED not in megatron_job(WORDS).unpriced


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
    assert "nearest: --zero 1" in done.stderr


@pytest.mark.parametrize("backend", ["unfused", "local", "auto --transformer-impl local"])
def test_unfused_attention_is_priced_as_such(backend, tmp_path):
    slow = json.loads(predict(WORDS.replace("backend fused", f"backend {backend}"), tmp_path).stdout)
    fast = json.loads(predict(WORDS, tmp_path).stdout)
    assert slow["memory_bytes"][0]["activations"] > 1.5 * fast["memory_bytes"][0]["activations"]


@pytest.mark.parametrize("pins", [{"zero_stage": 3}, {"tp": 1, "pp": 1, "cp": 1}])
def test_why_not_names_the_nearest_that_works(pins):
    said = [word for name, value in pins.items() for word in (f"--{name.removesuffix('_stage')}", str(value))]
    done = CliRunner().invoke(main, ["why-not", "--model", "llama3-70b", "--gpus", "64", *said])
    assert "Nearest that works" in done.stdout


def test_why_not_of_what_runs_names_none():
    assert why_not(PlanRequest(model="llama3-8b", gpus=8, pins={"tp": 2})).nearest is None


SOFTWARE = [
    ("--moe-token-dispatcher-type alltoall", "stack.dispatcher", None),
    ("--moe-token-dispatcher-type allgather", "stack.dispatcher", "allgather"),
    ("", "stack.dispatcher", "allgather"),
    ("--moe-token-dispatcher-type flex", "stack.dispatcher", "deepep"),
    ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep", "stack.dispatcher", "hybridep"),
    ("--moe-enable-deepep --moe-token-dispatcher-type flex", "stack.dispatcher", "deepep"),
    ("--overlap-moe-expert-parallel-comm", "stack.overlap_moe_expert_parallel_comm", True),
    ("--moe-shared-expert-overlap", "stack.shared_expert_overlap", True),
    ("--tp-comm-overlap", "stack.tp_comm_overlap", True),
    ("--enable-cuda-graph", "stack.cuda_graphs", True),
    ("--external-cuda-graph --cuda-graph-scope attn", "stack.cuda_graph_scope", ["attn"]),
    ("--cuda-graph-impl transformer_engine --cuda-graph-modules attn moe_router", "stack.cuda_graph_scope",
     ["attn", "moe_router"]),
    ("--cuda-graph-impl local --cuda-graph-scope full_iteration", "stack.cuda_graphs", True),
    ("--cuda-graph-impl none", "stack.cuda_graphs", None),
    ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "stack.logits.cross_entropy_traffic", 12),
    ("--cross-entropy-loss-fusion", "stack.logits.cross_entropy_traffic", 28),
    ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl linear", "stack.loss", "fused"),
    ("--cross-entropy-fusion-impl te", "stack.logits.cross_entropy_traffic", None),
    ("--no-bias-gelu-fusion --no-bias-dropout-fusion", "stack.fused_elementwise", False),
    ("--no-bias-gelu-fusion", "stack.fused_elementwise", None),
    ("--no-masked-softmax-fusion", "stack.fused_softmax", False),
    ("--no-rope-fusion", "stack.kernels.rotary_traffic", 6),
    ("--no-gradient-accumulation-fusion", "stack.gradients.accumulate_traffic", 10),
    ("--no-overlap-p2p-communication", "stack.overlap.pp_interleaved", 1.0),
    ("--ddp-bucket-size 100_000_000", "stack.bucket_size", 100000000),
    ("--deterministic-mode", "stack.deterministic", True),
    ("--distribute-saved-activations", "stack.recompute.partitioned_inputs", True),
    ("--use-nccl-ub", "stack.nccl_ub", True),
    ("--flash-attention-version 3", "stack.attention_backend", "flash-3,flash-2"),
    ("--cpu-offloading --cpu-offloading-num-layers 12", "stack.offloaded_layers", 0.5),
]  # fmt: skip


@each(("more", "path", "value"), SOFTWARE)
def test_options_of_the_software_set_the_fields_of_the_stack_that_they_stand_for(more, path, value):
    assert megatron_job(EXPERTS + more).fields["changes"].get(path) == value


def test_overlap_that_is_not_asked_for_is_off():
    plain = megatron_job(WORDS.replace("--overlap-grad-reduce --overlap-param-gather", ""))
    assert plain.fields["changes"] == {
        "stack.overlap_grad_reduce": False,
        "stack.overlap_param_gather": False,
        "stack.dropout": True,
    }
    assert any("--overlap-grad-reduce not given; gradients are reduced after" in line for line in plain.assumed)


def test_forced_balance_and_narrow_gradients_are_fields_of_the_question():
    assert megatron_job(EXPERTS + "--moe-router-force-load-balancing").fields["expert_imbalance"] == 1.0
    half = WORDS.replace("--bf16", "--fp16 --accumulate-allreduce-grads-in-fp32")
    assert megatron_job(half).fields["main_grads"] == "fp32"
    assert megatron_job(WORDS + "--grad-reduce-in-bf16").fields["main_grads"] == "bf16"


@pytest.mark.parametrize(
    ("variables", "changes"),
    [
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, {"stack.expandable_segments": True}),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, {"stack.launch_blocking": True}),
        ({"NVTE_FLASH_ATTN": "1", "NVTE_FUSED_ATTN": "0"}, {"stack.attention_backend": "flash-2,flash-1"}),
        ({"NVTE_FLASH_ATTN": "0", "NVTE_FUSED_ATTN": "0"}, {"stack.attention_backend": "unfused"}),
    ],
)
def test_variables_that_decide_kernels_and_memory_are_read(variables, changes):
    words = options_of(WORDS.replace("--attention-backend fused", "").split())
    assert changes.items() <= job_of(words, environment=variables).fields["changes"].items()


def test_the_printed_launch_keeps_what_the_file_says(tmp_path):
    own = "--moe-token-dispatcher-type alltoall --no-rope-fusion --cross-entropy-loss-fusion --deterministic-mode "
    own += "--ddp-bucket-size 100000000 --attention-dropout 0.0 --hidden-dropout 0.0"
    plain = EXPERTS.replace("--overlap-grad-reduce --overlap-param-gather", "")
    printed = predict(plain + own, tmp_path, form="args").stdout
    for flag in ("alltoall", "--no-rope-fusion", "--cross-entropy-loss-fusion", "--ddp-bucket-size 100000000"):
        assert flag in printed
    assert "--deterministic-mode" in printed
    assert "--overlap" not in printed


def test_an_experts_dispatcher_decides_the_price(tmp_path):
    words = EXPERTS.replace("--expert-model-parallel-size 2", "--expert-model-parallel-size 8") + "--moe-grouped-gemm "

    def exposed(kind):
        more = f"--moe-token-dispatcher-type {kind} --attention-dropout 0 --hidden-dropout 0"
        return json.loads(predict(words + more, tmp_path).stdout)["breakdown_seconds"]["ep"]

    assert exposed("allgather") > exposed("alltoall") > exposed("flex")


def test_every_option_that_has_an_effect_without_a_price_says_so():
    for name, effect in MEGATRON.unpriced.items():
        said = megatron_job(f"{WORDS} --{name} x").unpriced
        assert f"--{name} is not priced: {effect}" in said
    assert not re.fullmatch(OF_THE_RUN, "data-parallel-degree")


def test_the_last_batch_of_a_schedule_is_priced():
    words = WORDS.replace("--global-batch-size 64", "--step-batch-size-schedule '0:768 250B:1536'")
    assert megatron_job(words).fields["global_batch_size"] == 1536
