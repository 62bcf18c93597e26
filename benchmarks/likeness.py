"""Are the weights behind intervals right? Every one halved and doubled, judged between the sources they rest on.

The score of intervals is their width and twenty times what lies outside of them, in logarithms, meaned over the sources
[Gneiting07]; an interval never rests on runs of the source that it is judged by. Printed is the relative change of the
score: positive is worse.

    python benchmarks/likeness.py
"""

from __future__ import annotations

import sys

import numpy as np

from planner import trust
from planner.likeness import apart
from planner.measured import every_run
from planner.validation.residuals import tails, usual_miss, weights

OUTSIDE = 20.0
"""What a miss outside of a 90 % interval costs, over the width: 2 / (1 - 0.9)."""


def score(away, known):
    """The score at distances ``away`` (M, M) between the runs."""
    usual, other = usual_miss(known), known.sources[:, None] != known.sources
    misses = [
        trust.expected_miss(row[kept], known.take(np.flatnonzero(kept)), usual)
        for row, kept in zip(away, other, strict=True)
    ]
    low, high = tails(known.scaled / misses, weights(known.sources))
    low, high = (end * known.scales * misses for end in (min(low, 0.0), max(high, 0.0)))
    beyond = np.maximum(low - known.misses, 0.0) + np.maximum(known.misses - high, 0.0)
    return float((high - low + OUTSIDE * beyond) @ weights(known.sources))


def main() -> int:
    known = every_run().of("fit", "check")
    every = np.arange(len(known.runs))
    rows = [apart(known.traits.take(every[i : i + 1]), known.traits) for i in every]
    parts = {key: np.concatenate([np.broadcast_to(row[key], (1, len(every))) for row in rows]) for key in rows[0]}
    total = sum(parts.values())
    usual = score(total, known)
    print(f"score {usual:.3f}; without distance {score(np.full_like(total, 50.0), known) / usual - 1:+.1%}")
    for key, part in parts.items():
        halved, doubled = (score(total + (factor - 1.0) * part, known) / usual - 1 for factor in (0.5, 2.0))
        print(f"{key:14s} halved {halved:+6.1%}  doubled {doubled:+6.1%}")
    halved, doubled = (score(factor * total, known) / usual - 1 for factor in (0.5, 2.0))
    print(f"{'all':14s} halved {halved:+6.1%}  doubled {doubled:+6.1%}")
    for name in ("FAR", "NOTHING"):
        chosen, told = getattr(trust, name), []
        for factor in (0.5, 2.0):
            setattr(trust, name, factor * chosen)
            told.append(score(total, known) / usual - 1)
        setattr(trust, name, chosen)
        print(f"{name:14s} halved {told[0]:+6.1%}  doubled {told[1]:+6.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
