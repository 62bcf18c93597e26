"""The layers of one strategy: the fastest split of them, or recomputation for one that is given."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from costmodels.iteration import compose, row_seconds
from costmodels.memory import row_bytes
from costmodels.pricing import Assignment, row_assignment
from costmodels.scenario import Scenario
from costmodels.split import slice_layers
from costmodels.strategy import Recompute, Strategies
from planner.search import Incumbent
from planner.stage_rows import assignment_of, fewest_recomputed, problem_of, slices_of, whole_pipeline
from planner.stages import solve


def best_split(
    row: Strategies, scenario: Scenario, *, deadline: float, allocated: float | None = None
) -> Incumbent | None:
    """One row under its fastest split that fits, by the same stage problem as in the search; None where none fits.

    ``allocated`` bytes are the most that a stage may have, where that is less than the device's.
    """
    seconds, memory = row_seconds(row, scenario), row_bytes(row, scenario)
    left = max(deadline - time.perf_counter(), 0.05)
    problem = problem_of(row, seconds, memory, scenario)
    if allocated is not None:
        problem = replace(problem, memory_limit=allocated)
    solution = solve(problem, time_limit=left)
    if not solution.layers:
        return None
    value = compose(row, seconds, *whole_pipeline(solution, row))[0]
    return Incumbent(row, assignment_of(solution, row, scenario), float(value))


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
