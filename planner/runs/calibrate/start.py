"""Where a calibration starts: the cluster and the stack that are named, or those that the evidence names."""

from __future__ import annotations

from collections.abc import Sequence

from costmodels.stack.stack import Stack
from costmodels.stack.stack import stack as find_stack
from hardware.catalogue import cluster as find_cluster
from hardware.errors import BadFile, UnknownName
from hardware.files import Kind, canonical
from hardware.records import Cluster
from planner.errors import BadRequest, MeshwrightError
from planner.request.resolve import resolve
from planner.runs.calibrate.records import Evidence, FileRun, Log
from planner.runs.case import Unpriceable
from planner.runs.probe.records import Probe
from planner.runs.schema import Run


def _catalogued(kind: Kind, device: str) -> str:
    """The catalogue's name for a device in its driver's words, or for a cluster with it; empty where it has none.

    Drivers say no more than the start of some names: "NVIDIA H100" may be ``h100-sxm-96gb-hbm2e`` too.
    """
    try:
        return canonical(kind, device)
    except UnknownName:
        return ""


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
        name = _catalogued("cluster", first.device)
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
        known = _catalogued("accelerator", device)
        if known and not f"{has}-".startswith(f"{known}-"):
            whose = f"cluster {found.name} has {has}; give another --cluster"
            if named is None:
                whose = f"other files are of {found.name}, which has {has}; calibrate one kind of machine at a time"
            raise BadFile(file, f"{where}measured on {device}, but {whose}")
    notes += [
        f"{probe.device} is not in the catalogue: what the probe does not tell is that of {has}"
        for probe in evidence.probes
        if not _catalogued("accelerator", probe.device)
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
