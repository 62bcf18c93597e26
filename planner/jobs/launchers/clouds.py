"""SkyPilot task YAML, and Ray: placement groups and the launch of one process a node."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final

from planner.jobs.job import Export, Job, Nodes, refuse
from planner.jobs.launchers import shell
from planner.jobs.launchers.torchrun import PORT, program_files, program_words
from planner.jobs.options import present
from planner.jobs.yaml_text import yaml_text

_ACCELERATORS: Final[Mapping[str, str]] = {
    "a100-sxm-40gb": "A100",
    "a100-sxm-80gb": "A100-80GB",
    "h100-sxm": "H100",
    "h200-sxm": "H200",
    "b200": "B200",
    "gb200": "GB200",
    "v100-sxm2-16gb": "V100",
    "v100-sxm2-32gb": "V100-32GB",
    "l4": "L4",
    "l40s": "L40S",
    "t4": "T4",
}
"""Names of SkyPilot's catalogue."""


def skypilot(job: Job, version: str, program: Export) -> Export:
    """A task of equal nodes.

    Raises:
        Inexpressible: nodes of several kinds, which a task cannot ask for.
    """
    kinds = [part.accelerator for part in job.nodes]
    refuse(
        "skypilot", [(len(set(kinds)) > 1, f"asks for one kind of accelerator, but the plan has {' and '.join(kinds)}")]
    )
    address = '$(echo "$SKYPILOT_NODE_IPS" | head -n1)'
    run = (
        f'torchrun --nnodes "$SKYPILOT_NUM_NODES" --nproc-per-node "$SKYPILOT_NUM_GPUS_PER_NODE" \\\n'
        f'  --node-rank "$SKYPILOT_NODE_RANK" --master-addr "{address}" --master-port {PORT} \\\n'
        f"  {shlex.join(program_words(program))}\n"
    )
    resources = {"accelerators": f"{_sky_name(job.nodes[0])}:{job.gpus_per_node}", "network_tier": "best"}
    envs = dict(program.environment) or None
    document = present(name=job.name, num_nodes=job.node_count, resources=resources, envs=envs, run=run)
    text = shell.commented(f"SkyPilot {version}", program.remarks, yaml_text(document))
    return Export(files={"task.yaml": text} | program_files(program), remarks=program.remarks)


def _sky_name(nodes: Nodes) -> str:
    return _ACCELERATORS.get(nodes.accelerator, re.sub(r"-(sxm|pcie).*", "", nodes.accelerator).upper())


_RAY = '''
import os
import subprocess

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

NODES = {nodes}
GPUS_PER_NODE = {each}
PORT = {port}
ENVIRONMENT = {environment}
PROGRAM = {program}


def group():
    """One bundle a node: of bundles of one GPU, Ray does not say which share a node."""
    bundles = [{{"GPU": GPUS_PER_NODE, "CPU": 1}} for _ in range(NODES)]
    return placement_group(bundles, strategy="STRICT_SPREAD", name={name!r})


@ray.remote(num_cpus=1, num_gpus=GPUS_PER_NODE)
class Node:
    """The launcher of one node."""

    def address(self):
        return ray.util.get_node_ip_address()

    def run(self, rank, address, more):
        words = ["torchrun", "--nnodes", str(NODES), "--nproc-per-node", str(GPUS_PER_NODE), "--node-rank", str(rank)]
        words += ["--master-addr", address, "--master-port", str(PORT), *PROGRAM, *more]
        return subprocess.run(words, env=os.environ | ENVIRONMENT, check=True).returncode


def launch(more=()):
    """Start every node, neighbours by address, and wait for all."""
    placed = group()
    ray.get(placed.ready())
    placements = [PlacementGroupSchedulingStrategy(placed, placement_group_bundle_index=n) for n in range(NODES)]
    nodes = [Node.options(scheduling_strategy=one).remote() for one in placements]
    turn = sorted(zip(ray.get([node.address.remote() for node in nodes]), nodes), key=lambda pair: _key(pair[0]))
    return ray.get([node.run.remote(rank, turn[0][0], list(more)) for rank, (_, node) in enumerate(turn)])


def _key(address):
    return [int(part) if part.isdigit() else 0 for part in address.split(".")]


if __name__ == "__main__":
    import sys

    ray.init()
    launch(sys.argv[1:])
'''


def ray(job: Job, version: str, program: Export) -> Export:
    """A driver that reserves whole nodes and starts torchrun on each, as of Ray 2."""
    body = _RAY.format(
        nodes=job.node_count,
        each=job.gpus_per_node,
        port=PORT,
        environment=repr(dict(program.environment)),
        program=repr(list(program_words(program))),
        name=job.name,
    )
    text = shell.commented(f"Ray {version}", program.remarks, body)
    return Export(files={"ray_launch.py": text} | program_files(program), remarks=program.remarks)
