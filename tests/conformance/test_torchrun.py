"""torchrun: its own parser on the command of exported scripts."""

import shlex
import subprocess

import pytest
from torch.distributed.run import config_from_args, parse_args

from planner.jobs.registry import export
from tests.conformance.plans import random_plans

FRAMEWORKS = ("megatron-lm", "torchtitan", "deepspeed", "accelerate")
PLANS = [plan for name in FRAMEWORKS for plan in random_plans(name, 60, seed=2, precisions=("bf16",))]


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_torchrun_starts_every_rank_of_the_plan(plan, tmp_path):
    exported = export(plan, "torchrun")
    for name, text in exported.files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    words = started(tmp_path)
    config, _, program = config_from_args(parse_args(words[1:]))
    nodes, each = plan.request["cluster"]["nodes"], plan.request["cluster"]["gpus_per_node"]
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (nodes, nodes, each)
    assert nodes * each == plan.request["gpus"]
    assert (config.rdzv_backend, config.rdzv_configs["rank"]) == ("static", nodes - 1)
    assert config.rdzv_endpoint == "node-0:29500"
    assert program[-1] == "--mine"


def started(folder):
    """The words that the script runs as the last node."""
    shown = "#!/bin/bash\nprintf '%q ' torchrun \"$@\"\n"
    (folder / "torchrun").write_text(shown)
    (folder / "torchrun").chmod(0o755)
    text = (folder / "torchrun.sh").read_text(encoding="utf-8")
    nodes = text.split("--nnodes ")[1].split()[0]
    known = {"PATH": f"{folder}:/usr/bin:/bin", "NODE_RANK": str(int(nodes) - 1), "MASTER_ADDR": "node-0"}
    done = subprocess.run(
        ["bash", "torchrun.sh", "--mine"], cwd=folder, env=known, capture_output=True, text=True, check=True
    )
    return shlex.split(done.stdout)
