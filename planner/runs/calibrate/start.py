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
from planner.request.resolve import resolve
from planner.runs.calibrate.records import Evidence, Log, Run
from planner.runs.probe.records import Probe

DEVICES: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    (r"GB300", ("gb300",), "gb300-nvl72"),
    (r"GB200", ("gb200",), "gb200-nvl72"),
    (r"GH200", ("gh200",), "gh200-slingshot"),
    (r"B300", ("b300",), "dgx-b300"),
    (r"B200", ("b200",), "dgx-b200"),
    (r"H200", ("h200-sxm",), "dgx-h200"),
    (r"H100 PCIe|H100 NVL", ("h100-pcie",), "dgx-h100"),
    (r"H100 .*HBM2e|H100 64GB|H100 96GB", ("h100-sxm-96gb-hbm2e",), "h100-96gb-hbm2e"),
    (r"H100", ("h100-sxm", "h100-sxm-96gb-hbm2e"), "dgx-h100"),
    (r"H800", ("h800-sxm",), "dgx-h800"),
    (r"H20\b", ("h20",), "dgx-h20"),
    (r"A800", ("a800-sxm-80gb",), "dgx-a800"),
    (r"A100-SXM4?-40GB", ("a100-sxm-40gb",), "dgx-a100-40gb"),
    (r"A100[- ]SXM", ("a100-sxm-80gb",), "dgx-a100-80gb"),
    (r"A100[- ]PCIe?-40GB", ("a100-pcie-40gb",), "a100-80gb-pcie"),
    (r"A100.*PCIe", ("a100-pcie-80gb",), "a100-80gb-pcie"),
    (r"V100-SXM3", ("v100-sxm3-32gb",), "v100-dgx2"),
    (r"V100-SXM2-32GB", ("v100-sxm2-32gb",), "v100-dgx1-edr"),
    (r"V100-SXM2", ("v100-sxm2-16gb",), "v100-dgx1-edr"),
    (r"L40S", ("l40s",), "l40s-pcie"),
    (r"MI250", ("mi250x",), "mi250x-frontier"),
    (r"MI300X", ("mi300x",), "mi300x-8x"),
    (r"MI325X", ("mi325x",), "mi325x-8x"),
    (r"MI355X", ("mi355x",), "mi355x-8x"),
    (r"\bT4\b", ("t4",), "t4-aws-g4dn"),
)
"""First match of a driver's name for a device to what it may be called in the catalogue, the usual one first, and a
cluster that stands for machines with it."""


def accelerators_of(device: str) -> tuple[str, ...]:
    """The catalogue's names for a device in its driver's words; none if it is not known."""
    return _known(device)[0]


def _known(device: str) -> tuple[tuple[str, ...], str]:
    return next(
        ((names, cluster) for pattern, names, cluster in DEVICES if re.search(pattern, device, re.IGNORECASE)), ((), "")
    )


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
    elif evidence.probes:
        found = _of_device(evidence.probes[0], notes)
    else:
        raise BadRequest("a table of products does not say its machine; name it: --cluster dgx-h100")
    if len(found.groups) > 1:
        names = ", ".join(group.name for group in found.groups)
        raise BadRequest(f"--cluster: {found.name} mixes {names}; calibrate one node group at a time")
    for log in evidence.logs:
        _check_device(log.file, log.line, log.device, found)
    for probe in evidence.probes:
        _check_device(probe.file, 1, probe.device, found)
        if not accelerators_of(probe.device):
            has = found.accelerator.name
            notes.append(f"{probe.device} is not in the catalogue: what the probe does not tell is that of {has}")
    return found


def _of_runs(runs: Sequence[Run], notes: list[str]) -> Cluster:
    """The one cluster that all runs describe; those that say nothing of their network take the others' word."""
    said: dict[tuple[object, ...], Cluster] = {}
    unsaid: dict[tuple[object, ...], Cluster] = {}
    for run in runs:
        if run.run.request is None:
            notes.append(f"{run.file}, run {run.id}: not used: {run.run.unpriced}")
            continue
        try:
            found = resolve(run.run.request).machines
        except MeshwrightError as error:
            notes.append(f"{run.file}, run {run.id}: not used: {error}")
            continue
        if len(found.groups) > 1:
            return found
        assumed = "request.cluster" in run.run.assumed
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


def _of_device(log: Log | Probe, notes: list[str]) -> Cluster:
    _, name = _known(log.device)
    if not name:
        raise BadRequest(f"{log.file}: no cluster is known with {log.device!r}; name one: --cluster dgx-h100")
    found = find_cluster(name)
    notes.append(f"machines of {found.name} for {log.device}, its network assumed")
    return found


def _check_device(file: str, line: int, device: str, cluster: Cluster) -> None:
    names = accelerators_of(device)
    if names and cluster.accelerator.name not in names:
        has = f"cluster {cluster.name} has {cluster.accelerator.name}"
        raise BadFile(file, f"line {line}: measured on {device}, {has}; give another --cluster")


def starting_stack(evidence: Evidence, named: str | None, notes: list[str]) -> Stack | None:
    """The stack that is named, else that of the runs; None without either.

    Raises:
        BadRequest: the runs are of several stacks.
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
        raise BadRequest("the runs do not say which stack they ran; name it: --stack megatron-core")
    if not names:
        return None
    name = names.pop()
    notes.append(f"stack {name}")
    return find_stack(name)


def _stack_of(run: Run) -> str:
    """The name of a run's stack, "" where it says none."""
    request = run.run.request
    if request is None or "stack" not in request.model_fields_set:
        return ""
    return request.stack if isinstance(request.stack, str) else request.stack.name
