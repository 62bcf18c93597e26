"""The search finds what trying everything finds, and what it says of itself is true."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from costmodels.memory.limits import memory_limit
from costmodels.names import Recompute
from costmodels.pricing import effective_recompute, price_strategy
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.search import best_first
from planner.search.best_first import search
from planner.search.core_bounds import core_bound, known_bound
from planner.search.split import solve_split
from planner.space.lattice import build
from planner.stages.from_strategies import assignment_of, least_peaks, problem_of, stage_bounds
from planner.stages.solver import solve
from tests.drawn import drawn_scenarios
from tests.planner.brute_force import brute_force_by_price_strategy, ends_for, every_row, seconds_and_bytes, slack
from tests.planner.searched import agree, price_cores, tightened, tried
from tests.scenarios import changed_device, toy_device, toy_group, toy_model, toy_scenario, toy_stack

pytestmark = pytest.mark.usefixtures("few_cores_at_a_time")

TIGHTNESS = st.floats(-0.1, 1.0)
"""Where the memory limit lies between the leanest and the fattest strategy, on a logarithmic scale."""


def found(scenario, pins=None, *, budget=None):
    return search(build(scenario, parse_pins(pins or {})), scenario, budget=budget or Budget())


MANY = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


@MANY
@given(
    drawn_scenarios(gpus=(1, 2, 2, 4, 4, 8), batches=(2, 4, 6, 8), layers=(1, 2, 3, 4, 5, 6, 7)),
    TIGHTNESS,
    st.booleans(),
)
def test_the_search_finds_what_trying_everything_finds(scenario, tightness, any_degree):
    rows = every_row(scenario, any_degree=any_degree, most=250)
    assume(rows is None or len(rows) <= 250)
    if rows is not None:
        scenario = tightened(scenario, rows, tightness)
    agree(found(scenario, {"sharding_degree": "1.."} if any_degree else {}), tried(rows, scenario))


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_scenarios(gpus=(8, 16), batches=(16, 24), layers=(4, 6, 8)), TIGHTNESS)
def test_the_search_finds_the_same_on_larger_machines(scenario, tightness):
    rows = every_row(scenario, keep=lambda row: row["micro_batch_size"] in {1, 2} and row["rank_order"] == 0, most=800)
    assume(rows is not None and len(rows) <= 800)
    scenario = tightened(scenario, rows, tightness)
    pins = {"micro_batch_size": "1,2", "rank_order": "tp-cp-ep-dp-pp"}
    agree(found(scenario, pins), tried(rows, scenario))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    drawn_scenarios(gpus=(4, 8), batches=(8, 16), layers=(3, 5, 7, 8)), st.floats(-0.05, 0.4), st.sampled_from([2, 4])
)
def test_the_search_finds_uneven_and_partly_recomputed_stages(scenario, tightness, pp):
    """Deep pipelines under tight memory: here the best split is seldom the even one."""
    stack = scenario.stack.changed({"supports.uneven_stages": True, "supports.vocabulary": ("ends",)})
    model = scenario.model.model_copy(update={"vocab_size": 64000})
    scenario = toy_scenario(
        gpus=scenario.gpus, batch=scenario.global_batch_size, model=model, group=scenario.group, stack=stack
    )

    def keep(row):
        return row["pp"] == pp and row["micro_batch_size"] == 1 and row["zero_stage"] < 2 and row["rank_order"] == 0

    rows = every_row(scenario, keep=keep, most=400)
    assume(rows is not None and len(rows) <= 400)
    scenario = tightened(scenario, rows, tightness)
    pins = {"pp": pp, "micro_batch_size": 1, "zero_stage": "..1", "rank_order": "tp-cp-ep-dp-pp"}
    agree(found(scenario, pins), tried(rows, scenario))


@pytest.mark.parametrize(("vocab_size", "batch"), [(16384, 5), (40960, 6)])
def test_a_pipeline_that_is_the_fastest_only_under_an_uneven_split_is_found_however_little_it_gains(vocab_size, batch):
    model, stack = toy_model(num_layers=32, vocab_size=vocab_size), toy_stack(uneven_stages=True)
    scenario = toy_scenario(gpus=2, batch=batch, model=model, stack=stack)
    kept = {"dp": 1, "cp": 1, "micro_batch_size": 1, "sequence_parallel": 0, "recompute": 0}
    rows = every_row(scenario, keep=lambda row: all(row[axis] == value for axis, value in kept.items()))
    outcome = found(scenario, kept | {"recompute": "none"})
    agree(outcome, tried(rows, scenario))
    assert len(set(outcome.best.assignment.layers)) == 2


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_scenarios(gpus=(2, 4), batches=(2, 4), layers=(2, 3, 4)), TIGHTNESS)
def test_the_search_finds_what_the_quote_of_every_split_says(scenario, tightness):
    def keep(row):
        """PARTIAL has the splits of FULL too, but where an end takes a layer's place."""
        return row["recompute"] != Recompute.FULL or ends_for(scenario, row["vpp"])

    rows = every_row(scenario, keep=keep, most=60)
    assume(rows is not None and len(rows) <= 60)
    scenario = tightened(scenario, rows, tightness)
    best, outcome = brute_force_by_price_strategy(rows, scenario), found(scenario)
    assert (outcome.best.iteration if outcome.best else math.inf) == pytest.approx(best, rel=3e-9)


def filling(schedule, **changes):
    """Five layers on four stages under one schedule that fills its bubble; all passes of a layer take as long."""
    stack = toy_stack(schedules=("none", schedule), uneven_stages=True, **changes)
    model = toy_model(num_layers=5, seq_length=256, hidden_size=4096, num_heads=32, vocab_size=256)
    group = toy_group(device=toy_device(bandwidth=1e15))
    return toy_scenario(gpus=4, batch=16, model=model, group=group, stack=stack)


@pytest.mark.parametrize("schedule", ["zb-1p", "zb-2p", "dualpipe"])
@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize("kinds", ["", "partial", "none,partial", "full,partial"])
def test_no_layer_recomputed_for_nothing_beats_a_plan_whose_schedule_fills_its_bubble(schedule, validated, kinds):
    """Idle time depends on what is recomputed: on how many layers, no price of a strategy depends."""
    scenario = filling(schedule, post_validation=validated)
    wanted = [Recompute[kind.upper()] for kind in (kinds or "none,full,partial").split(",")]

    def keep(row):
        return row["pp"] == 4 and row["recompute"] in wanted and row["rank_order"] == 0 and row["micro_batch_size"] < 3

    best = brute_force_by_price_strategy(every_row(scenario, keep=keep), scenario)
    pins = {"pp": 4, "micro_batch_size": "1,2", "rank_order": "tp-cp-ep-dp-pp", "recompute": kinds}
    outcome = found(scenario, pins)
    priced = price_strategy(
        effective_recompute(outcome.best.row, outcome.best.assignment), scenario, outcome.best.assignment
    )
    assert outcome.best.iteration == pytest.approx(best, rel=3e-9)
    assert priced.iteration == pytest.approx(best, rel=3e-9)


@pytest.mark.parametrize("layers", [3, 7])
@pytest.mark.parametrize("uneven", [False, True])
def test_an_end_in_a_layer_s_place_and_all_layers_recomputed_are_found_where_nothing_else_fits(layers, uneven):
    """Rows that no other kind of recomputation stands in for, priced split by split."""
    stack = toy_stack(ends_as_layers=True, uneven_stages=uneven, schedules=("interleaved-1f1b",))
    scenario = toy_scenario(gpus=2, batch=4, model=toy_model(num_layers=layers), stack=stack)
    rows = every_row(scenario, keep=lambda row: row["vpp"] == 2)
    assert len(rows)
    whole = rows.take(np.flatnonzero(rows.recompute == Recompute.FULL))
    scenario = tightened(scenario, rows, 0.0)
    outcome, best = found(scenario, {"vpp": 2}), brute_force_by_price_strategy(whole, scenario)
    assert math.isfinite(best)
    assert outcome.best.row.recompute[0] == Recompute.FULL
    assert outcome.best.assignment.recomputed.tolist() == outcome.best.assignment.layers.tolist()
    assert outcome.best.iteration == pytest.approx(best, rel=3e-9)
    assert outcome.best.iteration == pytest.approx(brute_force_by_price_strategy(rows, scenario), rel=3e-9)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_scenarios(gpus=(2, 4, 8), batches=(4, 8), layers=(2, 3, 4, 6)), TIGHTNESS)
def test_the_winner_s_quote_is_the_time_that_the_search_reports_and_it_fits(scenario, tightness):
    rows = every_row(scenario, most=2000)
    assume(rows is not None and len(rows) <= 2000)
    scenario = tightened(scenario, rows, tightness)
    outcome = found(scenario)
    assume(outcome.best is not None)
    priced = price_strategy(outcome.best.row, scenario, outcome.best.assignment)
    assert priced.iteration == pytest.approx(outcome.best.iteration, rel=1e-9)
    assert priced.footprint.total.max() <= scenario.group.accelerator.usable_memory * (1 + 1e-9)
    assert outcome.best.assignment.layers.sum() == scenario.model.num_layers
    assert (outcome.best.assignment.recomputed <= outcome.best.assignment.layers).all()


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_scenarios(gpus=(2, 4, 8, 16), batches=(8, 16), layers=(2, 3, 4, 6, 8)))
def test_no_row_of_a_core_is_faster_than_its_bound(scenario):
    space = build(scenario, {})
    assume(len(space.cores))
    bound = core_bound(space.cores, scenario)
    cores = np.arange(len(space.cores))
    place, _ = np.nonzero(space.allowed)
    priced = price_cores(space, cores, scenario)
    slack = 1 + 1e-9
    assert (bound[place] <= priced.bound * slack).all()
    assert (priced.bound <= priced.even_split_seconds * slack).all()
    tight, feasible = stage_bounds(priced.rows, priced.seconds, priced.memory, scenario)
    assert (priced.bound[feasible] <= tight[feasible] * slack).all()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_scenarios(gpus=(2, 4, 8, 16), batches=(8, 16), layers=(2, 3, 4, 6, 8)), st.booleans(), st.data())
def test_the_bound_of_a_core_does_not_depend_on_the_cores_beside_it(scenario, grouped, data):
    stack = scenario.stack.changed({"supports.recompute_groups": grouped})
    scenario = replace(scenario, stack=stack)
    cores = build(scenario, parse_pins({"recompute_num_layers": "1,2,3,4"} if grouped else {})).cores
    assume(len(cores))
    together = core_bound(cores, scenario)
    for core in data.draw(st.lists(st.integers(0, len(cores) - 1), min_size=1, max_size=12)):
        assert core_bound(cores.take(np.array([core])), scenario)[0] == pytest.approx(together[core], rel=1e-9)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_scenarios(gpus=(2, 4, 8), batches=(4, 8), layers=(2, 3, 4, 5, 6, 7)), TIGHTNESS, st.randoms())
def test_a_row_s_bounds_never_exceed_its_best_split(scenario, tightness, chance):
    rows = every_row(scenario)
    assume(rows is not None)
    scenario = tightened(scenario, rows, tightness)
    space = build(scenario, {})
    priced = price_cores(space, np.arange(len(space.cores)), scenario)
    tight, feasible = stage_bounds(priced.rows, priced.seconds, priced.memory, scenario)
    least, limit = least_peaks(priced.rows, priced.memory, scenario), memory_limit(scenario, priced.rows)
    assert (least <= priced.even_split_peak_bytes * (1 + 1e-9)).all()
    assert (least <= limit * (1 + 1e-9))[feasible].all()
    usable = scenario.group.accelerator.usable_memory - scenario.stack.allocator.reserved
    for index in chance.sample(range(len(priced.rows)), min(12, len(priced.rows))):
        seconds, used = seconds_and_bytes(priced.rows, scenario, index, priced.seconds, priced.memory)
        room = usable / (1 + slack(scenario.stack, priced.rows.row(index)["tp"]))
        fitting = seconds[used <= room]
        assert feasible[index] == bool(len(fitting))
        if len(fitting):
            assert tight[index] <= fitting.min() * (1 + 1e-8)
            one = priced.take(np.array([index]))
            problem = problem_of(one.rows, one.seconds, one.memory, scenario)
            solution = solve(problem)
            split = assignment_of(solution, one.rows, scenario)
            assert price_strategy(one.rows, scenario, split).iteration == pytest.approx(fitting.min(), rel=3e-9)


def test_whatever_bounds_say_below_what_they_bound_the_search_finds_the_same(monkeypatch):
    scenario, chance = toy_scenario(gpus=16, batch=32), np.random.default_rng(0)
    space = build(scenario, parse_pins({"recompute": "none,full", "vpp": 1}))
    place, _ = np.nonzero(space.allowed)
    fastest = np.full(len(space.cores), np.inf)
    np.minimum.at(fastest, place, price_cores(space, np.arange(len(fastest)), scenario).even_split_seconds)
    for below in (np.inf, 1.05 * fastest.min()) * 5:
        bounds = fastest * chance.uniform(0.9, 1.0, len(fastest))
        monkeypatch.setattr(best_first, "known_bound", lambda *_, bounds=bounds: bounds)
        outcome = search(space, scenario, budget=Budget(), below=below)
        assert outcome.best.iteration == pytest.approx(fastest.min(), rel=1e-9)
        assert outcome.priced < len(place)


def test_a_split_that_is_not_proved_leaves_the_search_without_a_proof(monkeypatch):
    def unproved(one, scenario, **rest):
        return replace(solve_split(one, scenario, **rest), proved=False, bound=0.0)

    monkeypatch.setattr(best_first, "solve_split", unproved)
    model, stack = toy_model(num_layers=16, vocab_size=40960), toy_stack(uneven_stages=True)
    outcome = found(toy_scenario(gpus=2, batch=8, model=model, stack=stack), {"pp": 2})
    assert outcome.solves > 0
    assert (outcome.proved, outcome.lower_bound) == (False, 0.0)


def test_a_search_among_some_cores_finds_the_best_of_these():
    scenario = toy_scenario(gpus=2)
    space = build(scenario, {})
    some = np.flatnonzero(space.cores.pp == 2)
    outcome = search(space, scenario, budget=Budget(), among=some)
    assert outcome.best.row.pp[0] == 2
    assert outcome.best.iteration == search(space.among(some), scenario, budget=Budget()).best.iteration


def test_a_search_out_of_time_says_that_it_proved_nothing():
    scenario = toy_scenario(gpus=16, batch=32, stack=toy_stack(uneven_stages=True))
    outcome = found(scenario, budget=Budget(effort=0.0))
    assert not outcome.proved
    assert outcome.best is None
    assert outcome.lower_bound <= found(scenario).best.iteration


def test_where_nothing_fits_that_is_proved():
    scenario = changed_device(toy_scenario(), usable_memory=1e6)
    outcome = found(scenario)
    assert outcome.best is None
    assert outcome.proved
    assert outcome.feasible == 0
    assert outcome.memory_refused == outcome.priced


def test_counts_are_of_rows_that_exist():
    scenario = toy_scenario(gpus=16, batch=32, model=toy_model(num_layers=6))
    space = build(scenario, {})
    outcome = search(space, scenario, budget=Budget())
    assert 0 < outcome.feasible <= outcome.priced <= int(space.allowed.sum()) <= space.candidates


def test_one_bound_serves_all_searches_that_differ_in_memory_alone():
    scenario = toy_scenario()
    cores = build(scenario, {}).cores
    bounds = known_bound(cores, scenario)
    assert known_bound(cores, changed_device(scenario, usable_memory=1e12)) is bounds
    slower = known_bound(cores, changed_device(scenario, memory_bandwidth=1e11))
    assert (slower > bounds).any()
    assert np.array_equal(bounds, core_bound(cores, scenario))
