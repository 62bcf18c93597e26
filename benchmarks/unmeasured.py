"""What does somebody get whom nobody has measured? Measured runs priced again without what their source taught.

    python benchmarks/unmeasured.py newcomer [--all]

prices every source four times: as shipped; with the name of its framework struck out, so that what splits layers is
priced as Megatron-Core and all else as software of no name; on its machine at the rate in training of the machine's
kin; and both.

    python benchmarks/unmeasured.py rates|tables [--all]

strikes out one machine's figures after the other that are not of its data sheet: its rate in training, given by four
rules that know the other machines alone, or its tables of products and attention, lent by eight other machines as
shares of the peak, as ``like`` does in the catalogue. Half a minute, a minute, a minute.

Printed are medians inside a source, with their sign and without, averaged over the sources of a line.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from dataclasses import replace
from functools import cache

from hardware.assembly import accelerator_record
from hardware.catalogue import accelerator, names
from hardware.errors import MeshwrightError
from hardware.files import entry
from planner.runs.case import case_of
from planner.runs.corpus import grouped
from planner.runs.files import read_runs
from planner.runs.judge import shipped
from planner.runs.least_squares import with_rate

MOST, LEAST = 40, 2
"""Runs of a source on one machine under one stack: those that are priced, and below which it is left out."""
DONORS = ("v100-sxm2-32gb", "a100-sxm-80gb", "h100-sxm", "b200", "gb300", "l40s", "mi300x", "tpu-v5e")
"""Machines whose tables the others are priced with."""
UNPRICED = (MeshwrightError, ValueError, TypeError, KeyError, ArithmeticError)


def newcomer(run, known):
    pins = run.request.pins
    stack = "megatron-core" if int(pins.get("tp", 1)) * int(pins.get("pp", 1)) > 1 else "generic"
    unknown = case_of(run.model_copy(update={"request": run.request.model_copy(update={"stack": stack})}))
    document = entry("accelerator", known.scenario.group.accelerator.name)
    rate = accelerator_record({key: value for key, value in document.items() if key != "training_rate"}).training_rate
    return {
        "fitted": known,
        "stack": unknown,
        "machine": replace(known, scenario=with_rate(known.scenario, rate)),
        "both": replace(unknown, scenario=with_rate(unknown.scenario, rate)),
    }


def rates(_run, known):
    rules = rates_of(known.scenario.group.accelerator.name)
    return {rule: replace(known, scenario=with_rate(known.scenario, rate)) for rule, rate in rules.items()}


@cache
def rates_of(name):
    """The rate of a machine by every rule, from those that calibration wrote of the others."""
    entries = {one: entry("accelerator", one) for one in names("accelerator")}
    by_runs = [one for one, found in entries.items() if found.get("sources", {}).get("training_rate") == "calibration"]
    others = {one: float(entries[one]["training_rate"]) for one in by_runs if one != name}

    def mean(alike):
        """Of the others that are alike; Grace and "Ultra" are the same silicon, by the first word."""
        found = [math.log(rate) for one, rate in others.items() if alike(entries[one]) == alike(entries[name])]
        return math.exp(statistics.fmean(found)) if found else 1.0

    return {
        "fitted": accelerator(name).training_rate,
        "neutral": 1.0,
        "silicon": mean(lambda one: str(one["architecture"]).split()[0]),
        "vendor": mean(lambda one: one["vendor"]),
        "all": mean(lambda _: None),
    }


def tables(_run, known):
    return {"own": known} | {donor: lent(known, accelerator(donor).kernels) for donor in DONORS}


def lent(known, kernels):
    """The run on a machine of the same peaks with another's tables of products and attention."""
    group = known.scenario.group
    own = group.accelerator.kernels.model_copy(update={"gemm": kernels.gemm, "attention": kernels.attention})
    changed = group.model_copy(update={"accelerator": group.accelerator.model_copy(update={"kernels": own})})
    return replace(known, scenario=replace(known.scenario, group=changed))


def study(ways, incomplete):
    """Predicted over measured, minus one, of runs in every way, by source, stack and machine."""
    runs = [run for path in shipped() for run in read_runs(path) if (run.complete or incomplete) and not run.suspect]
    cases = defaultdict(list)
    for run in (run for run in runs if run.request and run.measured.iteration_seconds):
        known = case_of(run)
        cases[run.group, known.scenario.stack.name, known.scenario.group.accelerator.name].append((run, known))
    found = defaultdict(list)
    for key, mine in cases.items():
        for run, known in mine[:: -(-len(mine) // MOST)]:
            try:
                priced = {way: case.price().iteration for way, case in ways(run, known).items()}
            except UNPRICED:
                continue
            found[key].append({way: seconds / run.measured.iteration_seconds - 1.0 for way, seconds in priced.items()})
    return {key: missed for key, missed in found.items() if len(missed) >= LEAST}


def size(found, way):
    return statistics.fmean(statistics.median(abs(one[way]) for one in missed) for missed in found)


def bias(found, way):
    return statistics.fmean(statistics.median(one[way] for one in missed) for missed in found)


def report(found, name):
    """A line for all sources of a name, the farthest off first, and one for all."""
    lines = {line: [found[key] for key in keys] for line, keys in grouped(found, name).items()}
    *_, last = ways = list(next(iter(found.values()))[0])
    print(f"{'':58s} sources" + "".join(f"{way[:14]:>17s}" for way in ways))
    for line in sorted(lines, key=lambda one: -size(lines[one], last)):
        show(line, lines[line], ways)
    show("all", list(found.values()), ways)


def show(line, found, ways):
    cells = "".join(f"{bias(found, way):+8.1%} {size(found, way):7.1%} " for way in ways)
    print(f"{line:58.58s} {len(found):7d}{cells}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("newcomer", "rates", "tables"))
    parser.add_argument("--all", action="store_true", help="incomplete runs as well")
    given = parser.parse_args()
    ways = {"newcomer": newcomer, "rates": rates, "tables": tables}[given.what]
    report(study(ways, given.all), " ".join if given.what == "newcomer" else lambda key: key[2])


if __name__ == "__main__":
    main()
