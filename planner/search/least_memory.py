"""The leanest strategy: least memory on the fullest device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from costmodels.iteration import row_seconds
from costmodels.layout.pieces import copies
from costmodels.memory.rows import memory_limit
from costmodels.pricing import row_assignment
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats, Ints, Strategies
from planner.search.best_first import CHUNK, PROMISING, Outcome, remember
from planner.search.lean_split import lean_bounds, lean_peaks
from planner.search.priced import Priced, price_cores, price_rows
from planner.search.split import Incumbent, best_split
from planner.space.lattice import Space
from planner.stages.from_rows import stage_problems

ROUNDING = 1e-9
"""Relative difference below which two peaks are one."""


def leanest(space: Space, scenario: Scenario, *, deadline: float, among: Ints | None = None) -> Outcome:
    """Price every core in chunks and keep the one with the lowest peak; ties go to the faster.

    Proved over splits with all or no layers recomputed: uneven ones too where the stack allows them, its layers are
    alike and stages hold one piece each; else even ones. ``among`` gives the cores to look at, indices (K,).
    """
    outcome = Outcome()
    cores = np.arange(len(space.cores)) if among is None else among
    for start in range(0, len(cores), CHUNK):
        if time.perf_counter() > deadline:
            outcome.proved = False
            break
        priced = price_cores(space, cores[start : start + CHUNK], scenario)
        remember(outcome, priced, scenario, lean=True)
        if _may_be_uneven(scenario):
            _unevenly(outcome, priced, scenario, deadline)
    if outcome.best:
        outcome.lower_bound = outcome.best.iteration if outcome.proved else 0.0
    return outcome


def leanest_rows(outcome: Outcome, scenario: Scenario, count: int = PROMISING) -> Iterator[tuple[float, Strategies]]:
    """The leanest rows seen, by the bytes of the fullest stage under their leanest split."""
    found = [(part, _least(part, scenario)) for part in outcome.pool]
    places = [
        (float(least[i]), n, int(i)) for n, (_, least) in enumerate(found) for i in np.flatnonzero(least < np.inf)
    ]
    for least, n, i in sorted(places)[:count]:
        yield least, found[n][0].rows.take(np.array([i]))


def leanest_split(row: Strategies, scenario: Scenario, *, deadline: float) -> Incumbent | None:
    """One row under the split whose fullest stage needs least, as fast as that allows; None where none fits."""
    priced = price_rows(row, row_seconds(row, scenario), scenario)
    least, even = float(_least(priced, scenario)[0]), float(priced.peak[0])
    if least == np.inf:
        return None
    if priced.fits[0] and np.isfinite(priced.even[0]) and even <= least * (1 + ROUNDING):
        return Incumbent(row, row_assignment(row, scenario.model.num_layers), float(priced.even[0]), even)
    found = best_split(row, scenario, deadline=deadline, allocated=least * (1 + ROUNDING))
    return replace(found, peak=least) if found else None


def _least(priced: Priced, scenario: Scenario) -> Floats:
    """Bytes of the fullest stage of every row under its leanest split, (N,); infinite where none fits."""
    least = np.where(priced.fits & np.isfinite(priced.even), priced.peak, np.inf)
    if _may_be_uneven(scenario) and (places := np.flatnonzero(_several(priced.rows))).size:
        some = priced.take(places)
        peaks = lean_peaks(stage_problems(some.rows, some.seconds, some.memory, scenario))
        peaks = np.where(peaks <= memory_limit(scenario, some.rows), peaks, np.inf)
        least[places] = np.minimum(least[places], peaks)
    return least


def _may_be_uneven(scenario: Scenario) -> bool:
    return scenario.stack.supports.uneven_stages and scenario.depth.uniform


def _several(rows: Strategies) -> Bools:
    """Which rows have several stages of one piece each."""
    return (rows.pp > 1) & (copies(rows) == 1)


def _unevenly(outcome: Outcome, priced: Priced, scenario: Scenario, deadline: float) -> None:
    """Raise the incumbent by the leanest row of a chunk whose stages may differ, split as fast as its peak allows."""
    ceiling = outcome.best.peak * (1 - ROUNDING) if outcome.best else np.inf
    some = priced.take(_several(priced.rows))
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
