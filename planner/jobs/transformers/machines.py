"""How many GPUs a command line starts a training on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.jobs.options import Options
from planner.jobs.reader import Launch
from planner.jobs.transformers.arguments import Started, values_of, whole_of


def gpus_of(launch: Launch, start: Started, accelerate: Mapping[str, Any] | None) -> tuple[int | None, str]:
    """GPUs of a launch, None where nothing says them, and what was assumed for it.

    Args:
        launch: as the shell evaluated it, with the variables set for it.
        start: the same, taken apart.
        accelerate: the configuration of ``accelerate launch``, completed by its options.
    """
    if accelerate is not None and (count := whole_of(accelerate, "num_processes")):
        return count, ""
    nodes, each = getattr(launch, "nodes", None), getattr(launch, "processes_per_node", None)
    said = values_of(start.launcher, Options())
    nodes = nodes or whole_of(said, "nnodes", "num_nodes", "num_machines") or whole_of(launch.environment, "NNODES")
    each = each or whole_of(said, "nproc_per_node", "num_gpus") or _listed(str(said.get("include", "")))
    each = each or whole_of(launch.environment, "NPROC_PER_NODE") or _visible(launch.environment)
    if each:
        return each * (nodes or 1), ""
    if start.launcher and start.launcher[0].rpartition("/")[2] in {"python", "python3"} and "-m" not in start.launcher:
        return 1, "started without a launcher, so on one GPU; --gpus says otherwise"
    return None, ""


def _visible(environment: Mapping[str, str]) -> int | None:
    return _count(environment.get("CUDA_VISIBLE_DEVICES", ""))


def _listed(include: str) -> int | None:
    """GPUs of ``--include localhost:0,1``, of nodes behind ``@``."""
    counts = [_count(node.partition(":")[2]) for node in include.split("@") if node]
    return sum(count or 0 for count in counts) or None


def _count(listed: str) -> int | None:
    found = [one for one in listed.strip("'\"").split(",") if one.strip().isdecimal()]
    return len(found) or None
