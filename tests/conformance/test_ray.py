"""Ray: exported drivers on a simulated cluster of nodes that have devices only in name."""

import os
import re
import stat

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group_table, remove_placement_group

from planner.jobs.registry import export
from tests.conformance.plans import label, random_plans

FRAMEWORKS = ("megatron-lm", "torchtitan", "deepspeed", "accelerate")
PLANS = [plan for name in FRAMEWORKS for plan in random_plans(name, 55, seed=23, precisions=("bf16",))]
NODES = next(nodes for nodes in (4, 3, 2) if any(plan.request["cluster"]["nodes"] == nodes for plan in PLANS))


@pytest.fixture(scope="module")
def cluster():
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 8})
    for _ in range(NODES - 1):
        made.add_node(num_cpus=2, num_gpus=8)
    ray.init(address=made.address)
    yield made
    ray.shutdown()
    made.shutdown()


def driver(plan):
    scope = {"__name__": "driver"}
    exec(export(plan, "ray").files["ray_launch.py"], scope)  # noqa: S102 - the file that is tested
    return scope


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_a_driver_knows_the_machines_and_the_program(plan):
    scope, cluster = driver(plan), plan.request["cluster"]
    assert (scope["NODES"], scope["GPUS_PER_NODE"]) == (cluster["nodes"], cluster["gpus_per_node"]), label(plan)
    script = export(plan, "torchrun").files["torchrun.sh"]
    assert all(word in script for word in scope["PROGRAM"][:1])
    exported = dict(re.findall(r"^export (\w+)=(\S+)$", script, re.MULTILINE))
    assert scope["ENVIRONMENT"] == exported


SMALL = [plan for plan in PLANS if plan.request["cluster"]["nodes"] <= NODES][:6]


@pytest.mark.parametrize("plan", SMALL, ids=range(len(SMALL)))
@pytest.mark.usefixtures("cluster")
def test_bundles_are_whole_nodes(plan):
    scope = driver(plan)
    placed = scope["group"]()
    ray.get(placed.ready(), timeout=60)
    table = placement_group_table(placed)
    assert len(set(table["bundles_to_node_id"].values())) == plan.request["cluster"]["nodes"]
    assert all(bundle["GPU"] == 8 for bundle in table["bundles"].values())
    remove_placement_group(placed)


@pytest.mark.usefixtures("cluster")
def test_every_node_starts_one_launcher_with_a_rank_of_its_own(tmp_path):
    plan = next(plan for plan in PLANS if plan.request["cluster"]["nodes"] == NODES)
    fake = tmp_path / "torchrun"
    fake.write_text(f'#!/bin/bash\necho "$@" > {tmp_path}/rank-$6.txt\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    scope = driver(plan)
    scope["ENVIRONMENT"]["PATH"] = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    assert scope["launch"](["--mine"]) == [0] * NODES
    started = {path.name: path.read_text().split() for path in tmp_path.glob("rank-*.txt")}
    assert sorted(started) == [f"rank-{rank}.txt" for rank in range(NODES)]
    assert all(words[-1] == "--mine" and words[1:4:2] == [str(NODES), "8"] for words in started.values())
