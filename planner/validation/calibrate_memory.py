"""Fit what allocators take beside what they hand out, on measured peaks of devices or of what they took of them.

Peaks that a framework reports of its own allocator test the memory model itself and fit nothing. What a device
shows beyond them is the allocator's cache, which differs between frameworks: one constant a stack.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from costmodels.pricing import quote
from hardware.errors import MeshwrightError
from planner.validation.calibrate import STACKS, set_fields
from planner.validation.judge import memory_kind
from planner.validation.mapping import case
from planner.validation.rows import Row, read_rows

FEWEST = 10
"""Runs without which a stack keeps its own."""
LOW, HIGH = 0.02, 0.5


def caches(paths: Iterable[Path]) -> dict[str, tuple[float, int]]:
    """The cache of every stack with enough measured devices, and how many there were."""
    found: dict[str, list[float]] = defaultdict(list)
    for path in paths:
        for row in read_rows(path):
            if (one := _cache(row)) is not None:
                found[one[0]].append(one[1])
    return {
        name: (float(np.clip(np.median(values), LOW, HIGH)), len(values))
        for name, values in found.items()
        if len(values) >= FEWEST
    }


def _cache(row: Row) -> tuple[str, float] | None:
    measured, (unit, quantity) = row["measured"].get("memory"), memory_kind(row)
    if measured is None or quantity == "allocated" or not row.get("complete") or row.get("suspect"):
        return None
    try:
        found = case(row)
    except MeshwrightError:
        return None
    stack = found.scenario.stack
    peak = quote(found.rows, found.scenario, found.assignment).footprint
    outside = stack.reserved if quantity == "shown" else 0.0
    return stack.name, (float(measured) * unit - outside) / float(np.max(peak.allocated)) - 1.0


def main() -> None:
    """Command line: files in, constants out."""
    parser = argparse.ArgumentParser(description="Fit the allocator's cache of stacks on measured devices.")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="put the constants into the catalogue")
    given = parser.parse_args()
    for name, (value, runs) in sorted(caches(given.runs).items()):
        if given.write:
            set_fields(STACKS / f"{name}.toml", {"cache": f"{value:.3f}"})
        print(f"{name:22s} cache={value:.3f} n {runs}")  # noqa: T201 - this module is a script


if __name__ == "__main__":
    main()
