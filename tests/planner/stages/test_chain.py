"""Chains of slices that differ: the exact split against trying every one, and bounds that no split beats."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from costmodels.iteration import row_seconds
from costmodels.layout.split import Assignment, end_places
from costmodels.memory.limits import memory_limit
from costmodels.memory.rows import row_bytes
from costmodels.names import SCHEDULE_NAMES, Recompute
from costmodels.pipeline.schedules import pipeline_seconds
from costmodels.pricing import price_of_terms, price_strategy, stage_seconds
from costmodels.strategy import strategies
from planner.request.budget import Budget
from planner.search.core_bounds import core_bound
from planner.search.split import best_split, given_split
from planner.space.lattice import build
from planner.stages.chain import solve_chain
from planner.stages.from_strategies import assignment_of, least_peaks, problem_of, stage_bounds
from planner.stages.problem import SliceCosts, StageProblem
from planner.stages.solver import solve
from tests.drawn import drawn_depths, drawn_scenarios
from tests.planner.brute_force import brute_force_by_price_strategy, every_row, splits_of
from tests.planner.search.test_expert_search import agree, expert_rows, found, tightened
from tests.planner.searched import price_cores
from tests.scenarios import changed_device, toy_hybrid, toy_scenario, toy_stack

pytestmark = pytest.mark.usefixtures("few_cores_at_a_time")

TIGHTNESS = st.floats(-0.1, 1.0)
MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
FEW = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def chains(draw, *, stages=(1, 2, 3, 4)):
    """Small problems of slices that differ, on stages that are alike or not."""
    p = draw(st.sampled_from(stages))
    slices, tenth = draw(st.integers(p, 6)), st.integers(1, 20).map(lambda n: n / 10)
    rows = p if draw(st.booleans()) else 1

    def table(values, count):
        row = st.lists(values, min_size=slices, max_size=slices)
        return np.array(draw(st.lists(row, min_size=count, max_size=count)))

    thin = table(st.integers(0, 3).map(float), p)
    costs = SliceCosts(
        seconds=table(tenth, rows),
        recompute_seconds=table(st.integers(0, 10).map(lambda n: n / 10), rows),
        state_bytes=table(st.integers(0, 4).map(float), rows),
        activation_bytes=thin + table(st.integers(0, 4).map(float), p),
        checkpoint_bytes=thin,
    )
    extra = tuple(draw(st.lists(tenth, min_size=p, max_size=p)))
    return StageProblem(
        num_layers=slices,
        num_stages=p,
        vpp=draw(st.sampled_from([1.0, 2.0, 7.5])),
        num_microbatches=draw(st.integers(1, 12)),
        layer_seconds=1.0,
        recompute_seconds=1.0,
        extra_seconds=extra,
        memory_limit=float(draw(st.integers(2, 30))),
        fixed_bytes=tuple(float(n) for n in draw(st.lists(st.integers(0, 3), min_size=p, max_size=p))),
        layer_bytes=1.0,
        activation_bytes=(1.0,) * p,
        checkpoint_bytes=(1.0,) * p,
        recompute=draw(st.sampled_from(["none", "free", "all"])),
        uneven=draw(st.booleans()),
        working_bytes=float(draw(st.integers(0, 2))),
        fewest=draw(st.sampled_from([None, (1,) * p, (0, *(1,) * (p - 2), 0) if p > 2 else None])),
        slices=costs,
    )


def every_choice(problem):
    """Objective of every (slices, recomputed slices) that fits: a stage recomputes its first."""
    p, count, costs = problem.num_stages, problem.num_layers, problem.slices
    least = problem.fewest if problem.uneven and problem.fewest else (1,) * p
    for layers in itertools.product(*(range(fewest, count + 1) for fewest in least)):
        if sum(layers) != count or (not problem.uneven and len(set(layers)) > 1):
            continue
        choices = {"none": [(0,) * p], "all": [layers], "free": itertools.product(*(range(n + 1) for n in layers))}
        for again in choices[problem.recompute]:
            value = one_choice(problem, costs, layers, again)
            if value is not None:
                yield value, layers, tuple(again)


def one_choice(problem, costs, layers, again):
    seconds, start = [], 0
    for stage, (held, repeated) in enumerate(zip(layers, again, strict=True)):
        row, time, used = min(stage, len(costs.seconds) - 1), problem.extra_seconds[stage], problem.fixed_bytes[stage]
        for place in range(start, start + held):
            time, used = time + costs.seconds[row, place], used + costs.state_bytes[row, place]
            if place < start + repeated:
                time += costs.recompute_seconds[row, place]
                used += costs.checkpoint_bytes[stage, place]
            else:
                used += costs.activation_bytes[stage, place]
        if used + (repeated > 0) * problem.working_bytes > problem.memory_limit:
            return None
        seconds.append(time)
        start += held
    m, total = problem.num_microbatches, sum(seconds)
    return m * max(seconds) + (total - max(seconds)) / problem.vpp


@MANY
@given(chains())
def test_the_solver_finds_what_trying_everything_finds(problem):
    best = min(every_choice(problem), default=None)
    solution = solve(problem)
    if best is None:
        assert solution.status == "infeasible"
        assert solution.bound_seconds == math.inf
        return
    assert solution.status == "optimal"
    assert solution.objective_seconds == pytest.approx(best[0], rel=1e-9)
    assert solution.bound_seconds == pytest.approx(best[0], rel=1e-8)
    value = one_choice(problem, problem.slices, solution.layers, solution.recompute_layers)
    assert value == pytest.approx(solution.objective_seconds, rel=1e-12)
    both = {"slowest": solution.slowest_seconds, "total": solution.total_seconds}
    again = pipeline_seconds(micro_batches=problem.num_microbatches, **both, vpp=problem.vpp)
    assert again == pytest.approx(solution.objective_seconds, rel=1e-12)


@MANY
@given(chains(), st.floats(0.7, 1.4))
def test_a_cutoff_is_answered_by_something_below_it_or_a_proof(problem, share):
    best = min(every_choice(problem), default=None)
    assume(best is not None)
    assume(abs(share - 1) > 1e-6)
    solution = solve(problem, cutoff_seconds=best[0] * share)
    if share > 1:
        assert solution.objective_seconds == pytest.approx(best[0], rel=1e-9)
    else:
        assert solution.status == "infeasible"
        assert best[0] * share * (1 - 1e-9) <= solution.bound_seconds <= best[0] * (1 + 1e-9)


@MANY
@given(chains(stages=(2, 3)), st.randoms())
def test_a_hint_changes_no_answer_but_is_kept_where_it_is_as_good(problem, chance):
    best = min(every_choice(problem), default=None)
    assume(best is not None)
    cuts = sorted(chance.sample(range(1, problem.num_layers), problem.num_stages - 1))
    hint = [int(n) for n in np.diff([0, *cuts, problem.num_layers])]
    assert solve(problem, hint=hint).objective_seconds == pytest.approx(best[0], rel=1e-9)
    assert solve(problem, hint=best[1]).layers == best[1]


def test_a_search_for_a_split_that_is_cut_off_claims_no_more_than_it_has_ruled_out():
    draw, none, shape = np.random.default_rng(68), (0.0,) * 4, (1, 20)
    costs = SliceCosts(
        seconds=draw.choice([1.0, 2.0, 5.0], shape),
        recompute_seconds=draw.uniform(0.1, 2.0, shape),
        state_bytes=np.zeros(shape),
        activation_bytes=draw.uniform(2.0, 4.0, (4, 20)),
        checkpoint_bytes=np.zeros((4, 20)),
    )
    problem = StageProblem(
        num_layers=20,
        num_stages=4,
        vpp=1,
        num_microbatches=2,
        layer_seconds=1.0,
        recompute_seconds=1.0,
        extra_seconds=none,
        memory_limit=8.0,
        fixed_bytes=none,
        layer_bytes=0.0,
        activation_bytes=none,
        checkpoint_bytes=none,
        recompute="free",
        uneven=True,
        slices=costs,
    )
    best, *cut_off = (solve_chain(problem, budget=Budget(effort=effort)) for effort in (100.0, 5.0, 10.0))
    assert best.bound == best.objective
    assert all(one.bound <= best.objective <= one.objective for one in cut_off)


def test_equal_stages_are_chosen_where_nothing_speaks_against_them():
    ones, nothing = np.ones((1, 12)), np.zeros((1, 12))
    costs = SliceCosts(ones, ones, nothing, np.zeros((3, 12)), np.zeros((3, 12)))
    problem = next_problem(costs, stages=3)
    assert solve(problem).layers == (4, 4, 4)


def next_problem(costs, *, stages, **changes):
    plain = {
        "num_layers": costs.seconds.shape[1],
        "num_stages": stages,
        "vpp": 1.0,
        "num_microbatches": 8,
        "layer_seconds": 1.0,
        "recompute_seconds": 1.0,
        "extra_seconds": (0.0,) * stages,
        "memory_limit": math.inf,
        "fixed_bytes": (0.0,) * stages,
        "layer_bytes": 0.0,
        "activation_bytes": (0.0,) * stages,
        "checkpoint_bytes": (0.0,) * stages,
        "recompute": "none",
        "uneven": True,
    }
    return StageProblem(**(plain | changes), slices=costs)


def test_slow_slices_at_the_front_make_short_stages_there():
    seconds = np.array([[3.0, 3.0, 1.0, 1.0, 1.0, 1.0]])
    nothing = np.zeros((2, 6))
    problem = next_problem(SliceCosts(seconds, seconds, nothing[:1], nothing, nothing), stages=2)
    assert solve(problem).layers == (2, 4)
    assert solve(problem).slowest_seconds == 6.0


def test_a_slice_that_holds_more_when_recomputed_is_refused():
    one = np.ones((1, 2))
    with pytest.raises(ValueError, match="holds more"):
        SliceCosts(one, one, one, one, 2 * one)


def of_depths(scenario):
    """Every row of a model whose layers differ, under the pins of the search that it is compared with."""
    if scenario.model.moe is not None:
        return expert_rows(scenario)
    return every_row(scenario, keep=lambda row: row["rank_order"] == 0 and row["zero_stage"] < 2)


@FEW
@given(drawn_scenarios(gpus=(2, 4), batches=(2, 4), layers=(2, 3, 4), models=drawn_depths), TIGHTNESS)
def test_the_search_finds_what_the_quote_of_every_split_says_where_layers_differ(scenario, tightness):
    rows = of_depths(scenario)
    assume(rows is not None and len(rows) <= 120)
    scenario = tightened(scenario, rows, tightness)
    agree(found(scenario), brute_force_by_price_strategy(rows, scenario))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_scenarios(gpus=(2, 4, 8), batches=(8, 16), layers=(2, 3, 4, 6, 8), models=drawn_depths), TIGHTNESS)
def test_no_bound_exceeds_what_even_stages_take_where_layers_differ(scenario, tightness):
    rows = of_depths(scenario)
    assume(rows is not None)
    scenario = tightened(scenario, rows, tightness)
    space = build(scenario, {})
    assume(len(space.cores))
    cores = np.arange(len(space.cores))
    place, _ = np.nonzero(space.allowed)
    priced = price_cores(space, cores, scenario)
    bound, slack = core_bound(space.cores, scenario), 1 + 1e-9
    assert (bound[place] <= priced.bound * slack).all()
    assert (priced.bound <= priced.even_split_seconds * slack).all()
    tight, feasible = stage_bounds(priced.rows, priced.seconds, priced.memory, scenario)
    assert feasible[priced.fits].all()
    assert (least_peaks(priced.rows, priced.memory, scenario) <= priced.even_split_peak_bytes * (1 + 1e-9)).all()
    assert (tight <= priced.even_split_seconds * slack)[priced.fits].all()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    drawn_scenarios(gpus=(2, 4, 8), batches=(4, 8), layers=(2, 3, 4, 6), models=drawn_depths), TIGHTNESS, st.randoms()
)
def test_a_row_s_bounds_never_exceed_its_best_split_where_layers_differ(scenario, tightness, chance):
    rows = of_depths(scenario)
    assume(rows is not None)
    scenario = tightened(scenario, rows, tightness)
    space = build(scenario, {})
    assume(len(space.cores))
    priced = price_cores(space, np.arange(len(space.cores)), scenario)
    tight, feasible = stage_bounds(priced.rows, priced.seconds, priced.memory, scenario)
    limit = memory_limit(scenario, priced.rows) * (1 + 1e-9)
    possible = least_peaks(priced.rows, priced.memory, scenario) <= limit
    for index in chance.sample(range(len(priced.rows)), min(6, len(priced.rows))):
        one = priced.take(np.array([index]))
        splits = splits_of(one.rows.row(0), scenario)
        terms = one.rows, row_seconds(one.rows, scenario), row_bytes(one.rows, scenario), scenario
        quotes = [price_of_terms(*terms, Assignment(n, r)) for n, r in zip(*splits, strict=True)]
        usable = scenario.group.accelerator.usable_memory
        fitting = [each.iteration for each in quotes if each.footprint.total.max() <= usable]
        solution = solve(problem_of(one.rows, one.seconds, one.memory, scenario))
        assert bool(fitting) == bool(solution.layers)
        assert possible[index] or not fitting
        if fitting:
            assert feasible[index]
            assert tight[index] <= min(fitting) * (1 + 1e-8)
            split = assignment_of(solution, one.rows, scenario)
            assert price_strategy(one.rows, scenario, split).iteration == pytest.approx(min(fitting), rel=3e-9)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_scenarios(gpus=(4, 8), batches=(8,), layers=(3, 5, 6, 7), models=drawn_depths), st.randoms())
def test_a_split_is_worth_what_its_quote_says_where_layers_differ_and_an_end_stands_for_one(scenario, chance):
    stack = scenario.stack.changed({"supports.ends_as_layers": True, "supports.uneven_stages": True})
    scenario = replace(scenario, stack=stack)
    space = build(scenario, {})
    assume(len(space.cores))
    rows = price_cores(space, np.arange(len(space.cores)), scenario).rows
    stood = np.flatnonzero((end_places(scenario.model.num_layers, rows)[1] > 0) & (rows.pp > 1))
    assume(len(stood))
    for index in chance.sample(stood.tolist(), min(6, len(stood))):
        one = rows.take([index])
        problem = problem_of(one, row_seconds(one, scenario), row_bytes(one, scenario), scenario)
        solution = solve(replace(problem, memory_limit=math.inf))
        priced = price_strategy(one, scenario, assignment_of(solution, one, scenario))
        assert solution.total_seconds == pytest.approx(priced.stage_seconds.sum())
        assert solution.slowest_seconds == pytest.approx(priced.stage_seconds.max())


def test_a_given_split_recomputes_the_fewest_first_layers_that_fit():
    scenario = toy_scenario(model=toy_hybrid("MMMM----"), batch=16, stack=toy_stack(uneven_stages=True))
    row = strategies(pp=2, dp=4, num_microbatches=4, schedule=SCHEDULE_NAMES.index("1f1b"), recompute=Recompute.PARTIAL)
    free = price_strategy(row, scenario, Assignment(np.array([4, 4]), np.zeros(2, np.int64))).footprint.total
    tight = changed_device(scenario, usable_memory=float(free.max()) * 0.97)
    split = given_split(row, tight, [4, 4])
    assert split.recomputed.max() > 0
    assert price_strategy(row, tight, split).footprint.total.max() <= tight.group.accelerator.usable_memory
    fewer = Assignment(split.layers, np.maximum(split.recomputed - 1, 0))
    assert price_strategy(row, tight, fewer).footprint.total.max() > tight.group.accelerator.usable_memory
    assert best_split(row, tight, budget=Budget()).iteration <= price_strategy(row, tight, split).iteration * (1 + 1e-9)


def test_stages_that_mirror_each_other_count_average_layers_and_those_of_a_v_their_own():
    scenario = toy_scenario(model=toy_hybrid("MMMM----"), gpus=8, batch=16, stack=toy_stack(uneven_stages=True))
    both = strategies(
        pp=4,
        dp=2,
        num_microbatches=8,
        schedule=[SCHEDULE_NAMES.index(name) for name in ("dualpipe", "dualpipe-v")],
        vpp=[1, 2],
    )
    mirrored, turned = both.take([0]), both.take([1])
    split = Assignment(np.full(4, 2), np.zeros(4, np.int64))
    seconds = row_seconds(mirrored, scenario)
    (stages,) = stage_seconds(mirrored, seconds, [split])
    outer = seconds.embedding[0] / 2 + seconds.head[0] / 2
    sends = np.array([0.5, 1, 1, 0.5])
    assert stages == pytest.approx(2 * seconds.layer[0] + seconds.send[0] * sends + np.array([outer, 0, 0, outer]))
    assert problem_of(mirrored, seconds, row_bytes(mirrored, scenario), scenario).slices is None
    seconds = row_seconds(turned, scenario)
    mixer, dense = (part.layer[0] for part in seconds.kinds.parts)
    (stages,) = stage_seconds(turned, seconds, [split])  # a mixer on the way down and a network on the way up
    at_ends = np.array([seconds.embedding[0] + seconds.head[0], 0, 0, 0])
    assert stages == pytest.approx(mixer + dense + seconds.send[0] * sends + at_ends)
    assert problem_of(turned, seconds, row_bytes(turned, scenario), scenario).slices is not None


def test_a_problem_keeps_its_slices_when_its_limit_is_lifted():
    scenario = toy_scenario(model=toy_hybrid(), stack=toy_stack(uneven_stages=False))
    row = strategies(pp=2, dp=4, num_microbatches=4, schedule=SCHEDULE_NAMES.index("1f1b"))
    problem = problem_of(row, row_seconds(row, scenario), row_bytes(row, scenario), scenario)
    lifted = solve(replace(problem, memory_limit=math.inf, uneven=True))
    assert lifted.objective_seconds <= solve(problem).objective_seconds


def test_no_row_at_all_is_priced_as_none_where_layers_differ():
    scenario = toy_scenario(model=toy_hybrid("MMMM----"), gpus=8, batch=16)
    space = build(scenario, {})
    priced = price_cores(space, np.array([], dtype=np.int64), scenario)
    assert (len(priced.rows), len(priced.bound)) == (0, 0)
