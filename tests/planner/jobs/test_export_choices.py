"""No two plans that are priced apart are written alike: every choice is in the files, in a remark, or refused.

A field of a strategy or of a request that is in none of the tables here fails the test, and so does a target that drops
a value of one that is.
"""

from functools import cache
from itertools import combinations

import pytest

from costmodels.stack.finetune import TASKS
from costmodels.stack.optimizers import OPTIMIZERS
from costmodels.stack.precision import PRECISIONS
from costmodels.stack.stack import stack_names
from planner.answer.plan import Strategy
from planner.frameworks.registry import FRAMEWORKS
from planner.jobs.job import Inexpressible
from planner.jobs.registry import TARGETS, export
from planner.request.fields import STACK_CHOICES
from planner.request.request import PlanRequest
from tests.conformance.plans import random_plans
from tests.each import each

GPUS, BATCH = 16, 64
DENSE, SPARSE = "llama3-8b", "mixtral-8x7b"
STAGE = {"megatron-lm": 1, "megatron-bridge": 1, "deepspeed": 1, "torchtitan": 3, "accelerate": 3, "pytorch": 3,
         "paddle": 1, "nanotron": 1, "maxtext": 1}  # fmt: skip
"""The ZeRO stage that each framework has for all its shards."""
WRITTEN = [(name, version) for name, one in TARGETS.items() if name in FRAMEWORKS for version in one.versions]
LAUNCHERS = [name for name, one in TARGETS.items() if one.start]

HOST = [{"offload": kind} for kind in ("none", "activations", "optimizer", "optimizer+parameters")]
PIPELINES = ["1f1b", "gpipe", "interleaved-1f1b", "interleaved-groups", "breadth-first", "zb-1p", "zb-v", "dualpipe-v"]
STRATEGIES = {
    "tp": [{"tp": 1}, {"tp": 2}, {"tp": 4}],
    "cp": [{"cp": 1}, *({"cp": 2, "cp_kind": kind} for kind in ("p2p", "a2a", "all-gather"))],
    "cp_kind": [{"cp": 4, "cp_kind": kind} for kind in ("p2p", "a2a", "all-gather", "a2a+p2p")],
    "cp_near": [{"cp": 8, "cp_kind": "a2a+p2p", "cp_near": near} for near in (2, 4)],
    "pp": [{"pp": 1}, {"pp": 2, "schedule": "1f1b"}, {"pp": 2, "schedule": "gpipe"}, {"pp": 4, "schedule": "1f1b"}],
    "vpp": [{"pp": 2, "vpp": chunks, "schedule": "interleaved-1f1b"} for chunks in (2, 4, 8)],
    "schedule": [
        *({"pp": 2, "schedule": name} for name in PIPELINES[:2]),
        *({"pp": 2, "vpp": 2, "schedule": name} for name in PIPELINES[2:]),
    ],
    "ep": [{"model": SPARSE, "ep": ranks} for ranks in (1, 2, 4)],
    "etp": [{"model": SPARSE, "tp": 2, "sequence_parallel": True, "etp": ranks} for ranks in (1, 2)],
    "zero_stage": [{"zero_stage": stage} for stage in range(4)],
    "sharding_degree": [{"sharding_degree": ranks} for ranks in (2, 4, 16)],
    "micro_batch_size": [{"micro_batch_size": size} for size in (1, 2, 4)],
    "sequence_parallel": [{"tp": 2, "sequence_parallel": split} for split in (False, True)],
    "recompute": [{"recompute": kind} for kind in ("none", "selective", "full")],
    "recompute_modules": [
        {"recompute": "selective", "recompute_modules": kinds} for kinds in ((), ("mlp",), ("core_attn", "mlp"))
    ],
    "recompute_num_layers": [
        {"recompute": "full", "pp": 2, "schedule": "1f1b", "recompute_num_layers": layers} for layers in (1, 2, 4)
    ],
    "rank_order": [
        {"pp": 2, "schedule": "1f1b", "sharding_degree": 4, "rank_order": order}
        for order in ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-cp-ep-sharding-pp-dp")
    ],
    "offload": HOST,
    "vocabulary": [{"pp": 2, "schedule": "1f1b", "vocabulary": where} for where in ("ends", "spread")],
    "stages": [{"pp": 2, "schedule": "1f1b", "layers": held} for held in ((16, 16), (15, 17), (17, 15))],
}
"""Values of every field of a strategy, each with what it takes to have them."""
FOLLOW = {"dp", "num_microbatches", "global_batch_size"}
"""Fields of a strategy that the others, the GPUs and the batch make up."""

REQUESTS = {
    "base_precision": [{"adapters": "16"} | ({"base_precision": name} if name else {}) for name in ("", "nf4", "int8")],
    "task": [{"task": name} for name in TASKS if name != "finetune"],
    "reference_model": [{"task": "dpo", "reference_model": name} for name in ("none", "copy")],
    "document_length": [{"document_length": tokens} for tokens in (256, 512)],
    "frozen_layers": [{"frozen_layers": layers} for layers in (1, 2)],
    "frozen_embeddings": [{"frozen_embeddings": frozen} for frozen in (False, True)],
    "images_per_sample": [{"images_per_sample": images} for images in (1, 2)],
    "image_tokens": [{"image_tokens": tokens} for tokens in (256, 512)],
    "train_tower": [{"train_tower": trains} for trains in (False, True)],
    "precision": [{"precision": name} for name in PRECISIONS],
    "optimizer": [{"optimizer": name} for name in OPTIMIZERS],
    "main_grads": [{"main_grads": name} for name in ("fp32", "bf16")],
    "main_params": [{"main_params": name} for name in ("fp32", "fp16")],
    "fp8_param_gather": [
        {"precision": name, "fp8_param_gather": kept}
        for name in ("fp8", "fp8-current", "fp8-rowwise", "mxfp8", "nvfp4")
        for kept in (False, True)
    ],
    "loss": [{"loss": name} for name in ("plain", "fused")],
    "loss_block": [{"loss_block": tokens} for tokens in (None, 512, 1024)],
    "offload_fraction": [
        {"offload": kind, "offload_fraction": share}
        for kind in ("optimizer", "optimizer+parameters")
        for share in (0.25, 0.5, 1.0)
    ],
    "adapters": [{"adapters": which} for which in (None, "8:linear_qkv", "16:linear_qkv")],
    "expert_capacity": [{"model": SPARSE, "expert_capacity": factor} for factor in (None, 1.0, 1.5)],
    "seq_length": [{"seq_length": tokens} for tokens in (2048, 4096)],
    "global_batch_size": [{"global_batch_size": sequences} for sequences in (64, 128)],
    "changes": [{"changes": made} for made in ({}, {"stack.overlap.pp": 0.1}, {"stack.dropout": True})],
    "stack": [{"stack": name} for name in stack_names()],
}
"""Values of every field of a request that changes the price of a run."""
BESIDE = {
    *("model", "gpus", "as_of", "cluster", "framework", "pins"),  # what the job is, and which strategies it may have
    *("layers_per_stage", "recomputed_per_stage"),  # the same, of one that is given
    *("tokens", "memory_margin", "expert_imbalance", "stability", "price"),  # what is expected of the run
    *("objective", "ties", "reasons", "top", "time_limit"),  # what is asked about it
    "as_of",  # which release the stack is, whose name says it afterwards
}
STACK_ALIKE = {
    "megatron-lm": {"nemo", "nemo-26.06", "megatron-core"},
    "megatron-bridge": {"nemo", "nemo-26.06"},
    "accelerate": {"transformers"},
}
"""Stacks that Megatron-LM's arguments tell apart only by what a strategy makes use of."""


@cache
def base(name):
    (plan,) = random_plans("megatron-lm", 1, seed=3, models=(name,), precisions=("bf16",))
    return plan


PLANNED = {}


def planned(framework, changes, *, zero_stage=None):
    """A plan for a framework, as it answers a request with these choices and this strategy; made once for all."""
    key = (framework, repr(changes), zero_stage)
    if key not in PLANNED:
        PLANNED[key] = _planned(framework, dict(changes), zero_stage)
    return PLANNED[key]


def _planned(framework, given, zero_stage):
    plan = base(given.pop("model", DENSE))
    own = {name: given.pop(name) for name in list(given) if name in {*PlanRequest.model_fields} - {"pins"}}
    batch = own.get("global_batch_size", BATCH)
    nodes = {**plan.request["cluster"], "nodes": GPUS // plan.request["cluster"]["gpus_per_node"]}
    asked = {"stack": FRAMEWORKS[framework].stack, "framework": framework, "gpus": GPUS, "cluster": nodes}
    asked |= {"global_batch_size": batch, "precision": "bf16"} | {k: v for k, v in own.items() if v is not None}
    stage = STAGE[framework] if zero_stage is None else zero_stage
    strategy = strategy_of(plan, batch, {"zero_stage": stage} | given)
    return plan.model_copy(update={"request": plan.request | asked, "strategy": strategy})


def strategy_of(plan, batch, given):
    degrees = {"tp": 1, "cp": 1, "pp": 1, "ep": 1, "vpp": 1, "micro_batch_size": 1} | given
    tp, cp, pp = (degrees[name] for name in ("tp", "cp", "pp"))
    dp = GPUS // (tp * cp * pp)
    even = (plan.request["model"]["num_layers"] // pp,) * pp
    held, again = degrees.pop("layers", even), given.get("recompute") == "full"
    stages = [{"layers": n, "recompute_layers": n * again, "group": "nodes"} for n in held]
    usual = {
        "cp_kind": "p2p", "cp_near": 1, "dp": dp, "etp": tp if plan.request["model"].get("moe") else 1,
        "sharding_degree": dp * cp, "schedule": "none", "sequence_parallel": False,
        "num_microbatches": batch // (dp * degrees["micro_batch_size"]), "global_batch_size": batch,
        "recompute": "none", "rank_order": "tp-cp-ep-dp-pp",
    }  # fmt: skip
    alone = {} if degrees["zero_stage"] else {"sharding_degree": 1}
    return Strategy.model_validate(usual | degrees | alone | {"stages": stages})


def outcome(plan, target, version=None):
    """All that a reader gets, or None where the target refuses the plan."""
    try:
        made = export(plan, target, version=version)
    except Inexpressible:
        return None
    return dict(made.files), made.program, dict(made.environment), made.remarks


def check(values, target, version=None, *, framework=None, zero_stage=None):
    plans = [planned(framework or target, value, zero_stage=zero_stage) for value in values]
    taken = [
        (value, made) for value, plan in zip(values, plans, strict=True) if (made := outcome(plan, target, version))
    ]
    for (one, first), (other, second) in combinations(taken, 2):
        assert first != second, f"{target} {version} writes {one} and {other} alike"


def test_no_field_of_a_plan_is_forgotten():
    assert set(STRATEGIES) | FOLLOW == set(Strategy.model_fields)
    assert not set(STRATEGIES) & FOLLOW
    assert set(REQUESTS) | BESIDE == set(PlanRequest.model_fields)
    assert not set(REQUESTS) & BESIDE
    assert set(STACK_CHOICES) <= set(REQUESTS)
    assert set(STAGE) == set(FRAMEWORKS)


@each(("target", "version"), WRITTEN)
def test_every_framework_takes_the_plainest_plan(target, version):
    assert outcome(planned(target, {}), target, version) is not None


@pytest.mark.parametrize(("target", "version"), WRITTEN)
def test_strategies_that_differ_are_written_apart_or_refused(target, version):
    for axis, values in STRATEGIES.items():
        for stage in {STAGE[target]} if axis == "sharding_degree" else {0, STAGE[target]}:
            check(values, target, version, zero_stage=None if axis == "zero_stage" else stage)


@each("axis", STRATEGIES)
def test_every_axis_is_taken_by_a_framework_in_several_values(axis):
    plans = {name: [planned(name, value) for value in STRATEGIES[axis]] for name in FRAMEWORKS}
    taken = {name: sum(outcome(plan, name) is not None for plan in many) for name, many in plans.items()}
    assert max(taken.values()) > 1 or axis == "vocabulary"


@pytest.mark.parametrize(("target", "version"), WRITTEN)
def test_choices_that_differ_are_written_apart_or_refused(target, version):
    for choice in REQUESTS.keys() - {"stack"}:
        check(REQUESTS[choice], target, version)


@pytest.mark.parametrize(("target", "version"), WRITTEN)
def test_a_stack_that_is_another_frameworks_is_named(target, version):
    own = outcome(planned(target, {}), target, version)
    for value in REQUESTS["stack"]:
        made = outcome(planned(target, value), target, version)
        name = value["stack"]
        if made and name != FRAMEWORKS[target].stack and name not in STACK_ALIKE.get(target, ()):
            assert made != own, name
            assert any(f"priced for stack {name}" in remark for remark in made[-1])


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_keeps_apart_what_its_framework_does(launcher):
    """A few frameworks for each choice, such that of launchers, frameworks and choices any two meet."""
    carried = [values for name, values in REQUESTS.items() if name not in {"stack", "fp8_param_gather"}]
    for turn, values in enumerate([*STRATEGIES.values(), *carried], LAUNCHERS.index(launcher)):
        for framework in list(FRAMEWORKS)[turn % 5 :: 5]:
            check(values, launcher, framework=framework)
