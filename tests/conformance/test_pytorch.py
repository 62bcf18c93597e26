"""PyTorch: exported modules in a world of any size, with layers that hold no memory."""

import pytest
import torch
from torch.distributed.pipelining.schedules import get_schedule_class

from planner.jobs.registry import export
from planner.jobs.torchtitan.options import SCHEDULES
from tests.conformance.plans import DENSE, label, random_plans
from tests.conformance.test_torchtitan import _Stage
from tests.conformance.world import rank_of

PLANS = random_plans("pytorch", 220, seed=41, models=DENSE, precisions=("bf16", "fp16", "fp32"))


def module(plan):
    scope = {}
    exec(export(plan, "pytorch").files["torch_plan.py"], scope)  # noqa: S102 - the file that is tested
    return scope


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_pytorch_builds_the_plan(plan):
    at, scope, world = plan.strategy, module(plan), plan.request["gpus"]
    shared = at.sharding_degree if at.zero_stage else at.cp
    with rank_of(world - 1, world), torch.device("meta"):
        made = scope["mesh"]("cpu")
        assert made.size() == world, label(plan)
        assert (made["tp"].size(), made["cp"].size(), made["pp"].size()) == (at.tp, at.cp, at.pp)
        ranks = torch.distributed.get_process_group_ranks(made["tp"].get_group())
        assert ranks == list(range(world - at.tp, world))
        layers = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(2)))
        sharded = scope["shard"](layers, list(layers), made)
        local = [_local(weight) for weight in sharded.parameters()]
        whole = [weight.numel() for weight in sharded.parameters()]
        if at.zero_stage:
            assert made["states"].size() == shared
            assert local == [-(-count // shared) if count % shared == 0 else local[n] for n, count in enumerate(whole)]
        else:
            assert local == whole
    assert sum(scope["CHUNKS"]) == plan.request["model"]["num_layers"]
    assert len(scope["CHUNKS"]) == at.pp * at.vpp
    assert scope["MICRO_BATCHES"] * scope["MICRO_BATCH_SIZE"] * at.dp == at.global_batch_size
    if at.pp > 1:
        built = scope["schedule"]([_Stage(n, at) for n in range(at.vpp)], lambda *_: None)
        assert isinstance(built, get_schedule_class(SCHEDULES[at.schedule]))


def _local(weight):
    return weight.to_local().numel() if hasattr(weight, "to_local") else weight.numel()
