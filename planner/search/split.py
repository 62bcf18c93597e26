"""The layers of one strategy: the fastest split of them, or recomputation for one that is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodels.iteration import compose, iteration_of, pipeline_within
from costmodels.layout.split import Assignment, slice_layers
from costmodels.names import Recompute
from costmodels.node_groups import AnyScenario, Mixed, MixedStrategies, as_it_runs, parts_of, price
from costmodels.pricing import bytes_of, row_assignment, seconds_of
from costmodels.strategy import Strategies
from planner.request.budget import SPLIT, Budget
from planner.search.priced import Priced, price_mixed_strategies, price_strategies
from planner.stages.from_strategies import assignment_of, fewest_recomputed, slices_of, whole_pipeline
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


@dataclass(frozen=True)
class Solved:
    """What the stage solver says of one strategy: its best split, None where nothing is below a ceiling."""

    found: Incumbent | None
    seconds: float
    """Of an iteration of it, with its recomputation as what it may come to."""
    bound: float
    """Seconds of an iteration that no split is below."""
    proved: bool


def solve_split(one: Priced, scenario: AnyScenario, *, below: float | None = None, budget: Budget) -> Solved:
    """One strategy under its fastest split that fits and takes less than ``below`` seconds an iteration."""
    cutoff = None if below is None else float(pipeline_within(one.seconds, below)[0])
    solution = solve(one.problem(scenario), cutoff_seconds=cutoff, budget=budget)
    value, bound = (
        float(iteration_of(one.seconds, np.array([pipeline]))[0])
        for pipeline in (solution.objective_seconds, solution.bound_seconds)
    )
    found = None
    if solution.layers:
        row = one.one(0, scenario)
        split = assignment_of(solution, row, parts_of(scenario)[0])
        found = _as_it_runs(Incumbent(row, split, value), scenario)
    return Solved(found, value, bound, solution.status not in ("feasible", "unknown"))


def _as_it_runs(found: Incumbent, scenario: AnyScenario) -> Incumbent:
    """Over several node groups: recomputation called what it comes to, and priced so."""
    run = as_it_runs(found.row, found.assignment)
    if not isinstance(scenario, Mixed) or run.recompute[0] == found.row.recompute[0]:
        return found
    return Incumbent(run, found.assignment, price(run, scenario, found.assignment).iteration)


def best_split(
    row: Strategies, scenario: AnyScenario, *, budget: Budget | None = None, allocated: float | None = None
) -> Incumbent | None:
    """One row under its fastest split that fits, as the search and ``predict`` take it; None where none fits.

    Of equally fast splits it is the even one, which spares the stages that hold the ends: it needs the least memory.
    ``allocated`` bytes are the most that a stage may have, where that is less than the device's.
    ``budget`` is charged, one of its own unless given.
    """
    priced = price_alone(row, scenario)
    if isinstance(scenario, Mixed):
        budget = Budget(effort=SPLIT) if budget is None else budget
        return solve_split(priced, scenario, budget=budget).found if priced.fits[0] else None
    problem = priced.problem(scenario)
    if allocated is not None:
        problem = replace(problem, memory_limit=allocated)
    split = row_assignment(row, scenario.model.num_layers)
    even = _even(priced, split, allocated)
    solution = solve(problem, hint=slices_of(split, row, scenario), budget=budget)
    if not solution.layers:
        return even
    value = float(compose(row, priced.seconds, *whole_pipeline(solution, row))[0])
    if even and value >= even.iteration * (1 - TOLERANCE):
        return even
    return Incumbent(row, assignment_of(solution, row, scenario), value)


def price_alone(row: Strategies, scenario: AnyScenario) -> Priced:
    """One strategy priced in full."""
    if isinstance(scenario, Mixed):
        assert isinstance(row, MixedStrategies)
        return price_mixed_strategies(row, scenario)
    return price_strategies(row, seconds_of(row, scenario), bytes_of(row, scenario), scenario)


def _even(priced: Priced, split: Assignment, allocated: float | None) -> Incumbent | None:
    """One row under its even split, None where that does not fit or the framework divides the layers itself."""
    value, peak = float(priced.even_split_seconds[0]), float(priced.even_split_peak_bytes[0])
    if not priced.fits[0] or not np.isfinite(value) or (allocated is not None and peak > allocated):
        return None
    return Incumbent(priced.rows, split, value, peak)


def given_split(row: Strategies, scenario: AnyScenario, layers: Sequence[int]) -> Assignment:
    """One row with its layers given: PARTIAL recomputes as few of each stage as fit, or all where none do."""
    lead = parts_of(scenario)[0]
    split = row_assignment(row, lead.model.num_layers, layers)
    if row.recompute[0] != Recompute.PARTIAL:
        return split
    problem = price_alone(row, scenario).problem(scenario)
    slices = np.array(slices_of(split, row, lead))
    again = int(slice_layers(lead.model.num_layers, row)[0]) * fewest_recomputed(problem, slices.tolist())
    front = np.minimum(split.layers[: len(again)], again)
    return Assignment(split.layers, np.concatenate([front, (again - front)[::-1]])[: len(split.layers)])
