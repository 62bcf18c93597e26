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
from planner.runs.calibrate.records import Evidence, FileRun, Log
from planner.runs.case import Unpriceable
from planner.runs.probe.records import Probe
from planner.runs.schema import Run

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


def _known(device: str) -> tuple[tuple[str, ...], str]:
    """The catalogue's names for a device in its driver's words, and a cluster with it; none where it is not known."""
    found = ((names, cluster) for pattern, names, cluster in DEVICES if re.search(pattern, device, re.IGNORECASE))
    return next(found, ((), ""))


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
    elif evidence.logs or evidence.probes:
        devices: list[Log | Probe] = [*evidence.logs, *evidence.probes]
        first = devices[0]
        _, name = _known(first.device)
        if not name:
            raise BadRequest(f"{first.file}: no cluster is known with {first.device!r}; name one: --cluster dgx-h100")
        found = find_cluster(name)
        notes.append(f"machines of {found.name} for {first.device}, its network assumed")
    else:
        raise BadRequest("a table of products does not name its machine; give it: --cluster dgx-h100")
    if len(found.groups) > 1:
        names = ", ".join(group.name for group in found.groups)
        raise BadRequest(f"--cluster: {found.name} mixes {names}; calibrate one node group at a time")
    has = found.accelerator.name
    tests = [(log.file, f"line {log.line}: ", log.device) for log in evidence.logs]
    for file, where, device in (*tests, *((probe.file, "", probe.device) for probe in evidence.probes)):
        known, _ = _known(device)
        if known and has not in known:
            raise BadFile(
                file, f"{where}measured on {device}, but cluster {found.name} has {has}; give another --cluster"
            )
    notes += [
        f"{probe.device} is not in the catalogue: what the probe does not tell is that of {has}"
        for probe in evidence.probes
        if not _known(probe.device)[0]
    ]
    return found


def _of_runs(runs: Sequence[FileRun], notes: list[str]) -> Cluster:
    """The one cluster that all runs describe; those that say nothing of their network take the others' word."""
    said: dict[tuple[object, ...], Cluster] = {}
    unsaid: dict[tuple[object, ...], Cluster] = {}
    for file, run in runs:
        try:
            if run.request is None:
                raise Unpriceable(run.unpriced)
            found = resolve(run.request).machines
        except MeshwrightError as error:
            notes.append(f"{file}, run {run.id}: not used: {error}")
            continue
        if len(found.groups) > 1:
            return found
        assumed = "request.cluster" in run.assumed
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


def starting_stack(evidence: Evidence, named: str | None, notes: list[str]) -> Stack | None:
    """The stack that is named, else that of the runs; None without either.

    Raises:
        BadRequest: the runs are of several stacks.
        UnknownName, BadFile: there is no such stack.
    """
    if named is not None:
        return find_stack(named)
    names = {name for _, run in evidence.runs if (name := _stack_of(run))}
    if len(names) > 1:
        raise BadRequest(
            f"the runs are of the stacks {' and '.join(sorted(names))}; say which one: --stack {min(names)}"
        )
    if not names and evidence.runs:
        raise BadRequest("the runs do not say which stack they used; name it: --stack megatron-core")
    if not names:
        return None
    name = names.pop()
    notes.append(f"stack {name}")
    return find_stack(name)


def _stack_of(run: Run) -> str:
    """The name of a run's stack, "" where it says none."""
    request = run.request
    if request is None or "stack" not in request.model_fields_set:
        return ""
    return request.stack if isinstance(request.stack, str) else request.stack.name
