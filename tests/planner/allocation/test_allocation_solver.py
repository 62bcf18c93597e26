"""The solver that divides a cluster: as brute force finds it, and at size."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from planner.allocation.solver import Held, Options, solve
from planner.request.budget import SEARCH, Budget


def best_by_force(options):
    """Every combination; the least by the objectives in order, None where none fits."""
    by_job = [np.flatnonzero(options.job == job) for job in np.unique(options.job)]
    best = None
    for chosen in map(list, itertools.product(*by_job)):
        used = [options.nodes[chosen][options.group[chosen] == g].sum() for g in range(len(options.capacity))]
        if (np.array(used) <= options.capacity).all() and is_a_schedule(options, chosen):
            sums = tuple(round(float(objective[chosen].sum()), 9) for objective in options.objectives)
            best = sums if best is None else min(best, sums)
    return best


def is_a_schedule(options, chosen):
    """Whether the nodes suffice whenever one of those who wait begins, save after everything."""
    held = options.held
    if held is None:
        return True
    for moment, at in ((held.start[o], held.group[o]) for o in chosen):
        then = [o for o in chosen if held.group[o] == at and held.start[o] <= moment < held.until[o]]
        if 0 < moment < held.start.max() and sum(held.nodes[o] for o in then) > options.capacity[at]:
            return False
    return True


def drawn_to_wait(rng, jobs, groups, nodes, moments=4):
    """Options as a queue makes them: places that are held for a time, now or from a moment on."""
    drawn_places = rng.integers((0, 1), (groups, nodes + 1), (jobs, 2, 2))
    rows = []
    for job, places in enumerate(drawn_places):
        for group, taken in places:
            length = round(rng.uniform(0.5, 6.0), 2)
            rows.append((job, group, taken, group, taken, 0.0, length))
            starts = [1.0, *np.round(rng.uniform(1.0, 9.0, moments), 2), 99.0]
            rows += [(job, -1, 0, group, taken, start, start + length) for start in starts]
    job, group, taken, at, wanted, start, until = (np.array(column) for column in zip(*rows, strict=True))
    weight = rng.uniform(0.5, 3.0, jobs)[job]
    late = np.where(until > 5.0, weight, 0.0)
    return Options(job, group, taken, (late, weight * until), np.full(groups, nodes), Held(at, wanted, start, until))


def test_only_sums_of_the_last_objective_are_told():
    told, options = [], drawn_to_wait(np.random.default_rng(0), 3, 1, 4)
    found = solve(options, budget=Budget(), report=lambda cost, _bound: told.append(cost))
    assert min(told) == pytest.approx(found.value)


def test_the_bound_that_is_told_is_in_the_units_of_the_sum():
    told, places = [], np.array([0, 0])
    dear = Options(places, places, np.array([2, 1]), (np.array([1.0, 3.0]),), np.array([1]))
    solve(dear, budget=Budget(), report=lambda *both: told.append(both))
    assert told == [(pytest.approx(3.0), pytest.approx(3.0))]


@pytest.mark.parametrize("unproved", [1, 2])
def test_a_choice_is_proved_where_it_is_under_every_objective(unproved, monkeypatch):
    solved, calls = cp_model.CpSolver.solve, []

    def stopped(solver, *given):
        status = solved(solver, *given)
        calls.append(status)
        return cp_model.FEASIBLE if len(calls) == unproved else status

    monkeypatch.setattr(cp_model.CpSolver, "solve", stopped)
    assert not solve(drawn_to_wait(np.random.default_rng(0), 2, 1, 4), budget=Budget()).proved
    assert len(calls) == 2


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 2), st.integers(2, 6))
def test_who_waits_is_reckoned_as_brute_force_reckons(seed, jobs, groups, nodes):
    options = drawn_to_wait(np.random.default_rng(seed), jobs, groups, nodes)
    found, expected = solve(options, budget=Budget()), best_by_force(options)
    assert found.proved
    sums = [float(objective[found.options].sum()) for objective in options.objectives]
    assert sums == pytest.approx(expected, abs=1e-6)
    assert is_a_schedule(options, found.options)


def drawn(rng, jobs, groups, nodes, objectives, sizes):
    rows = []
    for job in range(jobs):
        if rng.random() < 0.7:
            rows.append((job, -1, 0))
        rows += [(job, int(rng.integers(groups)), int(rng.integers(1, nodes + 1))) for _ in range(int(sizes))]
    job, group, taken = (np.array(column) for column in zip(*rows, strict=True))
    costs = [np.round(rng.uniform(-5, 5, len(job)), 3) for _ in range(objectives)]
    first = np.where(rng.random(len(job)) < 0.7, 0.0, 1.0)  # ties, as deadlines make them
    return Options(job, group, taken, (first, *costs), np.full(groups, nodes))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 3), st.integers(2, 8), st.integers(1, 2))
def test_the_solver_finds_what_brute_force_finds(seed, jobs, groups, nodes, objectives):
    options = drawn(np.random.default_rng(seed), jobs, groups, nodes, objectives, sizes=3)
    found, expected = solve(options, budget=Budget()), best_by_force(options)
    if expected is None:
        assert found is None
        return
    assert found.proved
    sums = [float(objective[found.options].sum()) for objective in options.objectives]
    assert sums == pytest.approx(expected, abs=1e-6)
    assert found.bound <= found.value <= found.bound + 1e-6
    used = [options.nodes[found.options][options.group[found.options] == g].sum() for g in range(groups)]
    assert (np.array(used) <= options.capacity).all()


@pytest.mark.parametrize("exponent", [1.0, 0.9])
def test_fifty_jobs_on_4096_devices_are_proved_or_the_gap_is_told(exponent):
    rng = np.random.default_rng(0)
    weight = rng.choice([0.5, 1.0, 2.0], 50) * rng.uniform(0.5, 3.0, 50)
    rows = [(j, -1, 0, 0.0) for j in range(50)]
    rows += [(j, 0, 2**k, -weight[j] * 2.0 ** (k * exponent)) for j in range(50) for k in range(10)]
    job, group, nodes, value = (np.array(column) for column in zip(*sorted(rows), strict=True))
    options = Options(job, group, nodes, (np.zeros(len(job)), value.astype(float)), np.array([512]))
    found = solve(options, budget=Budget())
    assert found.proved or 0 < found.value - found.bound < np.inf


def test_banned_options_are_not_taken():
    options = Options(np.array([0, 0]), np.array([-1, 0]), np.array([0, 1]), (np.array([0.0, -1.0]),), np.array([1]))
    assert solve(options, budget=Budget()).options.tolist() == [1]
    assert solve(options, budget=Budget(), banned=np.array([1])).options.tolist() == [0]
    assert solve(options, budget=Budget(), banned=np.array([0, 1])) is None


def test_fifty_jobs_that_wait_are_divided_in_time():
    rng = np.random.default_rng(0)
    options = drawn_to_wait(rng, 50, 1, 64, moments=15)
    assert solve(options, budget=Budget(effort=SEARCH / 5)) is not None
