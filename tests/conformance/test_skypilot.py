"""SkyPilot: exported tasks through its own schema."""

import pytest
import sky
import yaml

from planner.jobs.registry import export
from tests.conformance.plans import label, random_plans

FRAMEWORKS = ("megatron-lm", "torchtitan", "deepspeed", "accelerate")
PLANS = [plan for name in FRAMEWORKS for plan in random_plans(name, 52, seed=22, precisions=("bf16",))]


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_skypilot_understands_the_plan(plan):
    exported = export(plan, "skypilot")
    task = sky.Task.from_yaml_config(yaml.safe_load(exported.files["task.yaml"]))
    cluster = plan.request["cluster"]
    assert task.num_nodes == cluster["nodes"], label(plan)
    (resources,) = task.resources
    assert resources.accelerators == {"H100": cluster["gpus_per_node"]}
    assert "--node-rank" in task.run
    variables = export(plan, "torchrun").files["torchrun.sh"].count("export ")
    assert len(task.envs) == variables


def test_a_misspelt_field_is_refused():
    document = yaml.safe_load(export(PLANS[0], "skypilot").files["task.yaml"])
    document["num_node"] = document.pop("num_nodes")
    with pytest.raises(ValueError, match="num_node"):
        sky.Task.from_yaml_config(document)
