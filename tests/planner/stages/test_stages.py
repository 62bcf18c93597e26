import itertools
import subprocess
import sys
from dataclasses import fields, replace
from functools import cache
from time import process_time
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from costmodels.pipeline.schedules import SCHEDULES, pipeline_seconds
from planner.request.budget import Budget
from planner.stages.bounds import RECOMPUTE_MODES, StageRows, stage_lower_bound
from planner.stages.problem import StageProblem
from planner.stages.solver import solve
from planner.stages.tables import split_of

BY_STAGE = ("extra_seconds", "fixed_bytes", "activation_bytes", "checkpoint_bytes", "fewest")


@cache
def every_split(num_layers, num_stages):
    """All (layers, recomputed) of all stages, as two arrays of shape (splits, stages)."""
    splits = [
        (layers, recomputed)
        for layers in itertools.product(range(num_layers + 1), repeat=num_stages)
        if sum(layers) == num_layers
        for recomputed in itertools.product(*(range(n + 1) for n in layers))
    ]
    return tuple(np.array(part) for part in zip(*splits, strict=True))


def brute_force(problem):
    """Least objective, and the fewest recomputed layers of a split that attains it; None if none fits."""
    layers, recomputed = every_split(problem.num_layers, problem.num_stages)
    fits = (layers >= (problem.fewest or 1)).all(axis=1)
    if not problem.uneven:
        fits = (layers >= 1).all(axis=1)
        fits &= (layers * problem.num_stages == problem.num_layers).all(axis=1)
    if problem.recompute != "free":
        fits &= (recomputed == (layers if problem.recompute == "all" else 0)).all(axis=1)
    used = (
        layers * problem.layer_bytes
        + (layers - recomputed) * np.array(problem.activation_bytes)
        + recomputed * np.array(problem.checkpoint_bytes)
        + (recomputed > 0) * problem.working_bytes
        + np.array(problem.fixed_bytes)
    )
    fits &= (used <= problem.memory_limit).all(axis=1)
    if not fits.any():
        return None
    layers, recomputed = layers[fits], recomputed[fits]
    seconds = layers * problem.layer_seconds + recomputed * problem.recompute_seconds + problem.extra_seconds
    slowest, total = seconds.max(axis=1), seconds.sum(axis=1)
    objective = problem.num_microbatches * slowest + (total - slowest) / problem.vpp
    best = objective.min()
    return best, recomputed.sum(axis=1)[objective <= best * (1 + 1e-12)].min()


@st.composite
def problems(draw, *, memory=True):
    p = draw(st.integers(1, 4))
    num_layers = draw(st.integers(1, (8, 7, 7, 6)[p - 1]))
    whole = st.integers(0, 12)
    tenths = st.integers(0, 30).map(lambda x: x / 10)
    activation = draw(st.tuples(*[whole] * p))
    checkpoint = tuple(draw(st.integers(0, a + (draw(st.integers(0, 9)) == 0))) for a in activation)
    return StageProblem(
        num_layers=num_layers,
        num_stages=p,
        vpp=draw(st.sampled_from([1, 1, 2, 4])),
        num_microbatches=draw(st.integers(1, 6)),
        layer_seconds=draw(st.integers(1, 20)) / 10,
        recompute_seconds=draw(tenths),
        extra_seconds=draw(st.tuples(*[tenths] * p)),
        memory_limit=float(draw(st.integers(0, 60))) if memory else 1e9,
        fixed_bytes=draw(st.tuples(*[whole] * p)),
        layer_bytes=draw(st.integers(0, 8)),
        activation_bytes=activation,
        checkpoint_bytes=checkpoint,
        recompute=draw(st.sampled_from(["free", "free", "free", "none", "all"])),
        uneven=draw(st.sampled_from([True, True, True, False])),
        working_bytes=draw(st.sampled_from([0, 0, 3, 9])),
        fewest=draw(st.one_of(st.none(), st.tuples(*[st.integers(0, 2)] * p))),
    )


def rows_of(given_problems):
    """Problems as columns, the stages that a row lacks filled with what must never be read."""
    widest = max(problem.num_stages for problem in given_problems)
    columns = {}
    for field in fields(StageRows):
        values = [getattr(problem, field.name) for problem in given_problems]
        if field.name == "fewest":
            values = [value or (1,) * problem.num_stages for value, problem in zip(values, given_problems, strict=True)]
        if field.name == "recompute":
            values = [RECOMPUTE_MODES.index(value) for value in values]
        if field.name in BY_STAGE or isinstance(values[0], tuple):
            values = [(*value, *[np.nan] * (widest - len(value))) for value in values]
        columns[field.name] = np.array(values)
    return StageRows(**columns)


def bounds_of(given_problems):
    """What the rows' bounds say of the objective: infinite where infeasible."""
    rows = rows_of(given_problems)
    bound = stage_lower_bound(rows)
    objective = pipeline_seconds(
        micro_batches=rows.num_microbatches,
        slowest=np.where(bound.feasible, bound.slowest, 0.0),
        total=np.where(bound.feasible, bound.total, 0.0),
        vpp=rows.vpp,
    )
    return np.where(bound.feasible, objective, np.inf), bound


def check(problem, solution):
    """The solution is what it says it is, in plain arithmetic."""
    layers, recomputed = np.array(solution.layers), np.array(solution.recompute_layers)
    assert layers.sum() == problem.num_layers
    assert np.all(layers >= ((problem.fewest if problem.uneven else None) or 1))
    assert np.all((recomputed >= 0) & (recomputed <= layers))
    assert np.all(problem.stage_bytes(layers, recomputed) <= problem.memory_limit)
    seconds = problem.stage_seconds(layers, recomputed)
    assert solution.slowest_seconds == seconds.max()
    assert solution.total_seconds == pytest.approx(seconds.sum())
    assert solution.bound_seconds <= solution.objective_seconds


@given(problem=problems())
@settings(max_examples=500, deadline=None)
def test_the_solver_finds_what_brute_force_finds(problem):
    solution, expected = solve(problem), brute_force(problem)
    if expected is None:
        assert (solution.status, solution.layers, solution.bound_seconds) == ("infeasible", (), np.inf)
        return
    assert solution.status == "optimal"
    check(problem, solution)
    assert solution.objective_seconds == pytest.approx(expected[0], rel=1e-9)
    assert expected[0] * (1 - 1e-7) <= solution.bound_seconds <= expected[0] * (1 + 1e-12)
    assert sum(solution.recompute_layers) == expected[1]


@given(batch=st.lists(problems(), min_size=1, max_size=4))
@settings(max_examples=500, deadline=None)
def test_the_bound_of_many_rows_never_exceeds_the_optimum_of_any(batch):
    objective, bound = bounds_of(batch)
    for k, problem in enumerate(batch):
        expected = brute_force(problem)
        assert bound.feasible[k] == (expected is not None)
        assert objective[k] <= (np.inf if expected is None else expected[0])
        if expected is not None and not problem.uneven:
            assert objective[k] == pytest.approx(expected[0], rel=1e-8)


@given(problem=problems(memory=False))
@settings(max_examples=500, deadline=None)
def test_the_bound_is_the_optimum_where_memory_does_not_bind(problem):
    expected = brute_force(problem)
    if expected is not None:
        assert bounds_of([problem])[0][0] == pytest.approx(expected[0], rel=1e-8)


@given(problem=problems(), share=st.sampled_from([0.5, 0.9, 1 - 1e-6, 1.0, 1 + 1e-6, 1.1, 3.0]))
@settings(max_examples=500, deadline=None)
def test_a_cutoff_is_beaten_or_proved_unbeatable(problem, share):
    expected = brute_force(problem)
    if expected is None:
        return
    cutoff = expected[0] * share
    solution = solve(problem, cutoff_seconds=cutoff)
    if share > 1:
        assert solution.status == "optimal"
        assert solution.objective_seconds == pytest.approx(expected[0], rel=1e-9)
    elif share < 1:
        assert (solution.status, solution.layers) == ("infeasible", ())
        assert cutoff * (1 - 1e-7) <= solution.bound_seconds <= expected[0]


def front_loaded(problem, table, _hint):
    """A split that is nearly always bad: as many layers as can be on the first stages."""
    layers = table.fewest.copy()
    for stage in range(problem.num_stages):
        layers[stage] += min(table.most[stage] - layers[stage], problem.num_layers - layers.sum())
    return split_of(problem, table, layers)


@given(problem=problems(), share=st.sampled_from([None, None, 1 - 1e-6, 1 + 1e-6, 1.2]))
@settings(max_examples=500, deadline=None)
def test_the_solver_needs_no_good_start_to_find_what_brute_force_finds(problem, share):
    expected = brute_force(problem)
    if expected is None:
        return
    cutoff = None if share is None else expected[0] * share
    with patch("planner.stages.solver.incumbent", front_loaded):
        solution = solve(problem, cutoff_seconds=cutoff)
    if share is not None and share < 1:
        assert (solution.status, solution.layers) == ("infeasible", ())
        return
    assert solution.status == "optimal"
    check(problem, solution)
    assert solution.objective_seconds == pytest.approx(expected[0], rel=1e-9)
    assert sum(solution.recompute_layers) >= expected[1]  # whole units of time cannot tell ties apart


@given(problem=problems(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_hint_good_or_bad_changes_no_optimum(problem, data):
    hint = data.draw(st.lists(st.integers(0, 8), min_size=1, max_size=4))
    plain, hinted = solve(problem), solve(problem, hint=hint)
    assert hinted.status == plain.status
    if plain.layers:
        assert hinted.objective_seconds == pytest.approx(plain.objective_seconds, rel=1e-9)


def tight(seed, num_stages, num_layers=96):
    """A transformer under 1F1B whose early stages cannot store the activations of all their layers."""
    rng = np.random.default_rng(seed)
    in_flight = SCHEDULES["1f1b"].in_flight(num_stages, 4 * num_stages, 1, np.arange(num_stages))
    stored = rng.uniform(0.8, 1.2) * 10e9 / num_stages * in_flight
    share = rng.uniform(0.03, 0.15)
    n = num_layers / num_stages
    least, most = n * (2e9 + share * stored[0]), n * (2e9 + stored[0])
    ends = np.zeros(num_stages)
    ends[[0, -1]] = 1.0
    return StageProblem(
        num_layers=num_layers,
        num_stages=num_stages,
        vpp=1,
        num_microbatches=4 * num_stages,
        layer_seconds=0.010 * rng.uniform(0.9, 1.1),
        recompute_seconds=0.0032 * rng.uniform(0.8, 1.1),
        extra_seconds=tuple(1e-4 + ends * rng.uniform(0, 0.01, num_stages)),
        memory_limit=least + (most - least) * rng.uniform(0.15, 0.6) + 4e9,
        fixed_bytes=tuple(1e9 + ends * rng.uniform(1e9, 4e9, num_stages)),
        layer_bytes=2e9,
        activation_bytes=tuple(stored),
        checkpoint_bytes=tuple(share * stored),
        recompute="free",
        uneven=True,
        working_bytes=float(stored[-1]),
    )


def second_opinion(problem):
    """The same problem as a plain mixed-integer program: M, then n, r and "any r" of every stage."""
    p, L, m, v = problem.num_stages, problem.num_layers, problem.num_microbatches, problem.vpp
    eye, zero, column = np.eye(p), np.zeros((p, p)), np.zeros((p, 1))
    saved = np.diag(np.subtract(problem.activation_bytes, problem.checkpoint_bytes))
    held = np.diag(problem.layer_bytes + np.array(problem.activation_bytes))
    room = problem.memory_limit - np.array(problem.fixed_bytes)
    unit = problem.layer_seconds
    again = problem.recompute_seconds / unit
    extra = np.array(problem.extra_seconds) / unit
    constraints = [
        LinearConstraint(np.concatenate([[0.0], np.ones(p), np.zeros(2 * p)]), L, L),
        LinearConstraint(np.hstack([column - 1, eye, again * eye, zero]), -np.inf, -extra),
        LinearConstraint(np.hstack([column, held, -saved, problem.working_bytes * eye]) / 1e9, -np.inf, room / 1e9),
        LinearConstraint(np.hstack([column, -eye, eye, zero]), -np.inf, 0),
        LinearConstraint(np.hstack([column, zero, eye, -L * eye]), -np.inf, 0),
    ]
    cost = np.concatenate([[m - 1 / v], np.full(p, 1 / v), np.full(p, again / v), np.zeros(p)])
    low = np.concatenate([[0.0], np.full(p, v), np.zeros(2 * p)])
    high = np.concatenate([[np.inf], np.full(2 * p, L), np.ones(p)])
    found = milp(
        cost,
        constraints=constraints,
        bounds=Bounds(low, high),
        integrality=np.concatenate([[0], np.ones(3 * p)]),
        options={"mip_rel_gap": 0.0},
    )
    return found.fun * unit + sum(problem.extra_seconds) / v


@pytest.mark.parametrize(
    ("seed", "num_stages", "num_layers"), [(s, p, L) for s in range(4) for p, L in ((4, 32), (6, 40))]
)
def test_another_solver_agrees_on_middling_problems(seed, num_stages, num_layers):
    problem = tight(seed, num_stages, num_layers)
    solution = solve(problem)
    assert sum(solution.recompute_layers) > 0
    check(problem, solution)
    assert solution.objective_seconds == pytest.approx(second_opinion(problem), rel=1e-6)


def test_the_bound_is_within_two_percent_where_stages_must_recompute():
    batch = [tight(seed, p) for seed in range(10) for p in (8, 16, 32)]
    found = np.array([solve(problem).objective_seconds for problem in batch])
    objective, bound = bounds_of(batch)
    gap = found / objective - 1
    assert bound.feasible.all()
    assert gap.min() >= 0
    assert np.median(gap) < 0.005
    assert gap.max() < 0.02


def test_96_layers_over_up_to_64_stages_are_proved_in_a_blink():
    solve(tight(0, 8))
    for p in (8, 16, 32, 64):
        started = process_time()
        solutions = [solve(tight(seed, p)) for seed in range(8)]
        assert {solution.status for solution in solutions} == {"optimal"}
        assert process_time() - started < 8 * 0.05


def test_twenty_thousand_rows_are_bounded_in_a_moment():
    batch = [tight(seed, p) for seed in range(10) for p in (1, 2, 4, 8, 16, 32, 64)]
    rows = rows_of(batch)
    many = StageRows(**{f.name: np.concatenate([getattr(rows, f.name)] * 286) for f in fields(StageRows)})
    start = process_time()
    bound = stage_lower_bound(many)
    assert process_time() - start < 1.0
    assert bound.slowest.shape == (286 * 70,)
    np.testing.assert_array_equal(bound.slowest[:70], bound.slowest[-70:])


def test_one_number_stands_for_all_rows_of_the_bound():
    problem = replace(tight(1, 8), extra_seconds=(0.0,) * 8, fixed_bytes=(0.0,) * 8)
    rows = rows_of([problem])
    plain = stage_lower_bound(rows)
    short = stage_lower_bound(replace(rows, num_layers=96, extra_seconds=0.0, fixed_bytes=0.0, vpp=np.array([1, 1])))
    assert short.slowest.tolist() == plain.slowest.tolist() * 2


def test_ties_are_broken_by_fewer_recomputed_layers_then_by_an_even_spread():
    problem = StageProblem(
        num_layers=10,
        num_stages=4,
        vpp=1,
        num_microbatches=8,
        layer_seconds=1.0,
        recompute_seconds=0.0,
        extra_seconds=(3.0, 0.0, 0.0, 0.0),
        memory_limit=100.0,
        fixed_bytes=(0.0,) * 4,
        layer_bytes=1.0,
        activation_bytes=(20.0,) * 4,
        checkpoint_bytes=(1.0,) * 4,
        recompute="free",
        uneven=True,
    )
    solution = solve(problem)
    assert (solution.layers, solution.recompute_layers) == ((1, 3, 3, 3), (0, 0, 0, 0))
    assert solve(replace(problem, extra_seconds=(0.0,) * 4)).layers in set(itertools.permutations((2, 2, 3, 3)))


def test_memory_moves_layers_off_the_first_stage_when_nothing_may_be_recomputed():
    problem = replace(tight(3, 8), recompute="none")
    assert solve(problem).status == "infeasible"
    most = problem.stage_bytes(np.full(8, 12), 0)[0]
    layers = solve(replace(problem, memory_limit=most * 0.9)).layers
    assert layers[0] < 12 < max(layers)


def test_even_stages_that_do_not_divide_the_layers_are_infeasible():
    problem = replace(tight(0, 8), uneven=False, memory_limit=1e15)
    assert solve(problem).layers == (12,) * 8
    assert solve(replace(problem, num_layers=95)).status == "infeasible"
    assert not bounds_of([replace(problem, num_layers=95)])[1].feasible[0]


def hardest():
    return next(
        problem
        for problem in (tight(seed, 8) for seed in range(50))
        if solve(problem, budget=Budget(effort=0.0)).status == "feasible"
    )


def test_running_out_of_time_keeps_a_split_that_fits_and_an_honest_bound():
    problem = hardest()
    hasty, proved = solve(problem, budget=Budget(effort=0.0)), solve(problem)
    check(problem, hasty)
    assert proved.status == "optimal"
    assert hasty.bound_seconds <= proved.objective_seconds <= hasty.objective_seconds
    assert solve(problem, budget=Budget(0.0), cutoff_seconds=proved.objective_seconds * (1 - 1e-5)).status in {
        "unknown",
        "infeasible",
    }


def test_the_same_problem_has_the_same_answer_every_time():
    problem = hardest()
    answers = {solve(problem) for _ in range(3)}
    assert len(answers) == 1


def test_per_stage_fields_of_the_wrong_length_are_refused():
    with pytest.raises(ValueError, match="fixed_bytes has 1 entries for 8 stages"):
        replace(tight(0, 8), fixed_bytes=(1.0,))


def test_importing_the_stage_solver_does_not_load_ortools():
    code = "import sys, planner.stages.solver; print('ortools' in sys.modules, 'scipy' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False"]
