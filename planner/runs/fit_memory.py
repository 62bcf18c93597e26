"""Fit what allocators take beside what they hand out, on measured peaks of devices or of what they took of them.

Peaks that a framework reports of its own allocator test the memory model itself and fit nothing. What a device
shows beyond them is the allocator's cache, which differs between frameworks: one constant a stack. Where enough runs
with tensor parallelism ran out of memory, what fragments take of them is fitted to who did.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from costmodels.pricing import price_strategy
from hardware.errors import MeshwrightError
from planner.runs.case import case_of
from planner.runs.files import read_runs
from planner.runs.fit import STACKS, set_fields
from planner.runs.judge import stages_read
from planner.runs.schema import Run

FEWEST = 10
"""Runs without which a stack keeps its own."""
LOW, HIGH = 0.02, 0.5
FAILED = 50
"""Runs with tensor parallelism that ran out of memory without which a stack keeps its slack."""


def caches(paths: Iterable[Path]) -> dict[str, tuple[float, int]]:
    """The cache of every stack with enough measured devices, and how many there were."""
    found: dict[str, list[float]] = defaultdict(list)
    for path in paths:
        for run in read_runs(path):
            if (one := _cache(run)) is not None:
                found[one[0]].append(one[1])
    return {
        name: (float(np.clip(np.median(values), LOW, HIGH)), len(values))
        for name, values in found.items()
        if len(values) >= FEWEST
    }


def tensor_slacks(paths: Iterable[Path]) -> dict[str, tuple[float, int]]:
    """The slack under tensor parallelism that gets most verdicts right, of stacks with enough runs that failed.

    The least of the best, in hundredths, and how many runs it rests on.
    """
    found: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for path in paths:
        for run in read_runs(path):
            if (one := _room(run)) is not None:
                found[one[0]].append(one[1:])
    grid = np.arange(LOW, HIGH, 0.01)
    chosen = {}
    for name, runs in found.items():
        room, failed = np.array([one[0] for one in runs]), np.array([one[1] for one in runs])
        if failed.sum() >= FAILED:
            right = ((room[:, None] < grid) == failed[:, None]).sum(axis=0)
            chosen[name] = float(grid[int(np.argmax(right))]), len(runs)
    return chosen


def _room(run: Run) -> tuple[str, float, bool] | None:
    """The stack, what the device has over what is allocated, less one, and whether the run failed."""
    failed = run.measured.out_of_memory
    if not run.scored or run.held_back or not (failed or run.measured.iteration_seconds):
        return None
    try:
        found = case_of(run)
    except MeshwrightError:
        return None
    if found.rows.tp[0] == 1:
        return None
    stack, usable = found.scenario.stack, found.scenario.group.accelerator.usable_memory
    peak = float(np.max(price_strategy(found.rows, found.scenario, found.assignment).footprint.allocated))
    return stack.name, (usable - stack.allocator.reserved) / peak - 1.0, bool(failed)


def _cache(run: Run) -> tuple[str, float] | None:
    measured = run.measured.peak_memory
    if measured is None or measured.kind == "allocated" or not run.scored or run.held_back:
        return None
    try:
        found = case_of(run)
    except MeshwrightError:
        return None
    stack = found.scenario.stack
    peak = price_strategy(found.rows, found.scenario, found.assignment).footprint
    outside, stages = stack.allocator.reserved if measured.kind == "device" else 0.0, stages_read(run)
    reclaimable = float(np.max(peak.reclaimable[stages]))
    return stack.name, (measured.bytes - outside - reclaimable) / float(np.max(peak.allocated[stages])) - 1.0


def main() -> None:
    """Command line: files in, constants out."""
    parser = argparse.ArgumentParser(description="Fit the allocator's cache of stacks on measured devices.")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="put the constants into the catalogue")
    given = parser.parse_args()
    for name, (value, runs) in sorted(caches(given.runs).items()):
        if given.write:
            set_fields(STACKS / f"{name}.toml", {"calibrated.cached_share": f"{value:.3f}"})
        print(f"{name:22s} cached_share={value:.3f} n {runs}")  # noqa: T201 - this module is a script
    for name, (value, runs) in sorted(tensor_slacks(given.runs).items()):
        if given.write:
            set_fields(STACKS / f"{name}.toml", {"calibrated.tensor_fragmentation": f"{value:.3f}"})
        print(f"{name:22s} tensor_fragmentation={value:.3f} n {runs}")  # noqa: T201 - this module is a script


if __name__ == "__main__":
    main()
