"""What a launch file says of a model and its stack, and what it cannot say."""

import json

import pytest

from costmodels.model.catalogue import model, names
from planner import plan as best
from planner.jobs.megatron.options import OPTIONS
from planner.jobs.megatron.write_stack import stack_values
from planner.jobs.models import known_constants, model_constants
from planner.jobs.registry import export
from planner.request.request import PlanRequest
from tests.conformance.plans import random_plans
from tests.each import each
from tests.planner.jobs.test_export import PLANS

NARROW = "--grad-reduce-in-bf16"


GRAPHED = ["--cuda-graph-impl", "transformer_engine", "--cuda-graph-scope", "attn", "moe_router", "moe_preprocess"]


@each(
    ("stack", "changes", "words", "said"),
    [
        ("megatron-core", {}, [], ""),
        ("nemo", {"tp": 2, "sequence_parallel": True}, [NARROW, "--tp-comm-overlap"], ""),
        ("nemo", {"tp": 2, "sequence_parallel": False}, [NARROW], "under --sequence-parallel only"),
        ("nemo-26.06", {"recompute": "full"}, [NARROW], "none of layers that are recomputed"),
        (
            "nemo-26.06",
            {"recompute": "none", "ep": 2, "pp": 1, "vpp": 1},
            [NARROW, "--overlap-moe-expert-parallel-comm", *GRAPHED],
            "--delay-wgrad-compute",
        ),
        (
            "nemo-26.06",
            {"recompute": "none", "ep": 2, "pp": 2, "vpp": 1},
            [NARROW, *GRAPHED],
            "without interleaving",
        ),
    ],
)
def test_megatron_is_told_what_the_stack_assumes(stack, changes, words, said):
    (plan,) = random_plans("megatron-lm", 1, seed=3, models=("mixtral-8x7b",), precisions=("bf16",))
    calm = {"tp": 1, "sequence_parallel": False, "recompute_modules": [], "offload": "none"}
    strategy = plan.strategy.model_copy(update=calm | changes)
    given, remarks = stack_values(strategy, plan.request | {"stack": stack})
    assert OPTIONS.words(given) == words
    assert said in " ".join(remarks)


@each("place", range(12))
def test_fleet_s_degrees_make_up_the_world_and_agree_with_the_training_arguments(place):
    plan = PLANS["paddle"][place]
    files = export(plan, "paddle").files
    alone, arguments = json.loads(files["hybrid_configs.json"]), json.loads(files["paddle_args.json"])
    hybrid, at = alone["hybrid_configs"], plan.strategy
    ranks = hybrid["dp_degree"] * hybrid["sharding_degree"] * hybrid["mp_degree"] * hybrid["pp_degree"]
    assert ranks == plan.request["gpus"]
    assert hybrid["mp_degree"] == arguments["tensor_model_parallel_size"] == at.tp
    assert hybrid["sharding_degree"] == arguments["sharding_parallel_size"]
    inside = arguments["hybrid_parallel_topo_order"] == "sharding_first"
    assert ("order" in hybrid) == inside
    assert alone["pipeline_configs"] == {
        "accumulate_steps": at.num_microbatches,
        "micro_batch_size": at.micro_batch_size,
    }


@pytest.mark.parametrize(
    ("name", "has", "lacks"),
    [
        ("deepseek-v3", ("--moe-router-enable-expert-bias", "sigmoid", "--swiglu"), "--quick-geglu"),
        ("gpt-oss-20b", ("--quick-geglu", "learnable"), "--moe-router-score-function"),
        ("mixtral-8x7b", ("--swiglu", "--disable-bias-linear"), "--moe-router-score-function"),
    ],
)
def test_megatron_s_router_and_activation_are_the_models(name, has, lacks):
    (plan,) = random_plans("megatron-lm", 1, seed=3, models=(name,), precisions=("bf16",))
    exported = export(plan, "megatron-lm")
    words = exported.files["megatron-args.sh"].split()
    assert set(has) <= set(words)
    assert lacks not in words
    assert "--data-path ..." in exported.files["megatron-args.sh"], "what only the user knows is asked for"
    assert "--rotary-base ..." not in exported.files["megatron-args.sh"]


@pytest.mark.parametrize("launcher", ["slurm", "torchrun", "jobset", "ray"])
def test_a_launcher_of_megatron_has_all_its_arguments_and_the_base_of_the_rotation(launcher):
    for name, base in (("deepseek-v3", "10000"), ("gpt-oss-20b", "150000"), ("gpt3-13b", "")):
        (plan,) = random_plans("megatron-lm", 1, seed=3, models=(name,), precisions=("bf16",))
        launched = export(plan, launcher)
        text = "".join(launched.files.values())
        assert all(word in text for word in export(plan, "megatron-lm").program)
        assert ("--rotary-base" in text) == bool(base)
        assert base in text
        assert "--rotary-base ..." not in text
        assert "--data-path ..." in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llama3.1-405b", "--rotary-base 500000 --use-rope-scaling --rope-scaling-factor 8"),
        ("deepseek-v3", "--rotary-base 10000 --rotary-scaling-factor 40 --mscale 1 --mscale-all-dim 1"),
        ("qwen2.5-7b", "--rotary-base 1000000 --norm-epsilon 1e-06"),
        ("qwen2.5-72b", "--norm-epsilon 1e-05"),
    ],
)
def test_a_model_of_the_catalogue_leaves_only_paths_and_the_rate_to_fill_in(name, words):
    (plan,) = random_plans("megatron-lm", 1, seed=3, models=(name,), precisions=("bf16",))
    exported = export(plan, "megatron-lm")
    assert set(words.split()) <= set(exported.program)
    assert any(
        "add your own options: --data-path ..., --tokenizer-model ..., --lr ..., --train-iters ..." in one
        for one in exported.remarks
    )


def test_a_model_of_one_s_own_asks_for_the_base_of_its_rotation_and_the_epsilon_of_its_norms():
    own = model("llama3-8b").model_copy(update={"name": "mine"})
    asked = PlanRequest(model=own, gpus=8, reasons=False, framework="megatron-lm")
    wanted = "--rotary-base ..., --norm-epsilon ..."
    assert any(wanted in remark for remark in export(best(asked), "megatron-lm").remarks)


def test_constants_are_of_models_of_the_catalogue_and_say_what_was_read():
    known = known_constants()
    assert set(known) <= set(names())
    assert all(row["source"] for row in known.values())


@pytest.mark.parametrize("name", ["gemma-4-31b", "falcon-h1-0.5b", "llama4-scout"])
def test_a_model_is_not_given_the_constants_of_one_whose_name_begins_as_its_own(name):
    assert not model_constants(name)


def test_a_release_that_shares_another_s_sizes_is_told_apart():
    (plan,) = random_plans("megatron-lm", 1, seed=3, models=("llama3-8b",), precisions=("bf16",))
    assert any("3.1 and 3.3 also need --use-rope-scaling" in remark for remark in export(plan, "megatron-lm").remarks)


def test_parts_in_graphs_are_called_as_the_version_calls_them():
    changes = {"stack.cuda_graph_scope": ["attn"]}
    asked = best(PlanRequest(model="llama3-8b", gpus=8, reasons=False, changes=changes, framework="megatron-lm"))
    assert "--cuda-graph-modules" in export(asked, "megatron-lm").program
    assert "--cuda-graph-scope" in export(asked, "megatron-lm", version="0.17").program


@pytest.mark.parametrize(
    ("name", "lack"),
    [
        ("gpt-oss-20b", "(YaRN)"),
        ("olmo2-7b", "over all heads together"),
        ("mpt-7b", "positions of kind alibi"),
        ("bloom-7.1b", "positions of kind alibi"),
        ("mixtral-8x7b", None),
    ],
)
def test_what_megatron_s_arguments_cannot_say_of_a_model_is_said(name, lack):
    (plan,) = random_plans("megatron-lm", 1, seed=3, models=(name,), precisions=("bf16",))
    remarks = " ".join(export(plan, "megatron-lm").remarks)
    assert ("the model is not complete" in remarks) == (lack is not None)
    assert (lack or "") in remarks


def test_of_one_expert_a_token_scores_are_normalised_before_it_is_chosen():
    """Megatron-LM refuses to choose one expert first, whose softmax would have no gradient."""
    words = {name: export(best(PlanRequest(model=name, gpus=256, reasons=False)), "megatron-lm").program for name in (
        "llama4-scout", "mixtral-8x7b")}  # fmt: skip
    assert ["--moe-router-pre-softmax" in found for found in words.values()] == [True, False]
