"""Adapters as they are asked for: in requests, answers, exports and measured runs."""

import numpy as np
import pytest
from click.testing import CliRunner

from costmodels.model.catalogue import model
from costmodels.model.flops import frozen_flops, model_flops
from costmodels.pricing import price_strategy
from costmodels.stack.adapters import Adapters
from costmodels.stack.stack import stack
from planner import PlanRequest, plan, predict, why_not
from planner.cli import main
from planner.errors import BadRequest
from planner.jobs.job import Inexpressible
from planner.jobs.preview import launch
from planner.jobs.registry import export
from planner.request.resolve import resolve
from planner.runs.case import case_of
from planner.runs.files import read_runs
from planner.runs.judge import HOME
from planner.studies.question import key_of

FEW = PlanRequest(
    model="llama2-70b",
    gpus=8,
    global_batch_size=32,
    seq_length=4096,
    adapters="16:linear_qkv",
    stack="megatron-core",
    reasons=False,
)
NEMO = PlanRequest(
    model="llama2-70b", gpus=8, global_batch_size=32, adapters="16:linear_qkv", framework="megatron-bridge"
)


def changed(**changes):
    return FEW.model_copy(update=changes)


def test_seventy_billion_frozen_parameters_fit_eight_devices_without_the_host():
    answer = plan(FEW)
    assert answer.status == "optimal"
    assert answer.strategy.offload == "none"
    first = answer.memory_bytes[0]
    assert first.optimizer + first.gradients < 0.01 * first.weights
    assert plan(changed(adapters=None)).strategy.offload == "optimizer"


def test_only_what_is_multiplied_counts_as_useful():
    answer, llama = predict(changed(pins={"pp": 4, "tp": 2})), model("llama2-70b")
    every = model_flops(llama, seq_length=4096, windowed=True)
    done = answer.prediction.mfu * answer.prediction.iteration_seconds * 8 * 989.5e12
    assert done == pytest.approx((every - frozen_flops(llama)) * 32 * 4096, rel=0.01)
    assert frozen_flops(llama) == pytest.approx(2 * 68.7e9, rel=0.01)


def test_the_answer_says_its_adapters_and_asks_the_same_again():
    answer = predict(changed(adapters="16", pins={"pp": 4, "tp": 2}))
    assert answer.request["adapters"] == "16:linear_qkv,linear_proj,linear_fc1,linear_fc2"
    assert "adapters on linear_qkv, linear_proj, linear_fc1, linear_fc2" in answer.defaults
    again = predict(changed(adapters=answer.request["adapters"], pins={"pp": 4, "tp": 2}))
    assert again.prediction.iteration_seconds == answer.prediction.iteration_seconds


def test_adapters_are_asked_for_in_one_way_and_a_stacks_file_may_have_some():
    with pytest.raises(BadRequest, match=r"stack\.adapters is set by adapters, such as --adapters 16:linear_qkv"):
        plan(changed(adapters=None, changes={"stack.adapters": 16}))
    tuned = stack("nemo").changed({"switches.adapters": Adapters.read("16:linear_qkv"), "name": "tuned"})
    pins = {"pp": 4, "tp": 2}
    asked, held = changed(stack="nemo", pins=pins), changed(adapters=None, stack=tuned, pins=pins)
    assert predict(held).prediction.iteration_seconds == predict(asked).prediction.iteration_seconds
    assert predict(held).request["adapters"] == "16:linear_qkv"
    assert (
        type(tuned).model_validate(
            tuned.model_dump() | {"switches": tuned.switches.model_dump() | {"adapters": "16:linear_qkv"}}
        )
        == tuned
    )


def test_a_model_of_experts_has_adapters_in_attention():
    answer = predict(changed(model="mixtral-8x7b", adapters="8", pins={"pp": 4, "ep": 2}))
    assert answer.request["adapters"] == "8:linear_qkv,linear_proj"
    with pytest.raises(
        BadRequest, match=r"these are modules of dense layers, and.*8:linear_qkv,linear_proj,experts works"
    ):
        plan(changed(model="mixtral-8x7b", adapters="8:linear_fc1"))


@pytest.mark.parametrize(
    ("pins", "rule"),
    [({"offload": "optimizer"}, "adapters-offload"), ({"recompute_modules": "mlp"}, "adapters-modules")],
)
def test_what_frozen_weights_have_no_use_for_is_refused(pins, rule):
    assert why_not(changed(pins=pins)).rules[0].rule == rule


def test_a_schedule_that_waits_for_weights_gradients_is_refused():
    asked = changed(stack="zero-bubble", pins={"schedule": "zb-1p", "pp": 4})
    assert "adapters-schedule" in {one.rule for one in why_not(asked).rules}


@pytest.mark.parametrize("text", ["x", "16:x_proj", "0"])
def test_words_that_say_no_adapters_are_refused_by_the_command(text):
    result = CliRunner().invoke(main, ["--model", "llama3-8b", "--gpus", "8", "--adapters", text])
    assert result.exit_code == 2
    assert result.stderr.startswith("plan: --adapters: ")
    assert result.stderr.count("\n") == 1


def test_megatron_bridge_is_told_rank_and_modules():
    made = export(plan(NEMO), "megatron-bridge")
    assert {"peft.dim=16", "peft.target_modules=[linear_qkv]"} <= set(made.program)
    assert any("--mode lora" in remark for remark in made.remarks)


def test_arguments_of_megatron_lm_name_the_export_that_writes_adapters():
    with pytest.raises(
        BadRequest, match="megatron-lm trains no adapters; plan export --to megatron-bridge writes them"
    ):
        launch(plan(NEMO), plan(NEMO).strategy)


def test_frameworks_that_train_whole_models_refuse_adapters_and_others_are_told_to_add_them():
    with pytest.raises(Inexpressible, match="no adapters 16:linear_qkv; megatron-bridge trains"):
        export(plan(FEW), "megatron-lm")
    made = export(plan(changed(framework="accelerate", stack="fsdp")), "accelerate")
    assert any(
        "the plan trains adapters 16:linear_qkv/autocast; add them in the script" in remark for remark in made.remarks
    )


def test_nvidias_own_fine_tuning_runs_come_out_within_four_percent():
    """Megatron-Bridge 26.06: five of Llama 3 70B on GB300, GB200 and H100, none of which anything was fitted to."""
    runs = [run for run in read_runs(HOME / "runs.jsonl.gz") if "bridge-26_06" in run.id and run.request.adapters]
    cases = [case_of(run) for run in runs]
    errors = [
        float(price_strategy(one.strategy, one.scenario, one.assignment).iteration / run.measured.iteration_seconds) - 1
        for run, one in zip(runs, cases, strict=True)
    ]
    assert len(errors) == 5
    assert np.abs(errors).max() < 0.04
    assert all(one.scenario.stack.switches.adapters.modules == ("linear_qkv",) for one in cases)


def test_a_fine_tune_is_not_given_the_tokens_of_a_whole_training():
    said = "100M training tokens (assumed for a fine-tune; --tokens changes it)"
    few, all_weights = predict(FEW), predict(changed(adapters=None))
    assert (few.request["tokens"], all_weights.request["tokens"]) == (10**8, model("llama2-70b").tokens)
    assert said in few.defaults
    assert few.prediction.iterations == -(-(10**8) // (32 * 4096))
    own = predict(changed(tokens=10**9))
    assert (own.request["tokens"], [line for line in own.defaults if "training tokens" in line]) == (10**9, [])
    asked = ["predict", "--model", "llama2-70b", "--gpus", "8", "--adapters", "16", "--dry-run"]
    assert "assumed for a fine-tune" in CliRunner().invoke(main, asked).output


def test_a_study_knows_a_fine_tune_by_the_tokens_that_it_takes():
    fields = {"model": "llama2-70b", "gpus": 8, "adapters": "16"}
    assert key_of(fields, "predict") == key_of(fields | {"tokens": 10**8}, "predict")


@pytest.mark.parametrize(("changes", "bytes_each"), [({}, 2.0), ({"stack.states.frozen_bytes": 0.516}, 0.516)])
def test_frozen_weights_are_as_narrow_as_a_change_says_whatever_kernels_adapters_have(changes, bytes_each):
    asked = {"model": "llama3-8b", "gpus": 1, "adapters": "16:linear_qkv", "stack": "fsdp", "precision": "bf16"}
    assert resolve(PlanRequest(**asked, changes=changes)).scenario.base_bytes == bytes_each
