"""From files to a calibration: links first, then products, then what a stack adds to both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from costmodels.stack.stack import Stack
from hardware.catalogue import cluster as find_cluster
from hardware.catalogue import names
from hardware.records import Cluster
from planner.errors import BadRequest
from planner.request.progress import Progress, Tell, ignore
from planner.request.values import file_names, name_or_path
from planner.runs.calibrate.document import Calibration
from planner.runs.calibrate.evidence import gather
from planner.runs.calibrate.links import fit_links
from planner.runs.calibrate.memory import fit_memory, kept
from planner.runs.calibrate.probe import fit_probe
from planner.runs.calibrate.products import fit_products
from planner.runs.calibrate.profile import profile
from planner.runs.calibrate.records import FileRun
from planner.runs.calibrate.runs import fit_runs, priced, uncorrected
from planner.runs.calibrate.start import starting_cluster, starting_stack
from planner.runs.calibrate.summary import Part


def calibrate(
    files: str | Path | Sequence[str | Path],
    *,
    runs: Sequence[FileRun] = (),
    cluster: str | Path | None = None,
    stack: str | Path | None = None,
    progress: Tell | None = None,
) -> Calibration:
    """Fit a cluster and a stack to one's own measurements.

    Args:
        files: training runs (JSON lines as `plan validate` reads them), output of nccl-tests, tables of timed
            products (CSV), answers of `plan probe`, in any mixture; recognized by their content.
        runs: those that were read already, such as those of logs.
        cluster: name or file to start from; None takes the machines that the evidence names.
        stack: likewise; without it and without runs no stack is fitted.
        progress: called with what is fitted, how many runs are done, and their median error, as a `Progress`.

    Raises:
        BadFile: a file that cannot be read as any of these; the message names the line.
        BadRequest: nothing, or several things, say which machines or stack to start from; or no run can be used.
        UnknownName: no such cluster or stack.
    """
    if not (files or runs):
        raise BadRequest("nothing to calibrate on; give files of runs, a probe, nccl-tests output or timed products")
    tell = progress or ignore
    files = [files] if isinstance(files, str | Path) else files
    evidence = gather(file_names("files", files) if files else (), runs)
    notes = list(evidence.notes)
    started = starting_cluster(evidence, name_or_path(cluster), notes)
    software = starting_stack(evidence, name_or_path(stack), notes)
    machines, parts = started, list[Part]()
    if evidence.logs:
        tell(Progress("fitting links to nccl-tests"))
        machines, links = fit_links(evidence.logs, machines)
        notes += links.notes
        parts.append(links)
    for probe in evidence.probes:
        tell(Progress("fitting the machine to its probe"))
        machines, probed = fit_probe(probe, machines)
        notes += probed.notes
        parts.append(probed)
    if evidence.products:
        tell(Progress("fitting the accelerator to timed products"))
        device, products = fit_products(evidence.products, machines.accelerator)
        group = machines.groups[0].model_copy(update={"accelerator": device})
        machines = machines.model_copy(update={"groups": (group,)})
        parts += products
    machines = _named(machines)
    if evidence.runs and software is not None:
        software, fitted = _runs(evidence.runs, machines, started, software, notes, tell)
        parts += fitted
    constants = tuple(one for part in parts for one in part.constants)
    warnings = tuple(line for part in parts for line in part.warnings)
    return Calibration(
        cluster=machines.name,
        stack=None if software is None else software.name,
        files=(*map(str, files), *(name for name, _ in runs)),
        constants=constants,
        runs=tuple(run for part in parts for run in part.runs),
        errors=tuple(one for part in parts for one in part.errors),
        warnings=warnings,
        notes=tuple(notes),
        measure_next=next((part.measure_next for part in parts if part.measure_next), ""),
        profile=profile(machines, software, constants, warnings),
    )


def _runs(
    given: Sequence[FileRun], machines: Cluster, started: Cluster, stack: Stack, notes: list[str], tell: Tell
) -> tuple[Stack, list[Part]]:
    """The stack fitted to the runs that can be used, by their times and by their memory.

    Raises:
        BadRequest: none can.
    """
    stack = uncorrected(stack)
    runs, unused = priced(given, machines, stack, tell)
    held, unread = kept(given, machines, stack)
    by_memory = {(one.file, one.run.id) for one in held}
    lines = [
        f"{file}, run {run.id}: {'used for its memory alone' if (file, run.id) in by_memory else 'not used'}: {why}"
        for (file, run), why in unused
    ]
    if not (runs or held):
        raise BadRequest(lines[0] + (f"; and {len(lines) - 1} more" if len(lines) > 1 else ""))
    notes += lines
    notes += unread
    parts = []
    if runs:
        before, _ = priced([(one.file, one.run) for one in runs], started, stack, tell)
        stack, part = fit_runs(runs, before, stack, tell)
        parts.append(part)
    if held:
        stack, part = fit_memory(held, stack)
        parts.append(part)
    return stack, parts


def _named(machines: Cluster) -> Cluster:
    """The cluster under a name of its own where the catalogue's of its name is another: answers tell of it by name."""
    name = machines.name
    if name not in names("cluster") or machines == find_cluster(name):
        return machines
    return machines.model_copy(update={"name": f"{name}-calibrated", "title": f"{name} as measured"})
