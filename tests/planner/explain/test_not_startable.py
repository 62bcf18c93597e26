"""A plan that its stack's framework refuses says so, with what that framework would get."""

import re

import pytest

from planner import PlanRequest, plan, predict
from planner.analyses.robust import robust
from planner.analyses.size import size
from planner.analyses.what_if import what_if
from planner.api.short import short_plan
from planner.jobs.registry import export
from planner.request.budget import Budget
from planner.search.question import resolve_search


def remarks(**asked):
    answer = plan(PlanRequest(**{"top": 0, **asked}))
    said = [one for one in answer.warnings if "cannot start this plan" in one]
    assert answer.startable == (not said)
    return said


def test_a_plan_that_megatron_refuses_says_so_and_what_it_starts():
    pins = {"rank_order": "tp-cp-ep-pp-dp", "cp": 4, "tp": 4, "pp": 8}
    (said,) = remarks(model="175b", gpus=1024, pins=pins, framework="any")
    assert said.startswith("megatron-lm cannot start this plan: it takes no rank order tp-cp-ep-pp-dp")
    assert said.endswith("--for megatron-lm searches for one that it can")


def test_a_plan_of_too_many_ranks_is_not_taken_for_a_job_that_a_framework_never_starts():
    asked = {"model": "llama3-70b", "gpus": 4, "cluster": "aws-g6", "adapters": "16", "base_precision": "nf4"}
    (said,) = remarks(**asked, reasons=False)
    assert said.startswith("accelerate cannot start this plan: it takes no tensor ranks 4 over frozen weights in nf4")
    assert said.endswith("1 works; nor any other that fits")


def test_what_another_framework_would_start_has_its_price():
    (said,) = remarks(model="llama3-8b", gpus=64, stack="torchtitan", framework="any")
    own = plan(PlanRequest(model="llama3-8b", gpus=64, framework="torchtitan", reasons=False))
    (seconds,) = re.findall(r"it starts [a-z\d ]+, ([\d.]+) s \(\+", said)
    assert float(seconds) >= own.prediction.iteration_seconds * (1 - 1e-3)


def test_a_plan_that_starts_or_was_asked_for_a_framework_says_nothing():
    assert not remarks(model="llama3-8b", gpus=64, reasons=False)
    assert not remarks(model="llama3-8b", gpus=64, framework="torchtitan")
    assert not remarks(model="llama3-8b", gpus=64, stack="generic", reasons=False)


def test_sizes_points_of_sweeps_what_ifs_and_robust_choices_say_so_as_a_plan_does():
    asked = PlanRequest(model="llama3-8b", gpus=64, framework="any", stack="torchtitan")
    short, refused = short_plan(asked, Budget()), "torchtitan cannot start this plan"
    assert not short.startable
    sure = robust(asked.model_copy(update={"pins": {"tp": 1, "cp": 1, "pp": 1, "zero_stage": 1}}), 0.1)
    assert refused in " ".join(sure.summary().split())
    for said in (short.warnings, what_if(asked).warnings, size(asked, days=1e5).answer.careful, sure.warnings):
        assert [refused in one for one in said].count(True) == 1


def beyond(**asked):
    return [one.text for one in plan(PlanRequest(**asked, top=0)).choices if one.subject == "--for any"]


def test_a_plan_starts_with_the_framework_of_its_stack_and_what_does_not_stands_beside_it():
    asked = {"model": "llama3.1-405b", "gpus": 16384, "cluster": "meta-24k"}
    found, free = (plan(PlanRequest(**asked, **more, reasons=False)) for more in ({}, {"framework": "any"}))
    assert found.strategy.rank_order == "tp-cp-ep-dp-pp"
    assert "a plan that megatron-lm starts (--for any allows others)" in found.defaults
    gain = 1.0 - free.prediction.iteration_seconds / found.prediction.iteration_seconds
    (said,) = beyond(**asked)
    assert said.startswith(f"{gain:.1%} faster, ")
    assert "megatron-lm cannot start it: it takes no rank order tp-cp-ep-pp-dp with" in said


@pytest.mark.parametrize(
    ("asked", "target"),
    [
        ({"model": "llama3-8b", "gpus": 8}, "trl"),
        ({"model": "llama3-70b", "gpus": 8}, "llamafactory"),
        ({"model": "mixtral-8x7b", "gpus": 8}, "accelerate"),
        ({"model": "llama3-70b", "gpus": 8, "stack": "deepspeed"}, "axolotl"),
        ({"model": "llama3-8b", "gpus": 16, "stack": "megatron-core"}, "megatron-bridge"),
    ],
)
def test_a_plan_with_adapters_is_exported_as_it_is(asked, target):
    found = plan(PlanRequest(**asked, adapters="16", reasons=False))
    assert found.startable
    assert export(found, target).files


def test_one_rank_runs_the_distributed_optimizer_for_what_only_it_offloads():
    found = plan(PlanRequest(model="llama3-8b", gpus=1, reasons=False))
    assert (found.startable, found.strategy.zero_stage, found.strategy.offload) == (True, 0, "optimizer")
    written = set(export(found, "megatron-lm").program)
    assert {"--use-distributed-optimizer", "--use-precision-aware-optimizer", "--optimizer-cpu-offload"} <= written
    assert plan(PlanRequest(model="llama3-8b", gpus=1, framework="megatron-lm", reasons=False)).fits


@pytest.mark.parametrize(
    ("stack", "model", "lacks"),
    [
        ("megatron-core", "mpt-7b", "positions of kind alibi"),
        ("megatron-core", "llama3-8b", ""),
        ("torchtitan", "nemotron-h-8b",
         "feed-forward layers without a gate, layers by pattern, positions of kind none, state-space layers"),
        ("torchtitan", "gemma-7b", "activation geglu"),
        ("torchtitan", "gpt-oss-20b", ""),
        ("torchtitan", "deepseek-v2-lite", ""),
        ("paddle", "mpt-7b",
         "feed-forward layers without a gate, norms of kind layernorm, positions of kind alibi"),
        ("paddle", "qwen3-next-80b-a3b", ""),
        ("fsdp", "mpt-7b", ""),
    ],
)  # fmt: skip
def test_what_a_framework_lacks_of_a_model_is_said_with_the_plan(stack, model, lacks):
    found = resolve_search(PlanRequest(model=model, gpus=64, stack=stack))
    said = [line for line in found.defaults if "code of yours" in line]
    assert said == ([f"code of yours for what {found.scenario.framework} lacks of {model}: {lacks}"] if lacks else [])


def test_adapters_that_the_framework_of_the_stack_does_not_train_are_said():
    (said,) = remarks(model="llama3-8b", gpus=8, adapters="16", stack="nanotron", reasons=False)
    assert "nanotron cannot start this plan: it takes no adapters 16" in said


GROUPS = {"model": "gemma3-1b", "gpus": 128, "cluster": "a100-two-networks"}


def test_a_plan_over_several_node_groups_starts_and_what_does_not_stands_beside_it():
    found, free = (plan(PlanRequest(**GROUPS, **more)) for more in ({}, {"framework": "any"}))
    assert (found.startable, found.strategy.by_group) == (True, False)
    assert export(found, "megatron-lm").files
    assert (free.startable, free.strategy.by_group) == (False, True)
    assert any(
        "megatron-lm cannot start this plan: it takes no node groups with other" in said for said in free.warnings
    )
    gain = 1.0 - free.prediction.iteration_seconds / found.prediction.iteration_seconds
    (said,) = (one.text for one in found.choices if one.subject == "--for any")
    assert said.startswith(f"{gain:.1%} faster, 1 stage of infiniband with DP 64; 1 stage of ethernet with TP 4, DP 16")


def test_degrees_that_differ_between_node_groups_are_started_by_no_framework_that_nobody_knows():
    found = plan(PlanRequest(**GROUPS, stack="generic", reasons=False))
    assert found.strategy.by_group
    assert not found.startable
    assert any(said.startswith("launchers give every stage the same degrees") for said in found.warnings)


def test_a_framework_that_recomputes_alike_does_so_over_several_node_groups():
    asked = {"model": "llama3-70b", "gpus": 128, "cluster": "a100-h100-mixed", "pins": {"tp": 2, "cp": 2, "pp": 8}}
    found, free = (plan(PlanRequest(**asked, **more, reasons=False)) for more in ({}, {"framework": "any"}))
    again = {stage.recompute_layers for stage in free.strategy.stages}
    assert len(again) > 1
    assert found.startable
    assert len({stage.recompute_layers for stage in found.strategy.stages}) == 1
    assert export(found, "megatron-lm").files


@pytest.mark.parametrize("stack", ["nanotron", "torchtitan"])
def test_other_frameworks_start_their_plans_over_several_node_groups(stack):
    found = plan(PlanRequest(model="llama3-8b", gpus=128, cluster="a100-h100-mixed", stack=stack, reasons=False))
    assert found.startable
    assert export(found, stack).files


def test_what_needs_a_users_own_code_is_planned_only_where_its_axis_is_pinned():
    asked = {"model": "llama3-8b", "gpus": 64, "stack": "deepspeed", "seq_length": 65536, "reasons": False}
    assert plan(PlanRequest(**asked)).strategy.cp == 1
    assert plan(PlanRequest(**asked, pins={"cp": "2.."})).strategy.cp >= 2


@pytest.mark.parametrize("framework", [None, "accelerate"])
def test_what_takes_a_users_code_is_planned_before_the_framework_is_given_up(framework):
    asked = {"model": "qwen3-235b-a22b", "gpus": 2048, "cluster": "dgx-b200", "stack": "fsdp", "reasons": False}
    found = plan(PlanRequest(**asked, framework=framework))
    narrow = plan(PlanRequest(**asked, framework="accelerate", pins={"cp": 2}))
    assert found.startable
    assert found.strategy.cp > 1
    assert found.prediction.iteration_seconds <= narrow.prediction.iteration_seconds
    assert f"cp {found.strategy.cp} (nothing fits without)" in found.defaults
    assert any("but in a training loop that splits sequences" in said for said in found.warnings)
    assert export(found, "accelerate").files


def test_context_ranks_are_for_devices_whose_attention_takes_them():
    asked = {"model": "llama3-8b", "gpus": 32, "cluster": "v100-dgx1"}
    assert plan(PlanRequest(**asked, reasons=False)).strategy.cp == 1
    assert "it takes no context ranks 8 on v100-sxm2-32gb" in beyond(**asked)[0]


def test_where_the_framework_starts_nothing_of_what_is_pinned_it_is_planned_without():
    pins = {"rank_order": "tp-cp-ep-pp-dp", "cp": 4, "tp": 4, "pp": 8}
    found = plan(PlanRequest(model="175b", gpus=1024, pins=pins))
    assert found.strategy.rank_order == "tp-cp-ep-pp-dp"
    assert "framework any (nothing fits that the stack's framework can start)" in found.defaults
    (said,) = (one for one in found.warnings if "cannot start this plan: it takes no rank order" in one)
    assert said.endswith("; nor any other that fits")
    assert "--for" not in said


@pytest.mark.parametrize(
    "asked", [{"stack": "torchtitan", "cluster": "v100"}, {"stack": "nanotron", "precision": "fp8"}]
)
@pytest.mark.parametrize("reasons", [False, True])
def test_a_format_that_the_framework_never_takes_is_named_with_no_search_for_another_plan(asked, reasons):
    (said,) = remarks(model="llama3-8b", gpus=32, seq_length=2048, top=0, reasons=reasons, **asked)
    assert f"{asked['stack']} cannot start this plan: it takes no precision fp" in said
    assert "--for" not in said


def test_a_given_strategy_that_the_framework_refuses_is_not_said_to_be_launched_by_its_files():
    asked = PlanRequest(model="llama3-8b", gpus=8, stack="nanotron", precision="fp8", pins={"tp": 2, "pp": 2})
    launched = predict(asked).summary().partition("Launch")[2]
    assert "nanotron cannot start this plan: it takes no precision fp8" in " ".join(launched.split())


def test_degrees_that_a_plan_does_without_are_no_gain_of_another_framework_or_of_offloading():
    found = plan(PlanRequest(model="nemotron-h-8b", gpus=64))
    assert found.proof.scope[0] == "among strategies with at most VPP 1, the most that was measured"
    assert not found.choices
    assert not any("offload" in line.subject for line in found.what_helps)
