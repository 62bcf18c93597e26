"""What does a newcomer get? Every measured source priced again as if nothing had been fitted on it.

Two ways of not being known: its framework, priced by the stack that a framework of no known name gets, with what the
run itself says of its kernels; and its machine, priced by the constants of its kin, at the rate in training that they
have or that is neutral. Beside them stand the errors of the shipped constants. All are medians inside a source, with
their sign and without, then averaged over the sources.

    python benchmarks/transfer.py [--sort stack|machine] [--all]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping

from costmodels.pricing import price_strategy
from hardware.assembly import accelerator_record
from hardware.errors import MeshwrightError
from hardware.files import entry
from planner.runs.fit import with_rate
from planner.runs.judge import learnt_from, seconds_of
from planner.runs.rows import read_rows
from planner.runs.words.mapping import case

MOST = 40
"""Runs of a source that are priced."""
WAYS = ("fitted", "stack", "machine", "both")
UNPRICED = (MeshwrightError, ValueError, TypeError, KeyError, ArithmeticError)


def anonymous(row):
    """The run with its framework's name struck out."""
    return {**row, "stack": {**row["stack"], "framework": "in-house"}}


def kin_rate(name):
    """The rate in training that an accelerator gets without one of its own."""
    document = entry("accelerator", name)
    return accelerator_record({key: value for key, value in document.items() if key != "training_rate"}).training_rate


def misses(row):
    """Predicted over measured, minus one, in the four ways."""
    known, unknown = case(row), case(anonymous(row))
    measured = seconds_of(row, known)
    if not measured:
        return None
    rate = kin_rate(known.scenario.group.accelerator.name)
    priced = {
        "fitted": (known, known.scenario),
        "stack": (unknown, unknown.scenario),
        "machine": (known, with_rate(known.scenario, rate)),
        "both": (unknown, with_rate(unknown.scenario, rate)),
    }
    return {
        way: price_strategy(mapped.rows, scenario, mapped.assignment).iteration / measured - 1.0
        for way, (mapped, scenario) in priced.items()
    }


def study(incomplete):
    """Misses by source, split, stack and machine."""
    found: dict[tuple[str, ...], list[Mapping[str, float]]] = defaultdict(list)
    for path in learnt_from():
        sources = defaultdict(list)
        for row in read_rows(path):
            if (row.get("complete") or incomplete) and not row.get("suspect"):
                sources[str(row["group"])].append(row)
        for group, rows in sources.items():
            for row in rows[:: max(1, -(-len(rows) // MOST))]:
                try:
                    missed, known = misses(row), case(row).scenario
                except UNPRICED:
                    continue
                if missed:
                    key = (path.name[:3], group, known.stack.name, known.group.accelerator.name)
                    found[key].append(missed)
    return found


def size(found, way):
    return statistics.median(abs(one[way]) for one in found)


def told(found):
    return "  ".join(f"{statistics.median(m[way] for m in found):+7.1%} {size(found, way):6.1%}" for way in WAYS)


def main() -> int:
    parser = argparse.ArgumentParser(description="Price every source as a newcomer.")
    parser.add_argument("--sort", choices=WAYS, default="both")
    parser.add_argument("--all", action="store_true", help="incomplete runs as well")
    given = parser.parse_args()
    found = study(given.all)
    print(f"{'':64s}" + "  ".join(f"{way:>14s}" for way in WAYS))
    for key in sorted(found, key=lambda k: -size(found[k], given.sort)):
        print(f"{' '.join(key):58.58s} {len(found[key]):4d}  {told(found[key])}")
    for split in ("fit", "dev"):
        mine = [runs for key, runs in found.items() if key[0] == split]
        means = "  ".join(f"{'':7s} {statistics.mean(size(runs, way) for runs in mine):6.1%}" for way in WAYS)
        print(f"{'mean of ' + split:58s} {len(mine):4d}  {means}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
