"""A strategy that fits, looked for in a few rows of a large lattice before it is laid out."""

from __future__ import annotations

import math

import numpy as np

from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Ints, Strategies
from planner.search.fitting import part_fitting
from planner.search.priced import price_pairs
from planner.space.lattice import Begun, Space

SAMPLE = 256
"""Rows that it is looked for in, and as many of those that are like the best of them."""
LIKE = ("pp", "ep", "schedule")
"""Axes in which these are like it."""


def first_strategy(
    begun: Begun, rows: Ints, bound: Floats, scenario: Scenario, *, by_memory: bool
) -> tuple[Space, float]:
    """A sample of the ``rows``, and the seconds of the best strategy of it or of rows like that one.

    Bytes with ``by_memory``; infinite where nothing of the sample fits. ``bound`` is that of all rows, (N,).
    """
    some, least, best = _best_of(begun, rows, scenario, by_memory=by_memory)
    if best is None:
        return some, least
    alike = np.logical_and.reduce([begun.table.shared[name] == getattr(best, name)[0] for name in LIKE])
    near = np.flatnonzero(alike & (bound < least))
    return some, min(least, _best_of(begun, near, scenario, by_memory=by_memory)[1])


def _best_of(
    begun: Begun, rows: Ints, scenario: Scenario, *, by_memory: bool
) -> tuple[Space, float, Strategies | None]:
    """A sample of the rows, the seconds or bytes of its best strategy that fits, and that, where there is any."""
    some = begun.finish(rows[:: max(-(-len(rows) // SAMPLE), 1)])
    fitting, _ = part_fitting(some, np.arange(len(some.cores)), scenario)
    if fitting is None:
        return some, math.inf, None
    priced = price_pairs(some.cores, fitting.place, fitting.rows, fitting.memory, scenario)
    needs = priced.even_split_peak_bytes if by_memory else priced.even_split_seconds
    possible = np.flatnonzero(priced.fits & np.isfinite(needs))
    if not len(possible):
        return some, math.inf, None
    best = possible[[needs[possible].argmin()]]
    return some, float(needs[best[0]]), priced.rows.take(best)
