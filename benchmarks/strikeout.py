"""What does a machine get that nothing was measured on? Each machine with measured runs, its own figures struck out.

Two of a machine's figures are not of its data sheet. Its rate in training, which is fitted to runs: struck out, and
given by four rules that know only the other machines. And its tables of products and attention: struck out, and taken
from another machine as shares of the peak, as ``like`` does in the catalogue. Errors are medians inside a source, with
their sign and without, averaged over the sources of a machine.

    python benchmarks/strikeout.py rates|tables [--all]
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import defaultdict

from transfer import MOST, UNPRICED

from costmodels.pricing import price_strategy
from costmodels.scenario import Scenario
from hardware.catalogue import accelerator, names
from hardware.files import entry
from planner.runs.case import case_of
from planner.runs.files import read_runs
from planner.runs.judge import shipped
from planner.runs.least_squares import with_rate

RULES = ("fitted", "neutral", "silicon", "vendor", "all")
DONORS = ("v100-sxm2-32gb", "a100-sxm-80gb", "h100-sxm", "b200", "gb300", "l40s", "mi300x", "tpu-v5e")
"""Machines whose tables the others are priced with."""
LEAST = 2
"""Runs of a source and machine, below which it is left out."""


def family(name):
    """The silicon, by the first word of the architecture: Grace and "Ultra" are the same streaming multiprocessors."""
    return str(entry("accelerator", name)["architecture"]).split()[0]


def fitted():
    """The rates that calibration wrote, by machine."""
    entries = {name: entry("accelerator", name) for name in names("accelerator")}
    return {
        name: float(found["training_rate"])
        for name, found in entries.items()
        if found.get("sources", {}).get("training_rate") == "calibration"
    }


def rates(name):
    """The rate of a machine by every rule, from the rates of the others alone."""
    known = fitted()
    others = {other: rate for other, rate in known.items() if other != name}
    kin = {other: rate for other, rate in others.items() if family(other) == family(name)}
    vendor = entry("accelerator", name)["vendor"]
    sold = {other: rate for other, rate in others.items() if entry("accelerator", other)["vendor"] == vendor}
    return {
        "fitted": known.get(name, accelerator(name).training_rate),
        "neutral": 1.0,
        "silicon": mean(kin),
        "vendor": mean(sold),
        "all": mean(others),
    }


def mean(of):
    return math.exp(statistics.fmean(math.log(rate) for rate in of.values())) if of else 1.0


def by_rate(known):
    found = rates(known.scenario.group.accelerator.name)
    return {rule: with_rate(known.scenario, found[rule]) for rule in RULES}


def by_table(known):
    mine = known.scenario.group.accelerator
    return {"own": known.scenario} | {donor: lent(known.scenario, mine, accelerator(donor)) for donor in DONORS}


def lent(scenario, mine, donor) -> Scenario:
    """The scenario on a machine of the same peaks with another's tables of products and attention."""
    kernels = mine.kernels.model_copy(update={"gemm": donor.kernels.gemm, "attention": donor.kernels.attention})
    changed = mine.model_copy(update={"kernels": kernels})
    group = scenario.group.model_copy(update={"accelerator": changed})
    return scenario.model_copy(update={"group": group}) if hasattr(scenario, "model_copy") else swapped(scenario, group)


def swapped(scenario, group):
    return Scenario(
        model=scenario.model,
        group=group,
        stack=scenario.stack,
        gpus=scenario.gpus,
        seq_length=scenario.seq_length,
        global_batch_size=scenario.global_batch_size,
        precision=scenario.precision,
    )


def study(ways, incomplete):
    """Misses of runs by machine and source, in every way."""
    found = defaultdict(list)
    sources = defaultdict(list)
    for run in (run for path in shipped() for run in read_runs(path)):
        if run.request and run.measured.iteration_seconds and (run.complete or incomplete) and not run.suspect:
            known = case_of(run)
            sources[run.group, known.scenario.group.accelerator.name].append((known, run.measured.iteration_seconds))
    for (group, _), runs in sources.items():
        for known, measured in runs[:: max(1, -(-len(runs) // MOST))]:
            try:
                priced = {
                    way: price_strategy(known.strategy, scenario, known.assignment).iteration / measured - 1.0
                    for way, scenario in ways(known).items()
                }
            except UNPRICED:
                continue
            found[known.scenario.group.accelerator.name, group].append(priced)
    return {key: runs for key, runs in found.items() if len(runs) >= LEAST}


def report(found):
    ways = next(iter(found.values()))[0].keys()
    machines = defaultdict(list)
    for (machine, _), runs in found.items():
        machines[machine].append(runs)
    print(f"{'machine':26s} sources" + "".join(f"{way[:14]:>17s}" for way in ways))
    for machine, groups in sorted(machines.items()):
        cells = []
        for way in ways:
            bias = statistics.fmean(statistics.median(one[way] for one in runs) for runs in groups)
            size = statistics.fmean(statistics.median(abs(one[way]) for one in runs) for runs in groups)
            cells.append(f"{bias:+8.1%} {size:7.1%} ")
        print(f"{machine:26s} {len(groups):7d}" + "".join(cells))
    print()


def main() -> int:
    parser = argparse.ArgumentParser(description="Price every machine without what was measured on it.")
    parser.add_argument("what", choices=("rates", "tables"))
    parser.add_argument("--all", action="store_true", help="incomplete runs as well")
    given = parser.parse_args()
    report(study(by_rate if given.what == "rates" else by_table, given.all))
    return 0


if __name__ == "__main__":
    sys.exit(main())
