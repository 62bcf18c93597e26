"""Stages that differ in what a layer costs them: the solver against brute force, the bound against both."""

from dataclasses import replace
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.stages.problem import StageProblem
from planner.stages.solver import solve
from planner.stages.tables import split_of, stage_table
from tests.planner.stages.test_stages import bounds_of, brute_force, check, problems, tight


@st.composite
def uneven_problems(draw):
    """A problem whose stages differ in seconds, bytes and memory."""
    problem = draw(problems())

    def each(low, high, scale=1):
        return tuple(draw(st.integers(low, high)) / scale for _ in range(problem.num_stages))

    return replace(
        problem,
        layer_seconds=each(1, 20, 10),
        recompute_seconds=each(0, 30, 10),
        layer_bytes=each(0, 8),
        memory_limit=each(10, 70),
        working_bytes=each(0, 6),
    )


@given(problem=uneven_problems())
@settings(max_examples=300, deadline=None)
def test_the_solver_finds_what_brute_force_finds(problem):
    solution, expected = solve(problem), brute_force(problem)
    if expected is None:
        assert (solution.status, solution.layers) == ("infeasible", ())
        return
    assert solution.status == "optimal"
    check(problem, solution)
    assert solution.objective_seconds == pytest.approx(expected[0], rel=1e-8)
    assert expected[0] * (1 - 1e-7) <= solution.bound_seconds <= expected[0] * (1 + 1e-12)


@given(problem=uneven_problems(), share=st.sampled_from([1 - 1e-6, 1 + 1e-6, 1.2]))
@settings(max_examples=300, deadline=None)
def test_a_cutoff_is_beaten_or_proved_unbeatable(problem, share):
    expected = brute_force(problem)
    if expected is None:
        return
    solution = solve(problem, cutoff_seconds=expected[0] * share)
    if share > 1:
        assert solution.objective_seconds == pytest.approx(expected[0], rel=1e-8)
    else:
        assert (solution.status, solution.layers) == ("infeasible", ())


@given(batch=st.lists(uneven_problems(), min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_the_bound_never_exceeds_the_optimum(batch):
    for problem in batch:
        objective, bound = bounds_of([problem])
        expected = brute_force(problem)
        assert bound.feasible[0] == (expected is not None)
        assert objective[0] <= (np.inf if expected is None else expected[0])


def test_a_stage_that_is_empty_needs_no_room_to_recompute():
    problem = StageProblem(
        num_layers=1,
        num_stages=3,
        vpp=1.0,
        num_microbatches=1,
        layer_seconds=0.1,
        recompute_seconds=0.1,
        extra_seconds=(0.0, 0.0, 0.0),
        memory_limit=3.0,
        fixed_bytes=(0.0, 0.0, 0.0),
        layer_bytes=1.0,
        activation_bytes=(0.0, 0.0, 0.0),
        checkpoint_bytes=(0.0, 0.0, 0.0),
        recompute="all",
        uneven=True,
        working_bytes=(4.0, 1.0, 4.0),
        fewest=(0, 1, 0),
    )
    assert solve(problem).layers == (0, 1, 0)
    assert bounds_of([problem])[1].feasible[0]


@given(problem=problems())
@settings(max_examples=300, deadline=None)
def test_equal_numbers_for_every_stage_are_the_same_problem(problem):
    names = ("layer_seconds", "recompute_seconds", "layer_bytes", "memory_limit", "working_bytes")
    spread = replace(problem, **{name: (float(getattr(problem, name)),) * problem.num_stages for name in names})
    one, each = solve(problem), solve(spread)
    assert (one.status, one.layers, one.recompute_layers) == (each.status, each.layers, each.recompute_layers)
    assert bounds_of([spread])[0][0] <= bounds_of([problem])[0][0] * (1 + 1e-8)


def halves(seed, num_stages, ratio=2.3):
    """A tight problem whose second half runs on machines that are faster and hold more."""
    plain = tight(seed, num_stages)
    fast = np.arange(num_stages) >= num_stages // 2
    return replace(
        plain,
        layer_seconds=tuple(plain.layer_seconds * np.where(fast, 1 / ratio, 1.0)),
        recompute_seconds=tuple(plain.recompute_seconds * np.where(fast, 1 / ratio, 1.0)),
        memory_limit=tuple(plain.memory_limit * np.where(fast, 1.5, 1.0)),
    )


def test_two_kinds_of_machines_of_up_to_16_stages_are_proved_in_a_moment():
    solve(halves(0, 8))
    for p in (8, 16):
        started = process_time()
        solutions = [solve(halves(seed, p)) for seed in range(8)]
        assert {solution.status for solution in solutions} == {"optimal"}
        assert process_time() - started < 8 * 2.0


def test_the_faster_machines_hold_more_layers():
    problem = replace(halves(1, 8), memory_limit=1e15)
    layers = solve(problem).layers
    assert min(layers[4:]) > max(layers[:4])


def test_a_number_for_every_stage_must_come_for_every_stage():
    problem = tight(0, 8)
    with pytest.raises(ValueError, match="layer_seconds has 3 entries for 8 stages"):
        replace(problem, layer_seconds=(1.0, 1.0, 1.0))


def test_levels_of_the_table_hold_what_every_stage_says():
    problem = StageProblem(
        num_layers=4,
        num_stages=2,
        vpp=1,
        num_microbatches=2,
        layer_seconds=(1.0, 2.0),
        recompute_seconds=(0.5, 0.25),
        extra_seconds=(0.0, 0.0),
        memory_limit=(10.0, 20.0),
        fixed_bytes=(0.0, 0.0),
        layer_bytes=(1.0, 2.0),
        activation_bytes=(4.0, 4.0),
        checkpoint_bytes=(1.0, 1.0),
        recompute="free",
        uneven=True,
    )
    split = split_of(problem, stage_table(problem), np.array([3, 1]))
    assert split.slowest == 3 * 1.0 + 2 * 0.5
    assert split.total == pytest.approx(3 * 1.0 + 2 * 0.5 + 1 * 2.0)
    assert split.recomputed == 2
