"""Are the weights behind intervals right? Every one halved and doubled, judged between the sources they rest on.

The score of intervals is their width and twenty times what lies outside of them, in logarithms, meaned over the sources
[Gneiting07]; an interval never rests on runs of the source that it is judged by. Printed is the relative change of the
score: positive is worse.

    python benchmarks/likeness.py
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from planner.runs.residuals import tails, usual_miss, weights
from planner.trust import interval
from planner.trust import table as measured
from planner.trust.similarity import apart
from planner.trust.table import every_run

OUTSIDE = 20.0
"""What a miss outside of a 90 % interval costs, over the width: 2 / (1 - 0.9)."""


def score(away, table):
    """The score at distances ``away`` (M, M) between all measured runs."""
    other = table.sources[:, None] != table.sources
    learnt, judge = (np.isin(table.splits, splits) for splits in (("fit", "dev"), ("fit", "check")))
    nearest = np.where(other & learnt, away, np.inf).min(axis=1)
    runs = tuple(run._replace(nearest=float(least)) for run, least in zip(table.runs, nearest, strict=True))
    known = replace(table, runs=runs).take(np.flatnonzero(judge))
    away, other, usual = away[judge][:, judge], other[judge][:, judge], usual_miss(known)
    misses = np.array(
        [
            interval.expected_miss(row[kept], known.take(np.flatnonzero(kept)), usual)
            for row, kept in zip(away, other, strict=True)
        ]
    )
    low, high = tails(known.scaled / misses, weights(known.sources))
    low, high = (end * known.scales * misses for end in (min(low, 0.0), max(high, 0.0)))
    beyond = np.maximum(low - known.misses, 0.0) + np.maximum(known.misses - high, 0.0)
    return float((high - low + OUTSIDE * beyond) @ weights(known.sources))


def main() -> int:
    table = every_run()
    every = np.arange(len(table.runs))
    rows = [apart(table.traits.take(every[i : i + 1]), table.traits) for i in every]
    parts = {key: np.concatenate([np.broadcast_to(row[key], (1, len(every))) for row in rows]) for key in rows[0]}
    total = sum(parts.values())
    usual = score(total, table)

    def told(name, away):
        halved, doubled = (score(away(factor), table) / usual - 1.0 for factor in (0.5, 2.0))
        print(f"{name:14s} halved {halved:+6.1%}  doubled {doubled:+6.1%}")

    print(f"score {usual:.3f}; without distance {score(np.full_like(total, 1.0), table) / usual - 1:+.1%}")
    for key, part in parts.items():
        told(key, lambda factor, part=part: total + (factor - 1.0) * part)
    told("all", lambda factor: factor * total)
    for module, name in ((measured, "FURTHER"), (interval, "NOTHING")):
        chosen = getattr(module, name)

        def scaled(factor, module=module, name=name, chosen=chosen):
            setattr(module, name, factor * chosen)
            return total

        told(name, scaled)
        setattr(module, name, chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
