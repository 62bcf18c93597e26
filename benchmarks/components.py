"""Where the error of unseen runs lies: within publishers, or between publishers that use the same.

    python benchmarks/components.py      # seconds

By kind of run, of iteration times and of memory, publishers left out:

- the error, also without the tenth of publishers that miss most, and how far the runs of one publisher on one place
  (machine, software, kind of model, number format) lie from their own median: what mechanisms that depend on the layout
  could still gain;
- of places with several publishers: their error; how far publishers lie from the mean of their place, drawn out by
  sqrt(n / (n - 1)): what no description of machine and software tells apart; and the error once each is corrected by
  the mean miss of the others there, by that share of it which does best in hindsight.

If publishers of one place differ among themselves by as much as the error is, no better model of the machine or of the
software brings it down: only runs of one's own do, or settings that publications do not state.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from planner.trust.kinds import kinds_of, kinds_of_readings
from planner.trust.memory import readings
from planner.trust.table import measured

FEWEST = 3
"""Runs of one publisher on one place whose spread says something."""
SHARES = np.linspace(0.0, 1.0, 21)
"""Of the others' mean miss, that a publisher is corrected by."""


class Spread(NamedTuple):
    """Shares of the measured figure, means over publishers."""

    publishers: int
    error: float
    trimmed: float
    """Without the tenth that miss most."""
    within: float
    shared: int
    """Publishers on a place that another has too."""
    shared_error: float
    between: float
    corrected: float


def spread(misses, sources, places):
    """Components of some runs' misses: arrays (M,)."""
    medians, inside, errors = defaultdict(dict), defaultdict(list), []
    for name in np.unique(sources):
        mine = sources == name
        errors.append(np.median(off(misses[mine])))
        for place in np.unique(places[mine]):
            some = misses[mine & (places == place)]
            medians[place][name] = np.median(some)
            if len(some) >= FEWEST:
                inside[name].append(np.median(abs(some - np.median(some))))
    apart, left = defaultdict(list), defaultdict(list)
    for same in medians.values():
        for name, miss in same.items() if len(same) > 1 else ():
            others = np.mean([of for other, of in same.items() if other != name])
            apart[name].append(abs(miss - np.mean(list(same.values()))) * np.sqrt(len(same) / (len(same) - 1)))
            left[name].append(off(miss - SHARES * others))
    shares = np.mean([np.mean(of, axis=0) for of in left.values()], axis=0) if left else np.full(len(SHARES), np.nan)
    within, between = (mean([np.mean(of) for of in found.values()]) for found in (inside, apart))
    trimmed = np.sort(errors)[: len(errors) - round(len(errors) / 10)]
    return Spread(len(errors), mean(errors), trimmed.mean(), within, len(apart), shares[0], between, shares.min())


def off(misses):
    """Share by which predictions miss, of logarithms of measured over predicted."""
    return abs(np.expm1(-misses))


def mean(of):
    return float(np.mean(of)) if of else np.nan


def table(title, kinds, misses, sources, places):
    print(f"{title:26} {'publishers':>10} {'error':>7} {'trimmed':>8} {'within':>7}   of one place:"
          f"{'publishers':>11} {'error':>7} {'between':>8} {'corrected':>10}")  # fmt: skip
    for name, among in kinds.items():
        of = spread(misses[among], sources[among], places[among])
        print(f"{name:26} {of.publishers:>10} {of.error:>7.1%} {of.trimmed:>8.1%} {of.within:>7.1%}{of.shared:>27}"
              f" {of.shared_error:>7.1%} {of.between:>8.1%} {of.corrected:>10.1%}")  # fmt: skip


def main() -> int:
    for title, known, kinds in (("time", measured(), kinds_of), ("memory", readings(), kinds_of_readings)):
        names, among = known.traits.names, kinds(known)
        parts = ("accelerator", "stack", "kind", "bits")
        places = np.array(["|".join(at) for at in zip(*(names[part] for part in parts), strict=True)])
        if title == "memory":
            among = {name: flags & known.read for name, flags in among.items()}
            misses = known.column("miss")
        else:
            misses = known.misses
        table(title, among, misses, known.sources, places)
    return 0


if __name__ == "__main__":
    sys.exit(main())
