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

from costmodels.strategy import Bools, Floats
from planner.runs.corpus import scored_cases
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

    def wanted(run: Run) -> bool:
        peak = run.measured.peak_memory
        return peak is not None and peak.kind != "allocated" and not run.held_back

    found: dict[str, list[float]] = defaultdict(list)
    for run, case in scored_cases(paths, wanted):
        measured, stack, stages = run.measured.peak_memory, case.scenario.stack, stages_read(run)
        assert measured is not None
        peak = case.price().footprint
        outside = stack.allocator.reserved if measured.kind == "device" else 0.0
        held = measured.bytes - outside - float(np.max(peak.reclaimable[stages]))
        found[stack.name].append(held / float(np.max(peak.allocated[stages])) - 1.0)
    return {
        name: (float(np.clip(np.median(values), LOW, HIGH)), len(values))
        for name, values in found.items()
        if len(values) >= FEWEST
    }


def tensor_slacks(paths: Iterable[Path]) -> dict[str, tuple[float, int]]:
    """The slack under tensor parallelism of every stack with enough runs that failed, and how many runs it rests on."""

    def wanted(run: Run) -> bool:
        return not run.held_back and bool(run.measured.out_of_memory or run.measured.iteration_seconds)

    found: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for run, case in scored_cases(paths, wanted):
        if case.strategy.tp[0] > 1:
            stack, usable = case.scenario.stack, case.scenario.group.accelerator.usable_memory
            peak = float(np.max(case.price().footprint.allocated))
            found[stack.name].append(
                ((usable - stack.allocator.reserved) / peak - 1.0, bool(run.measured.out_of_memory))
            )
    slacks = {name: (best_slack(*map(np.array, zip(*runs, strict=True))), len(runs)) for name, runs in found.items()}
    return {name: (slack, runs) for name, (slack, runs) in slacks.items() if slack is not None}


def best_slack(spare: Floats, failed: Bools) -> float | None:
    """The slack that gets most verdicts right, the least of the best, in hundredths; None where too few runs failed.

    Args:
        spare: what the device has over what is allocated, less one, of every run (N,).
        failed: whether it ran out of memory (N,).
    """
    if failed.sum() < FAILED:
        return None
    grid = np.arange(LOW, HIGH, 0.01)
    return float(grid[int(np.argmax(((spare[:, None] < grid) == failed[:, None]).sum(axis=0)))])


def main() -> None:
    """Command line: files in, constants out."""
    parser = argparse.ArgumentParser(description="Fit the allocator's cache of stacks on measured devices.")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="put the constants into the catalogue")
    given = parser.parse_args()
    for field, fit in (("cached_share", caches), ("tensor_fragmentation", tensor_slacks)):
        for name, (value, runs) in sorted(fit(given.runs).items()):
            if given.write:
                set_fields(STACKS / f"{name}.toml", {f"calibrated.{field}": f"{value:.3f}"})
            print(f"{name:22s} {field}={value:.3f} n {runs}")  # noqa: T201 - this module is a script


if __name__ == "__main__":
    main()
