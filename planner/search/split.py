"""The layers of one strategy: the fastest split of them, or recomputation for one that is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodels.iteration import compose, row_seconds
from costmodels.layout.split import Assignment, slice_layers
from costmodels.memory.rows import row_bytes
from costmodels.names import Recompute
from costmodels.pricing import row_assignment
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies
from planner.request.budget import Budget
from planner.search.priced import Priced, price_rows
from planner.stages.from_rows import assignment_of, fewest_recomputed, problem_of, slices_of, whole_pipeline
from planner.stages.solver import solve

TOLERANCE = 1e-9
"""Relative difference below which two times are one."""


@dataclass(frozen=True)
class Incumbent:
    """The best strategy so far: one row, its stages and its seconds per iteration."""

    row: Strategies
    assignment: Assignment
    iteration: float
    even_split_peak_bytes: float = np.inf
    """Bytes allocated on the worst stage of an even split; not known of others."""


def best_split(
    row: Strategies, scenario: Scenario, *, budget: Budget | None = None, allocated: float | None = None
) -> Incumbent | None:
    """One row under its fastest split that fits, as the search and ``predict`` take it; None where none fits.

    Of equally fast splits it is the even one, which spares the stages that hold the ends: it needs the least memory.
    ``allocated`` bytes are the most that a stage may have, where that is less than the device's.
    ``budget`` is charged, one of its own unless given.
    """
    priced = price_rows(row, row_seconds(row, scenario), scenario)
    problem = problem_of(row, priced.seconds, priced.memory, scenario)
    if allocated is not None:
        problem = replace(problem, memory_limit=allocated)
    split = row_assignment(row, scenario.model.num_layers)
    even = _even(priced, split, allocated)
    hint = slices_of(split, row, scenario)
    solution = solve(problem, hint=hint, budget=budget)
    if not solution.layers:
        return even
    value = float(compose(row, priced.seconds, *whole_pipeline(solution, row))[0])
    if even and value >= even.iteration * (1 - TOLERANCE):
        return even
    return Incumbent(row, assignment_of(solution, row, scenario), value)


def _even(priced: Priced, split: Assignment, allocated: float | None) -> Incumbent | None:
    """One row under its even split, None where that does not fit or the framework divides the layers itself."""
    value, peak = float(priced.even_split_seconds[0]), float(priced.even_split_peak_bytes[0])
    if not priced.fits[0] or not np.isfinite(value) or (allocated is not None and peak > allocated):
        return None
    return Incumbent(priced.rows, split, value, peak)


def given_split(row: Strategies, scenario: Scenario, layers: Sequence[int]) -> Assignment:
    """One row with its layers given: PARTIAL recomputes as few of each stage as fit, or all where none do."""
    split = row_assignment(row, scenario.model.num_layers, layers)
    if row.recompute[0] != Recompute.PARTIAL:
        return split
    problem = problem_of(row, row_seconds(row, scenario), row_bytes(row, scenario), scenario)
    slices = np.array(slices_of(split, row, scenario))
    again = int(slice_layers(scenario.model.num_layers, row)[0]) * fewest_recomputed(problem, slices.tolist())
    front = np.minimum(split.layers[: len(again)], again)
    return Assignment(split.layers, np.concatenate([front, (again - front)[::-1]])[: len(split.layers)])
