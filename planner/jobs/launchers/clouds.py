"""SkyPilot task YAML, and Ray: placement groups and the launch of one process a node."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final

from planner.jobs.job import Export, Job, refuse
from planner.jobs.launchers import shell
from planner.jobs.launchers.torchrun import PORT, program_files, program_words
from planner.jobs.options import present
from planner.jobs.values import data, template
from planner.jobs.yaml_text import yaml_text

_ACCELERATORS: Final[Mapping[str, str]] = data("launchers/skypilot")["accelerators"]
"""Names of SkyPilot's catalogue."""


def skypilot(job: Job, version: str, program: Export) -> Export:
    """A task of equal nodes."""
    kinds = [part.accelerator for part in job.nodes]
    several = f"asks for one kind of accelerator, but the plan has {' and '.join(kinds)}"
    refuse("skypilot", [(len(set(kinds)) > 1, several)])
    name = _ACCELERATORS.get(kinds[0], re.sub(r"-(sxm|pcie).*", "", kinds[0]).upper())
    address = '$(echo "$SKYPILOT_NODE_IPS" | head -n1)'
    run = (
        f'torchrun --nnodes "$SKYPILOT_NUM_NODES" --nproc-per-node "$SKYPILOT_NUM_GPUS_PER_NODE" \\\n'
        f'  --node-rank "$SKYPILOT_NODE_RANK" --master-addr "{address}" --master-port {PORT} \\\n'
        f"  {shlex.join(program_words(program))}\n"
    )
    resources = {"accelerators": f"{name}:{job.gpus_per_node}", "network_tier": "best"}
    envs = dict(program.environment) or None
    document = present(name=job.name, num_nodes=job.node_count, resources=resources, envs=envs, run=run)
    text = shell.commented(f"SkyPilot {version}", program.remarks, yaml_text(document))
    return Export(files={"task.yaml": text} | program_files(program), remarks=program.remarks)


def ray(job: Job, version: str, program: Export) -> Export:
    """A driver that reserves whole nodes and starts torchrun on each, as of Ray 2."""
    started = {"environment": repr(dict(program.environment)), "program": repr(list(program_words(program)))}
    size = {"nodes": job.node_count, "each": job.gpus_per_node}
    body = template("launchers/ray_launch.txt").format(**size, port=PORT, **started, name=job.name)
    text = shell.commented(f"Ray {version}", program.remarks, body)
    return Export(files={"ray_launch.py": text} | program_files(program), remarks=program.remarks)
