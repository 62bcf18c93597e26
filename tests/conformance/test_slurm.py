"""Slurm: exported scripts submitted to a controller, and what it understood of them."""

import re

import pytest

from planner.jobs.registry import export
from tests.conformance.plans import label, random_plans
from tests.conformance.slurm import controller, tool

PLANS = [plan for name in ("megatron-lm", "torchtitan", "deepspeed", "accelerate")
         for plan in random_plans(name, 55, seed=9, precisions=("bf16",))]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def slurm(tmp_path_factory):
    with controller(tmp_path_factory.mktemp("slurm")):
        yield


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_slurm_understands_the_plan(plan, tmp_path):
    exported = export(plan, "slurm")
    path = tmp_path / "job.sbatch"
    path.write_text(exported.files["job.sbatch"], encoding="utf-8")
    tried = tool("sbatch", "--test-only", str(path))
    assert tried.returncode == 0, tried.stderr + label(plan)
    submitted = tool("sbatch", "--hold", "--parsable", "--chdir", str(tmp_path), str(path))
    assert submitted.returncode == 0, submitted.stderr
    job = submitted.stdout.strip()
    shown = dict(re.findall(r"(\S+?)=(\S+)", tool("scontrol", "show", "job", job, "-o").stdout))
    tool("scancel", job)
    nodes = str(plan.request["cluster"]["nodes"])
    assert shown["NumNodes"] in {nodes, f"{nodes}-{nodes}"}
    assert shown["NumTasks"] == nodes
    assert shown["TresPerNode"] == f"gres:gpu:{plan.request['cluster']['gpus_per_node']}"
    assert shown["OverSubscribe"] == "NO"
    assert shown["JobName"].startswith(re.sub(r"[^a-z0-9]+", "-", plan.request["model"]["name"].lower()))


def test_more_nodes_than_there_are_are_refused(tmp_path):
    text = export(PLANS[0], "slurm").files["job.sbatch"]
    path = tmp_path / "job.sbatch"
    path.write_text(re.sub(r"--nodes=\d+", "--nodes=129", text))
    assert tool("sbatch", "--test-only", str(path)).returncode != 0


def test_an_option_of_a_later_slurm_is_refused_here(tmp_path):
    plan = next(plan for plan in PLANS if "--segment" in export(plan, "slurm", version="24.05").files["job.sbatch"])
    path = tmp_path / "job.sbatch"
    path.write_text(export(plan, "slurm", version="24.05").files["job.sbatch"])
    assert tool("sbatch", "--test-only", str(path)).returncode != 0
