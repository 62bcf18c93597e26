"""Pipelines over several node groups: the search against trying everything, and against the search on one."""

import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from costmodels.node_groups import Mixed, mixed_bytes, price_mixed
from costmodels.pipeline.schedules import SCHEDULES, pipeline_seconds
from hardware.records import Between, Cluster
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.search.best_first import search
from planner.search.core_bounds import _whole_slices, mixed_core_bound, mixed_layer_bound
from planner.search.priced import price_mixed_strategies
from planner.search.split import solve_split
from planner.space.lattice import build as build_one
from planner.space.mixed import build
from planner.verify.check import verify
from planner.verify.simulate import simulate
from tests.drawn import drawn_groups, drawn_models, drawn_stacks
from tests.planner.mixed_force import ON_GROUPS, brute_force, every_row
from tests.scenarios import toy_group, toy_link, toy_scenario, toy_stack

QUICK = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


def mixed_of(groups, counts, *, scenario, between=()):
    """The scenario on the given groups with so many GPUs each."""
    named = [
        group.model_copy(update={"name": f"group{i}", "nodes": 2, "gpus_per_node": max(count // 2, 1)})
        for i, (group, count) in enumerate(zip(groups, counts, strict=True))
    ]
    cluster = Cluster.model_construct(name="mixed", title="", groups=tuple(named), between=tuple(between), sources={})
    parts = tuple(replace(scenario, group=group, gpus=count) for group, count in zip(named, counts, strict=True))
    return Mixed(cluster, parts)


@st.composite
def drawn_mixed(draw, *, counts=((2, 2), (2, 4), (4, 2), (1, 3)), layers=(2, 3, 4, 5), batches=(2, 4, 6)):
    """Two groups that differ in everything, now and then with a link of their own between them."""
    scenario = toy_scenario(
        model=draw(drawn_models(layers=layers)), stack=draw(drawn_stacks()), batch=draw(st.sampled_from(batches))
    )
    groups = [draw(drawn_groups()), draw(drawn_groups())]
    link = Between.model_construct(groups=("group0", "group1"), link=toy_link(bandwidth=draw(st.floats(1e8, 1e11))))
    between = draw(st.sampled_from([(), (link,)]))
    return mixed_of(groups, draw(st.sampled_from(counts)), scenario=scenario, between=between)


def tightened(mixed, share):
    """The groups with so much memory, each between what the leanest and the fattest strategy asks for."""
    space = build(mixed, {}, one_width=False)
    if not len(space.cores):
        return mixed
    rows = space.branches(np.arange(min(len(space.cores), 50)))
    memory = mixed_bytes(rows, mixed)
    real = np.arange(memory.layer.shape[1]) < rows.pp[:, None]
    most = float((memory.fixed + memory.layer + memory.activation * 2)[real].max())
    least = float((memory.fixed + memory.layer + memory.checkpoint)[real].min())
    parts = []
    for place, one in enumerate(mixed.scenarios):
        allocated = least * (most / least) ** (share * (1.0, 0.8)[place % 2]) * (1 + 1e-7)
        usable = allocated * (1 + one.stack.allocator.fragmentation) + one.stack.allocator.reserved
        device = one.group.accelerator.model_copy(update={"usable_memory": usable})
        parts.append(replace(one, group=one.group.model_copy(update={"accelerator": device})))
    return Mixed(mixed.cluster, tuple(parts))


def found(mixed, pins=None, *, one_width=True):
    space = build(mixed, parse_pins(pins or {}), one_width=one_width)
    return search(space, mixed, budget=Budget())


@settings(QUICK, max_examples=20)
@given(drawn_mixed(), st.floats(0.1, 1.5), st.booleans())
def test_the_search_finds_what_trying_everything_finds(mixed, share, one_width):
    mixed = tightened(mixed, share)
    assume(sum(1 for _ in islice(every_row(mixed, one_width=one_width), 151)) <= 150)
    outcome, best = found(mixed, one_width=one_width), brute_force(mixed, one_width=one_width)
    assert outcome.proved
    assert (outcome.best is None) == (best == math.inf)
    if outcome.best:
        assert outcome.best.iteration == pytest.approx(best, rel=1e-8)
        assert outcome.lower_bound == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize("pins", [{}, {"recompute": "partial"}])
def test_every_candidate_is_refused_by_one_rule_or_allowed(pins):
    scenario = toy_scenario(stack=toy_stack(zero_stages=(0, 1, 2)))
    space = build(mixed_of([toy_group()] * 2, (2, 4), scenario=scenario), parse_pins(pins), one_width=False)
    allowed = int(space.allowed.sum()) * len(space.orders)
    assert space.candidates == sum(refusal.count for refusal in space.refusals) + allowed


@QUICK
@given(drawn_mixed(counts=((4, 4), (8, 4)), layers=(4, 6, 8), batches=(8,)), st.floats(0.3, 1.5))
def test_bounds_are_below_what_they_bound_and_the_quote_is_what_the_search_says(mixed, share):
    mixed = tightened(mixed, share)
    space = build(mixed, {}, one_width=False)
    assume(len(space.cores))
    bound = mixed_core_bound(space.cores, mixed)
    assert (mixed_layer_bound(space.cores, mixed) <= bound * (1 + 1e-9)).all()
    some = np.arange(min(len(space.cores), 64))
    for core in some[:: max(len(some) // 16, 1)]:
        branches = price_mixed_strategies(space.branches(np.array([core])), mixed)
        below = branches.bound * (1 + 1e-9) < bound[core]  # neither bound is always the tighter
        for branch in {*np.flatnonzero(below), *np.argsort(branches.bound)[:1]}:
            solved = solve_split(branches.take(np.array([branch])), mixed, budget=Budget())
            assert max(bound[core], branches.bound[branch]) <= solved.seconds * (1 + 1e-9)
    outcome = found(mixed)
    assume(outcome.best is not None)
    best = outcome.best
    priced = price_mixed(best.row, mixed, best.assignment)
    assert priced.iteration == pytest.approx(best.iteration, rel=1e-9)
    assert sum(priced.breakdown.values()) == pytest.approx(best.iteration, rel=1e-9)
    verify(best.row, best.assignment, priced, mixed)


def test_the_slowest_stage_under_whole_slices_is_the_least_of_all_ways_to_deal_them_out():
    chance = np.random.default_rng(0)
    stages, seconds = chance.integers(1, 5, (60, 2)), chance.uniform(0.5, 3.0, (60, 2))
    slices = stages.sum(axis=1) + chance.integers(0, 12, 60)
    least = [
        min(max(-(-n // p) * a, -(-(count - n) // q) * b) for n in range(count + 1))
        for (p, q), (a, b), count in zip(stages, seconds, slices, strict=True)
    ]
    level = slices / (stages / seconds).sum(axis=1)
    assert _whole_slices(stages, seconds, slices, level) == pytest.approx(least, rel=1e-9)


@QUICK
@given(drawn_mixed(counts=((4, 4), (8, 4)), layers=(4, 6, 8), batches=(8,)), st.data())
def test_the_bound_of_a_core_does_not_depend_on_the_cores_beside_it(mixed, data):
    cores = build(mixed, {}, one_width=False).cores
    assume(len(cores))
    together = mixed_core_bound(cores, mixed)
    for core in data.draw(st.lists(st.integers(0, len(cores) - 1), min_size=1, max_size=12)):
        assert mixed_core_bound(cores.take(np.array([core])), mixed)[0] == pytest.approx(together[core], rel=1e-9)


@QUICK
@given(drawn_groups(), drawn_stacks(), drawn_models(layers=(4, 6, 8)), st.data())
def test_two_equal_groups_are_one_cluster_of_their_joint_size(group, stack, model, data):
    """Equal where the layout is pinned; free, a mixed cluster may also give its halves different degrees."""
    node = group.gpus_per_node
    stack = stack.changed({"supports.ends_as_layers": False})  # which mixed clusters do without
    group = group.model_copy(update={"tiers": (group.tiers[0], group.tiers[-1]), "nodes": 2})
    scenario = toy_scenario(model=model, stack=stack, group=group, gpus=4 * node, batch=4 * node)
    halves = tuple(group.model_copy(update={"name": name}) for name in ("left", "right"))
    cluster = Cluster(name="mixed", title="", groups=halves, sources={})
    mixed = Mixed(cluster, tuple(replace(scenario, group=half, gpus=2 * node) for half in halves))
    pp = data.draw(st.sampled_from([n for n in (2, 4, 8) if n <= model.num_layers and 4 * node % n == 0]))
    width = 4 * node // pp
    tp = data.draw(st.sampled_from([n for n in (1, 2, 4) if width % n == 0]))
    pins = {"pp": pp, "tp": tp, "cp": 1, "dp": width // tp, "rank_order": "tp-cp-ep-dp-pp", "vocabulary": "ends"}
    pins["schedule"] = [name for name in stack.supports.schedules if name in ON_GROUPS]
    whole = search(build_one(scenario, parse_pins(pins)), scenario, budget=Budget())
    joined = found(mixed, pins)
    assert (whole.best is None) == (joined.best is None)
    if whole.best:
        assert joined.best.iteration == pytest.approx(whole.best.iteration, rel=1e-8)
        freely = found(mixed, {"pp": pp})
        assert freely.best.iteration <= whole.best.iteration * (1 + 1e-8)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.5, 1.0), st.floats(0.30, 0.37)), min_size=2, max_size=8),
    st.integers(1, 4),
    st.randoms(),
)
def test_the_closed_form_of_stages_on_several_groups_is_close_to_their_simulation(kinds, per_kind, chance):
    """Balanced stages, none below half the slowest, whose forward shares differ a little between the groups."""
    stages = np.repeat([seconds for seconds, _ in kinds], per_kind)
    forward = np.repeat([share for _, share in kinds], per_kind)
    m = len(stages) * chance.randint(2, 4)
    closed = float(pipeline_seconds(micro_batches=m, slowest=stages.max(), total=stages.sum(), vpp=1))
    times = {"forward": (stages * forward)[:, None], "backward": (stages * (1 - forward))[:, None]}
    run = simulate(SCHEDULES["1f1b"], p=len(stages), m=m, v=1, **times)
    assert m * stages.max() <= run.makespan * (1 + 1e-9)
    assert run.makespan <= closed * 1.05


def test_a_search_out_of_time_still_has_a_plan_and_an_honest_bound():
    scenario = toy_scenario(batch=32)
    mixed = mixed_of([scenario.group, scenario.group], (8, 8), scenario=scenario)
    hasty = search(build(mixed, {}), mixed, budget=Budget(effort=50.0))
    best = found(mixed).best.iteration
    if hasty.best:
        assert hasty.best.iteration >= best * (1 - 1e-9)
    assert hasty.lower_bound <= best * (1 + 1e-9)
    assert not hasty.proved
