"""One number of recomputed layers for all stages, as Megatron-LM has it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.stages.chain import may_beat, may_fit
from planner.stages.from_strategies import fewest_recomputed
from planner.stages.solver import solve
from tests.planner.stages.test_chain import chains, every_choice
from tests.planner.stages.test_stages import brute_force, check, every_split, problems


def one_number(problem):
    """The least objective over all splits that fit and recompute as many layers of every stage."""
    best = np.inf
    for first in range(problem.num_layers + 1):
        layers, recomputed = every_split(problem.num_layers, problem.num_stages)
        alike = (recomputed == np.minimum(first, layers)).all(axis=1)
        fits = alike & (layers >= (problem.fewest or 1)).all(axis=1)
        if not problem.uneven:
            fits = alike & (layers * problem.num_stages == problem.num_layers).all(axis=1)
        fits &= (problem.stage_bytes(layers, recomputed) <= problem.memory_limit).all(axis=1)
        if fits.any():
            seconds = problem.stage_seconds(layers[fits], recomputed[fits])
            slowest, total = seconds.max(axis=1), seconds.sum(axis=1)
            best = min(best, (problem.num_microbatches * slowest + (total - slowest) / problem.vpp).min())
    return best


@given(problem=problems(), share=st.sampled_from([None, None, 0.9, 1.1]))
@settings(max_examples=300, deadline=None)
def test_the_solver_finds_the_best_of_one_number(problem, share):
    problem = replace(problem, recompute="free", alike=True)
    expected = one_number(problem)
    cutoff = None if share is None or not np.isfinite(expected) else expected * share
    solution = solve(problem, cutoff_seconds=cutoff)
    if not np.isfinite(expected) or (cutoff is not None and cutoff < expected):
        assert (solution.status, solution.layers) == ("infeasible", ())
        return
    assert solution.status == "optimal"
    check(problem, solution)
    assert solution.recompute_layers == first_of(solution.layers, max(solution.recompute_layers))
    assert solution.objective_seconds == pytest.approx(expected, rel=1e-9)


@given(problem=problems())
@settings(max_examples=200, deadline=None)
def test_one_number_is_never_better_than_a_number_for_each_stage(problem):
    free = brute_force(replace(problem, recompute="free"))
    alike = solve(replace(problem, recompute="free", alike=True))
    assert alike.objective_seconds >= (np.inf if free is None else free[0]) * (1 - 1e-12)


@given(problem=chains())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_chain_of_slices_that_differ_has_one_number_too(problem):
    problem = replace(problem, recompute="free", alike=True)
    alike = [value for value, layers, again in every_choice(problem) if again == first_of(layers, max(again))]
    solution = solve(problem)
    if not alike:
        assert solution.status == "infeasible"
        return
    assert solution.recompute_layers == first_of(solution.layers, max(solution.recompute_layers))
    assert solution.objective_seconds == pytest.approx(min(alike), rel=1e-9)


@given(problem=chains())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_number_is_left_out_that_fits_or_may_be_faster(problem):
    problem, fits = replace(problem, recompute="free"), may_fit(problem)
    inside, all_of_them = every_choice(problem), every_choice(replace(problem, memory_limit=math.inf))
    for _, layers, again in inside:
        assert all(fits[first] for first in range(problem.num_layers + 1) if again == first_of(layers, first))
    for value, layers, again in all_of_them:
        if again == first_of(layers, max(again)):
            one = replace(problem, recompute="first", first=max(again))
            assert may_beat(one, value * (1 + 1e-9))


def first_of(layers, first):
    return tuple(min(first, n) for n in layers)


@given(problem=problems())
@settings(max_examples=200, deadline=None)
def test_the_fewest_of_a_given_split_is_one_number(problem):
    problem = replace(problem, recompute="free", alike=True, uneven=True, fewest=None)
    layers, left = divmod(problem.num_layers, problem.num_stages)
    slices = [layers + (stage < left) for stage in range(problem.num_stages)]
    again = fewest_recomputed(problem, slices)
    assert tuple(again) == first_of(slices, max(again))
