"""What does a newcomer get? Every measured source priced again as if nothing had been fitted on it.

Two ways of not being known: its framework, priced by the stack that a framework of no known name gets, with what the
run itself says of its kernels; and its machine, priced by the constants of its kin, at the rate in training that they
have or that is neutral. The errors of the shipped constants follow. All are medians inside a source, with
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
from planner.runs.case import case_of
from planner.runs.files import read_runs
from planner.runs.judge import shipped
from planner.runs.least_squares import with_rate

MOST = 40
"""Runs of a source that are priced."""
WAYS = ("fitted", "stack", "machine", "both")
UNPRICED = (MeshwrightError, ValueError, TypeError, KeyError, ArithmeticError)


def anonymous(run):
    """The run with its framework's name struck out: what splits layers is priced as Megatron-Core, all else as none."""
    pins = run.request.pins
    stack = "megatron-core" if int(pins.get("tp", 1)) * int(pins.get("pp", 1)) > 1 else "generic"
    return run.model_copy(update={"request": run.request.model_copy(update={"stack": stack})})


def kin_rate(name):
    """The rate in training that an accelerator gets without one of its own."""
    document = entry("accelerator", name)
    return accelerator_record({key: value for key, value in document.items() if key != "training_rate"}).training_rate


def misses(run):
    """Predicted over measured, minus one, in the four ways."""
    known, unknown = case_of(run), case_of(anonymous(run))
    measured = run.measured.iteration_seconds
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
        way: price_strategy(mapped.strategy, scenario, mapped.assignment).iteration / measured - 1.0
        for way, (mapped, scenario) in priced.items()
    }


def study(incomplete):
    """Misses by source, stack and machine."""
    found: dict[tuple[str, ...], list[Mapping[str, float]]] = defaultdict(list)
    for path in shipped():
        sources = defaultdict(list)
        for run in read_runs(path):
            if (run.complete or incomplete) and not run.suspect:
                sources[run.group].append(run)
        for group, runs in sources.items():
            for run in runs[:: max(1, -(-len(runs) // MOST))]:
                try:
                    missed, known = misses(run), case_of(run).scenario
                except UNPRICED:
                    continue
                if missed:
                    key = (group, known.stack.name, known.group.accelerator.name)
                    found[key].append(missed)
    return found


def size(found, way):
    return statistics.median(abs(one[way]) for one in found)


def summary(found):
    return "  ".join(f"{statistics.median(m[way] for m in found):+7.1%} {size(found, way):6.1%}" for way in WAYS)


def main() -> int:
    parser = argparse.ArgumentParser(description="Price every source as a newcomer.")
    parser.add_argument("--sort", choices=WAYS, default="both")
    parser.add_argument("--all", action="store_true", help="incomplete runs as well")
    given = parser.parse_args()
    found = study(given.all)
    print(f"{'':64s}" + "  ".join(f"{way:>14s}" for way in WAYS))
    for key in sorted(found, key=lambda k: -size(found[k], given.sort)):
        print(f"{' '.join(key):58.58s} {len(found[key]):4d}  {summary(found[key])}")
    means = "  ".join(f"{'':7s} {statistics.mean(size(runs, way) for runs in found.values()):6.1%}" for way in WAYS)
    print(f"{'mean':58s} {len(found):4d}  {means}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
