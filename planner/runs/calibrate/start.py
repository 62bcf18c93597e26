"""Where a calibration starts: the cluster and the stack that are named, or those that the evidence names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from costmodels.stack.stack import Stack
from costmodels.stack.stack import stack as find_stack
from hardware.catalogue import cluster as find_cluster
from hardware.errors import BadFile
from hardware.records import Cluster
from planner.errors import BadRequest, MeshwrightError
from planner.runs.calibrate.records import Evidence, Log, Run
from planner.runs.words.machines import CLUSTERS, machines
from planner.runs.words.stack_words import stack_of

DEVICES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (r"GB300", ("gb300",)),
    (r"GB200", ("gb200",)),
    (r"GH200", ("gh200",)),
    (r"B300", ("b300",)),
    (r"B200", ("b200",)),
    (r"H200", ("h200-sxm",)),
    (r"H100 PCIe|H100 NVL", ("h100-pcie",)),
    (r"H100 .*HBM2e|H100 64GB|H100 96GB", ("h100-sxm-96gb-hbm2e",)),
    (r"H100", ("h100-sxm", "h100-sxm-96gb-hbm2e")),
    (r"H800", ("h800-sxm",)),
    (r"H20\b", ("h20",)),
    (r"A800", ("a800-sxm-80gb",)),
    (r"A100-SXM4?-40GB", ("a100-sxm-40gb",)),
    (r"A100[- ]SXM", ("a100-sxm-80gb",)),
    (r"A100[- ]PCIe?-40GB", ("a100-pcie-40gb",)),
    (r"A100.*PCIe", ("a100-pcie-80gb",)),
    (r"V100-SXM3", ("v100-sxm3-32gb",)),
    (r"V100-SXM2-32GB", ("v100-sxm2-32gb",)),
    (r"V100-SXM2", ("v100-sxm2-16gb",)),
    (r"L40S", ("l40s",)),
    (r"MI250", ("mi250x",)),
    (r"MI300X", ("mi300x",)),
    (r"MI325X", ("mi325x",)),
    (r"MI355X", ("mi355x",)),
    (r"\bT4\b", ("t4",)),
)
"""First match of a driver's name for a device to what it may be called in the catalogue, the usual one first."""


def accelerators_of(device: str) -> tuple[str, ...]:
    """The catalogue's names for a device in its driver's words; none if it is not known."""
    return next((names for pattern, names in DEVICES if re.search(pattern, device, re.IGNORECASE)), ())


def starting_cluster(evidence: Evidence, named: str | None, notes: list[str]) -> Cluster:
    """The cluster that is named, else that of the runs, else that of the tests' devices.

    Raises:
        BadRequest: nothing says which, two things say so differently, or several node groups.
        UnknownName, BadFile: there is no such cluster.
    """
    if named is not None:
        found = find_cluster(named)
    elif evidence.runs:
        found = _of_runs(evidence.runs, notes)
    elif evidence.logs:
        found = _of_device(evidence.logs[0], notes)
    else:
        raise BadRequest("a table of products does not say its machine; name it: --cluster dgx-h100")
    if len(found.groups) > 1:
        names = ", ".join(group.name for group in found.groups)
        raise BadRequest(f"--cluster: {found.name} mixes {names}; calibrate one node group at a time")
    for log in evidence.logs:
        _check_device(log, found)
    return found


def _of_runs(runs: Sequence[Run], notes: list[str]) -> Cluster:
    """The one cluster that all runs describe; those that say nothing of their network take the others' word."""
    said: dict[tuple[object, ...], Cluster] = {}
    unsaid: dict[tuple[object, ...], Cluster] = {}
    for run in runs:
        assumed: list[str] = []
        try:
            found = machines(run.row, assumed)
        except (MeshwrightError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            notes.append(f"{run.file}, run {run.id}: its machines are not known: {error}")
            continue
        key = (found.accelerator.name, found.groups[0].gpus_per_node)
        (unsaid if assumed else said)[*key, "" if assumed else found.groups[0].tiers] = found
    if not said and not unsaid:
        raise BadRequest(f"{notes[-1]}; name the cluster: --cluster dgx-h100")
    kinds = {f"{key[1]} x {key[0]}" for key in (*said, *unsaid)}
    if len(kinds) > 1:
        raise BadRequest(f"the runs are on nodes of {' and '.join(sorted(kinds))}; calibrate one kind at a time")
    if len(said) > 1:
        lanes = sorted({f"{8e-9 * one.groups[0].tiers[-1].link.bandwidth:g} Gb/s" for one in said.values()})
        raise BadRequest(f"the runs name {len(said)} networks ({', '.join(lanes)} a device); say which: --cluster FILE")
    found = next(iter({**said, **unsaid}.values()))
    notes.append(f"machines of {found.name}, " + ("the network as the runs say" if said else "its network assumed"))
    return found


def _of_device(log: Log, notes: list[str]) -> Cluster:
    names = accelerators_of(log.device)
    if not names or names[0] not in CLUSTERS:
        raise BadRequest(f"{log.file}: no cluster is known with {log.device!r}; name one: --cluster dgx-h100")
    found = find_cluster(CLUSTERS[names[0]])
    notes.append(f"machines of {found.name} for {log.device}, its network assumed")
    return found


def _check_device(log: Log, cluster: Cluster) -> None:
    names = accelerators_of(log.device)
    if names and cluster.accelerator.name not in names:
        has = f"cluster {cluster.name} has {cluster.accelerator.name}"
        raise BadFile(log.file, f"line {log.line}: measured on {log.device}, {has}; give another --cluster")


def starting_stack(evidence: Evidence, named: str | None, notes: list[str]) -> Stack | None:
    """The stack that is named, else that of the runs' framework; None without either.

    Raises:
        BadRequest: the runs are of several frameworks.
        UnknownName, BadFile: there is no such stack.
    """
    if named is not None:
        return find_stack(named)
    names = {name for run in evidence.runs if (name := _stack_of(run))}
    if len(names) > 1:
        raise BadRequest(
            f"the runs are of the stacks {' and '.join(sorted(names))}; say which one: --stack {min(names)}"
        )
    if not names and evidence.runs:
        raise BadRequest("the runs do not say which framework they ran; name it: --stack megatron-core")
    if not names:
        return None
    name = names.pop()
    notes.append(f"stack {name}")
    return find_stack(name)


def _stack_of(run: Run) -> str:
    """The name of a run's stack, "" where its row says nothing that can be read."""
    try:
        return stack_of(run.row)
    except (ValueError, TypeError, LookupError, AttributeError):
        return ""
