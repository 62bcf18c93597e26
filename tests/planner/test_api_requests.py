"""Questions that make no sense are refused in one line, and what was filled in is said."""

import re
import tomllib
from pathlib import Path

import pytest

from costmodels.model.model import from_shape
from hardware.errors import MeshwrightError, UnknownName
from hardware.records import BadNodeCount, Cluster
from planner import BadRequest, PlanRequest, plan
from tests.planner.test_api import request
from tests.scenarios import toy_device, toy_group


@pytest.mark.parametrize(
    "changes",
    [
        {"gpus": 0},
        {"gpus": -8},
        {"gpus": 2**40},
        {"global_batch_size": 0},
        {"seq_length": 0},
        {"precision": "int3"},
        {"objective": "beauty"},
        {"pins": {"colour": 2}},
        {"time_limit": 0},
        {"unheard": 1},
    ],
)
def test_requests_that_make_no_sense_are_refused(changes):
    with pytest.raises(BadRequest):
        request(**changes)


def test_names_that_do_not_exist_are_refused_with_the_nearest():
    with pytest.raises(UnknownName, match="dgx-h100"):
        plan(request(cluster="dgx-h10"))
    with pytest.raises(UnknownName, match="megatron-core"):
        plan(request(stack="megatron-corr"))
    with pytest.raises(UnknownName, match="llama2-7b"):
        plan(request(model="llama2-7"))


@pytest.mark.parametrize(
    "changes",
    [
        *({name: "x" * 5000} for name in ("model", "cluster", "stack", "precision")),
        {"changes": {f"stack.{'x' * 5000}": 1}},
    ],
)
def test_a_refusal_fits_a_line_whatever_was_written(changes):
    with pytest.raises(MeshwrightError) as refused:
        plan(request(**changes))
    assert len(str(refused.value)) < 400


def test_nodes_that_would_stay_half_empty_are_refused_with_the_counts_that_fit():
    with pytest.raises(BadNodeCount, match="4 and 8"):
        plan(request(gpus=6))


def test_a_mixed_cluster_is_not_taken_for_its_first_group():
    fast = toy_group().model_copy(update={"nodes": 1})
    slow = toy_group(device=toy_device(peak=1e12)).model_copy(update={"nodes": 1, "name": "slow"})
    mixed = Cluster(name="mixed", title="Mixed", groups=(fast, slow), sources={})
    found = plan(request(cluster=mixed, gpus=8, reasons=False))
    assert {stage.group for stage in found.strategy.stages} == {"toys", "slow"}


def test_more_tokens_than_learned_positions_are_refused():
    with pytest.raises(BadRequest, match="learned positions"):
        plan(request(model="gpt2-124m", seq_length=4096))


def test_the_recorded_pins_can_be_asked_again():
    pins = {"tp": [1, 2], "pp": "..2", "recompute": "none", "sequence_parallel": False}
    first = plan(request(pins=pins, reasons=False))
    again = plan(request(pins=first.request["pins"], reasons=False))
    assert again.strategy == first.strategy


def test_trillions_of_tokens_are_said_as_such():
    assert "15T training tokens (the model's)" in plan(PlanRequest(model="llama3-8b", gpus=8, reasons=False)).defaults


def test_defaults_are_said_and_what_was_asked_for_is_not():
    said = " ".join(plan(PlanRequest(model="gpt2-124m", gpus=8, reasons=False)).defaults)
    for word in ("cluster dgx-h100", "stack megatron-core", "global batch", "sequence length", "precision bf16"):
        assert word in said
    assert "global batch" not in " ".join(
        plan(PlanRequest(model="gpt2-124m", gpus=8, global_batch_size=64, reasons=False)).defaults
    )


def test_the_experts_of_the_example_are_understood_once_they_are_no_remark():
    text = (Path(__file__).resolve().parents[2] / "examples" / "my-model.toml").read_text(encoding="utf-8")
    shape = tomllib.loads(re.sub(r"^# ", "", text, flags=re.MULTILINE))
    experts = from_shape(shape)
    assert experts.num_moe_layers == experts.num_layers - shape["moe"]["dense_layers"]
    assert experts.moe.shared_expert_ffn_hidden_size == 2 * experts.moe.expert_ffn_hidden_size
    assert from_shape(tomllib.loads(text)).moe is None


@pytest.mark.parametrize(
    ("stack", "warned"), [("megatron-core", True), ("torchtitan", True), ("maxtext", False), ("generic", False)]
)
def test_a_stack_that_makes_no_programs_for_the_machine_is_warned_of(stack, warned):
    asked = PlanRequest(model="gpt2-124m", gpus=16, cluster="trn1", stack=stack, reasons=False)
    found = plan(asked)
    said = [word for word in found.warnings if "--stack" in word]
    assert found.startable == (stack == "generic")
    assert said == [f"{stack} does not run on trainium1; --stack maxtext comes nearest, through XLA"] * warned


@pytest.mark.parametrize(("capacity", "said"), [(0.25, True), (1.25, False)])
def test_tokens_that_experts_must_drop_are_said_beside_the_mfu_that_counts_them(capacity, said):
    asked = PlanRequest(model="mixtral-8x7b", gpus=64, expert_capacity=capacity, reasons=False)
    dropped = "experts drop 75% of their tokens or more, which MFU counts as if computed"
    assert (dropped in plan(asked).warnings) == said


def test_a_stack_that_sets_all_of_a_devices_units_aside_is_refused_with_how_many_may_be():
    asked = PlanRequest(model="gpt2-124m", gpus=16, cluster="trn1", stack="deepseek", reasons=False)
    said = "deepseek reserves 20 compute units for communication, but trainium1 has only 2; .*_units 1 or fewer works$"
    with pytest.raises(MeshwrightError, match=said):
        plan(asked)
    left = plan(asked.model_copy(update={"changes": {"stack.overlap.communication_units": 1}}))
    assert left.status == "optimal"
