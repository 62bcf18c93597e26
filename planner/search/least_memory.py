"""The strategy of the least memory on the fullest device, and the split of layers that needs least.

A stage of n layers needs f + w + n s bytes: fixed ones, working ones, and s for each layer's states and what its
micro-batches in flight keep. Under a limit M a stage holds floor((M - f - w) / s) layers at most, so that the least
peak is the least M under which all stages together hold the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from costmodels.layout.stage_contents import copies
from costmodels.memory.limits import memory_limit
from costmodels.pricing import row_assignment
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats, Ints, Strategies
from planner.request.budget import CORE, Budget
from planner.search.best_first import CHUNK, PROMISING, Outcome, fitting_pairs, remember
from planner.search.least_bytes import known_bytes
from planner.search.priced import Priced, in_order, price_pairs
from planner.search.split import Incumbent, best_split, price_alone
from planner.space.lattice import Space
from planner.stages.bounds import RECOMPUTE_MODES, StageRows
from planner.stages.from_strategies import least_peaks, stage_problems

TIMED_CHUNK = CHUNK // 4
"""Cores that are priced between two looks at a time limit, in place of those of a chunk."""
REACH = 1.25
"""Times the bytes of the best up to which strategies are priced, to be shown as runners-up."""
HALVINGS = 60
"""Enough to tell two limits apart that differ in the last digits of a byte count."""
SUM_ROUNDING = 1e-12
"""Relative difference of sums of bytes in another order."""


def least_stage_peaks(rows: StageRows) -> Floats:
    """Bytes of the fullest stage under the split of least memory of each of N stage problems, shape (N,).

    What may be recomputed is. No stage holds fewer layers than it must; infinite where that is too many already.
    """
    given = _columns(rows)
    lowest = np.where(given.stages, _bytes(given, given.fewest), 0.0).max(axis=1)
    layers = np.broadcast_to(np.asarray(rows.num_layers), lowest.shape)
    low, high = lowest, lowest + (given.working + given.slope * layers[:, None]).max(axis=1)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        enough = _held(middle, given).sum(axis=1) >= layers
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    fits = _held(lowest, given).sum(axis=1) >= layers
    fullest = np.where(given.stages, _bytes(given, _held(high, given)), 0.0).max(axis=1)
    exact = np.where(fits, lowest, fullest)
    return np.where((given.fewest * given.stages).sum(axis=1) > layers, np.inf, exact)


def peak_lower_bounds(rows: StageRows) -> Floats:
    """Bytes that no split's fullest stage is below: all stages as full as each other, shape (N,)."""
    given = _columns(rows)
    cheapest = np.where(given.stages, given.slope, np.inf).min(axis=1)
    layers = np.broadcast_to(np.asarray(rows.num_layers), cheapest.shape)
    least = given.fixed + np.where(given.fewest > 0, given.working, 0.0)
    return (np.where(given.stages, least, 0.0).sum(axis=1) + layers * cheapest) / given.stages.sum(axis=1)


class _Columns(NamedTuple):
    """Bytes besides layers, of a stage that recomputes, and per layer; fewest layers; which are stages: (N, P) each."""

    fixed: Floats
    working: Floats
    slope: Floats
    fewest: Floats
    stages: Bools


def _columns(rows: StageRows) -> _Columns:
    again = (rows.recompute != RECOMPUTE_MODES.index("none"))[:, None]
    kept = np.where(again, rows.checkpoint_bytes, rows.activation_bytes)
    slope = rows.layer_bytes[:, None] + kept
    return _Columns(
        fixed=np.broadcast_to(rows.fixed_bytes, slope.shape),
        working=np.broadcast_to(np.where(again, rows.working_bytes, 0.0), slope.shape),
        slope=slope,
        fewest=np.broadcast_to(rows.fewest, slope.shape).astype(np.float64),
        stages=np.arange(slope.shape[1]) < rows.num_stages[:, None],
    )


def _bytes(given: _Columns, layers: Floats) -> Floats:
    """Bytes of stages that hold so many layers; one without any recomputes nothing, (N, P)."""
    return given.fixed + np.where(layers > 0, given.working, 0.0) + layers * given.slope


def _held(limit: Floats, given: _Columns) -> Floats:
    """Layers that every stage holds under a limit, (N, P)."""
    room = limit[:, None] * (1.0 + SUM_ROUNDING) - given.fixed - given.working
    return np.where(given.stages, np.floor(np.maximum(room / given.slope, 0.0)), 0.0)


ROUNDING = 1e-9
"""Relative difference below which two peaks are one."""


def search_least_memory(
    space: Space, scenario: Scenario, *, budget: Budget, among: Ints | None = None, below: float = np.inf
) -> Outcome:
    """The strategy with the lowest peak of all cores, in the order of their bounds; ties go to the faster.

    Proved over splits with all or no layers recomputed: uneven ones too where the stack allows them, its layers are
    alike and stages hold one piece each; else even ones. ``among`` gives the cores to look at, indices (K,); nothing is
    looked for from ``below`` bytes on.
    """
    outcome = Outcome(below=below)
    cores = np.arange(len(space.cores)) if among is None else among
    if budget.spent():
        outcome.proved = False
        return outcome
    bound = known_bytes(space.cores, scenario)
    budget.spend(CORE * len(cores))
    cores = cores[np.argsort(bound[cores], kind="stable")]
    chunk = TIMED_CHUNK if budget.timed else CHUNK
    for start in range(0, len(cores), chunk):
        near = cores[start : start + chunk]
        near = near[bound[near] <= REACH * _ceiling(outcome)]
        if not len(near):
            break
        if budget.spent():
            outcome.proved = False
            break
        priced = _price_lean(outcome, space, near, scenario)
        budget.spend(CORE * chunk + len(near))
        if priced is None:
            continue
        remember(outcome, priced, scenario, by_memory=True)
        if _may_be_uneven(scenario):
            _unevenly(outcome, priced, scenario, budget)
        budget.found(outcome.best.even_split_peak_bytes if outcome.best else None, None)
    if outcome.best:
        outcome.lower_bound = outcome.best.iteration if outcome.proved else 0.0
    return outcome


def _ceiling(outcome: Outcome) -> float:
    """Bytes that a strategy must not exceed to matter."""
    return min(outcome.best.even_split_peak_bytes, outcome.below) if outcome.best else outcome.below


def _price_lean(outcome: Outcome, space: Space, cores: Ints, scenario: Scenario) -> Priced | None:
    """The strategies of the cores that may fit and need hardly more than the best, priced; None where none are left."""
    fitting = fitting_pairs(outcome, space, cores, scenario)
    if fitting is None:
        return None
    lean = least_peaks(fitting.rows, fitting.memory, scenario) <= REACH * _ceiling(outcome)
    outcome.priced += int((~lean).sum())
    if not lean.any():
        return None
    used, place = np.unique(fitting.place[lean], return_inverse=True)
    rows, memory = fitting.rows.take(lean), fitting.memory.take(lean)
    return price_pairs(space.cores.take(cores[used]), place, rows, memory, scenario)


def least_memory_strategies(outcome: Outcome, scenario: Scenario, budget: Budget) -> Iterator[tuple[float, Strategies]]:
    """The strategies of least memory seen, by the bytes of the fullest stage under the split that needs least.

    What a time limit leaves no time to look at is not among them.
    """

    def least_of(part: Priced) -> Floats:
        return np.full(len(part.rows), np.inf) if budget.late else _least(part, scenario)

    for least, part, i in islice(in_order([(0.0, part) for part in outcome.pool], least_of), PROMISING):
        yield least, part.one(i, scenario)


def least_memory_split(row: Strategies, scenario: Scenario, *, budget: Budget | None = None) -> Incumbent | None:
    """One row under the split whose fullest stage needs least, as fast as that allows; None where none fits."""
    priced = price_alone(row, scenario)
    least, even = float(_least(priced, scenario)[0]), float(priced.even_split_peak_bytes[0])
    if least == np.inf:
        return None
    if priced.fits[0] and np.isfinite(priced.even_split_seconds[0]) and even <= least * (1 + ROUNDING):
        return Incumbent(row, row_assignment(row, scenario.model.num_layers), float(priced.even_split_seconds[0]), even)
    found = best_split(row, scenario, budget=budget, allocated=least * (1 + ROUNDING))
    return replace(found, even_split_peak_bytes=least) if found else None


def _least(priced: Priced, scenario: Scenario) -> Floats:
    """Bytes of the fullest stage of every row under the split that needs least, (N,); infinite where none fits."""
    least = np.where(priced.fits & np.isfinite(priced.even_split_seconds), priced.even_split_peak_bytes, np.inf)
    if _may_be_uneven(scenario) and (places := np.flatnonzero(_several(priced.rows))).size:
        some = priced.take(places)
        least[places] = np.minimum(least[places], _fitting_peaks(some, scenario))
    return least


def _fitting_peaks(some: Priced, scenario: Scenario) -> Floats:
    """``least_stage_peaks``, infinite where they do not fit."""
    peaks = least_stage_peaks(stage_problems(some.rows, some.seconds, some.memory, scenario))
    return np.where(peaks <= memory_limit(scenario, some.rows), peaks, np.inf)


def _may_be_uneven(scenario: Scenario) -> bool:
    return scenario.stack.supports.uneven_stages and scenario.depth.uniform


def _several(rows: Strategies) -> Bools:
    """Which rows have several stages of one piece each."""
    return (rows.pp > 1) & (copies(rows) == 1)


def _unevenly(outcome: Outcome, priced: Priced, scenario: Scenario, budget: Budget) -> None:
    """Raise the incumbent by the smallest row of a chunk whose stages may differ, split as fast as its peak allows."""
    ceiling = outcome.best.even_split_peak_bytes * (1 - ROUNDING) if outcome.best else np.inf
    some = priced.take(_several(priced.rows))
    if not len(some.rows):
        return
    problems = stage_problems(some.rows, some.seconds, some.memory, scenario)
    some = some.take(peak_lower_bounds(problems) < ceiling)
    if not len(some.rows):
        return
    peaks = _fitting_peaks(some, scenario)
    best = int(np.lexsort((some.bound, peaks))[0])
    if peaks[best] >= ceiling:
        return
    row = some.one(best, scenario)
    peak = float(peaks[best])
    if found := best_split(row, scenario, budget=budget, allocated=peak * (1 + ROUNDING)):
        outcome.feasible += int(not some.fits[best])
        outcome.best = replace(found, even_split_peak_bytes=peak)
