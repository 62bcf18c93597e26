"""The leanest strategy: least memory on the fullest device."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from costmodels.iteration import row_seconds
from costmodels.memory import memory_limit
from costmodels.pieces import copies
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies
from planner.lean_split import lean_bounds, lean_peaks
from planner.priced import Priced, price_cores, price_rows
from planner.search import CHUNK, Outcome, remember
from planner.space import Space
from planner.splits import Incumbent, best_split
from planner.stage_rows import stage_problems

ROUNDING = 1e-9
"""Relative difference below which two peaks are one."""


def leanest(space: Space, scenario: Scenario, *, deadline: float) -> Outcome:
    """Price every core in chunks and keep the one with the lowest peak; ties go to the faster.

    Proved over splits with all or no layers recomputed: uneven ones too where the stack allows them, its layers are
    alike and stages hold one piece each; else even ones.
    """
    outcome = Outcome()
    for start in range(0, len(space.cores), CHUNK):
        if time.perf_counter() > deadline:
            outcome.proved = False
            break
        chunk = np.arange(start, min(start + CHUNK, len(space.cores)))
        _look_at(outcome, price_cores(space, chunk, scenario), scenario, deadline)
    if outcome.best:
        outcome.lower_bound = outcome.best.iteration
    return outcome


def leanest_split(row: Strategies, scenario: Scenario, *, deadline: float) -> Incumbent | None:
    """One row under the split that `leanest` takes for it; None where none fits."""
    outcome = Outcome()
    _look_at(outcome, price_rows(row, row_seconds(row, scenario), scenario), scenario, deadline)
    return outcome.best


def _look_at(outcome: Outcome, priced: Priced, scenario: Scenario, deadline: float) -> None:
    remember(outcome, priced, scenario, lean=True)
    if scenario.stack.uneven_stages and scenario.depth.uniform:
        _unevenly(outcome, priced, scenario, deadline)


def _unevenly(outcome: Outcome, priced: Priced, scenario: Scenario, deadline: float) -> None:
    """Raise the incumbent by the leanest row of a chunk whose stages may differ, split as fast as its peak allows."""
    ceiling = outcome.best.peak * (1 - ROUNDING) if outcome.best else np.inf
    some = priced.take((priced.rows.pp > 1) & (copies(priced.rows) == 1))
    if not len(some.rows):
        return
    problems = stage_problems(some.rows, some.seconds, some.memory, scenario)
    some = some.take(lean_bounds(problems) < ceiling)
    if not len(some.rows):
        return
    peaks = lean_peaks(stage_problems(some.rows, some.seconds, some.memory, scenario))
    peaks = np.where(peaks <= memory_limit(scenario, some.rows), peaks, np.inf)
    best = int(np.lexsort((some.bound, peaks))[0])
    if peaks[best] >= ceiling:
        return
    row = some.rows.take(np.array([best]))
    peak = float(peaks[best])
    if found := best_split(row, scenario, deadline=deadline, allocated=peak * (1 + ROUNDING)):
        outcome.feasible += int(not some.fits[best])
        outcome.best = replace(found, peak=peak)
