"""Fit what allocators take beyond what they hand out, on measured peaks of devices or of what they took of them.

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
from planner.trust.table import source

FEWEST = 10
"""Runs without which a stack keeps its own."""
LOW, HIGH = 0.02, 0.5
FAILED = 50
"""Runs with tensor parallelism that ran out of memory without which a stack keeps its slack."""


Held = dict[str, list[tuple[str, float]]]
"""By stack: the publisher of every reading of a device, and what its allocator held beyond what it handed out."""
Verdicts = dict[str, list[tuple[str, float, bool]]]
"""By stack: the publisher of every run with tensor parallelism, what its device has over what is allocated less one,
and whether it ran out of memory."""


def caches(found: Held, without: str = "") -> dict[str, tuple[float, int]]:
    """The cache of every stack with enough readings, and how many there were; without those of one publisher."""
    values = {name: [value for whose, value in mine if whose != without] for name, mine in found.items()}
    return {
        name: (float(np.clip(np.median(mine), LOW, HIGH)), len(mine))
        for name, mine in values.items()
        if len(mine) >= FEWEST
    }


def held(paths: Iterable[Path]) -> Held:
    """What allocators held, as devices and they themselves show it."""

    def wanted(run: Run) -> bool:
        peak = run.measured.peak_memory
        return peak is not None and peak.kind != "allocated" and "memory" in run.constants

    found: Held = defaultdict(list)
    for run, case in scored_cases(paths, wanted):
        measured, stack, stages = run.measured.peak_memory, case.scenario.stack, stages_read(run)
        assert measured is not None
        peak = case.price().footprint
        outside = stack.allocator.reserved if measured.kind == "device" else 0.0
        taken = measured.bytes - outside - float(np.max(peak.reclaimable[stages]))
        found[stack.name].append((source(run.group), taken / float(np.max(peak.allocated[stages])) - 1.0))
    return found


def tensor_slacks(found: Verdicts, without: str = "") -> dict[str, tuple[float, int]]:
    """The slack under tensor parallelism of every stack with enough runs that failed, and how many runs it rests on.

    ``without`` is a publisher whose runs are left out.
    """
    slacks = {}
    for name, runs in found.items():
        mine = [one[1:] for one in runs if one[0] != without]
        if mine and (slack := best_slack(*map(np.array, zip(*mine, strict=True)))) is not None:
            slacks[name] = slack, len(mine)
    return slacks


def tensor_verdicts(paths: Iterable[Path]) -> Verdicts:
    """What is known of runs with tensor parallelism."""

    def wanted(run: Run) -> bool:
        return "memory" in run.constants and bool(run.measured.out_of_memory or run.measured.iteration_seconds)

    found: Verdicts = defaultdict(list)
    for run, case in scored_cases(paths, wanted):
        if case.strategy.tp[0] > 1:
            stack, usable = case.scenario.stack, case.scenario.group.accelerator.usable_memory
            peak = float(np.max(case.price().footprint.allocated))
            spare = (usable - stack.allocator.reserved) / peak - 1.0
            found[stack.name].append((source(run.group), spare, bool(run.measured.out_of_memory)))
    return found


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
    fitted = {
        "cached_share": caches(held(given.runs)),
        "tensor_fragmentation": tensor_slacks(tensor_verdicts(given.runs)),
    }
    for field, found in fitted.items():
        for name, (value, runs) in sorted(found.items()):
            if given.write:
                set_fields(STACKS / f"{name}.toml", {f"calibrated.{field}": f"{value:.3f}"})
            print(f"{name:22s} {field}={value:.3f} n {runs}")  # noqa: T201 - this module is a script


if __name__ == "__main__":
    main()
