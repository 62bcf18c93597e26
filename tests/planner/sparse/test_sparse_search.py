"""Plans for parameter servers against every plan there is."""

import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from hardware.servers import SparseCluster
from planner.request.budget import Budget
from planner.sparse import layout as sparse_layout
from planner.sparse import plan as sparse
from planner.sparse.document import SparseRequest
from planner.sparse.layout import layout
from planner.sparse.plan import Tried, answered, subsets
from planner.sparse.search import RESOLUTION, cheapest, fastest, polished, usage
from planner.sparse.solver import Found, Limits, holds, solve
from tests.each import each
from tests.planner.sparse_force import a_group, a_model, a_scenario, every_plan, scenarios

FEW = settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def _few_cuts(monkeypatch):
    monkeypatch.setattr(sparse_layout, "HBM_CUTS", (0.0, 0.1))
    monkeypatch.setattr(sparse_layout, "DRAM_CUTS", (0.1, 1.0))


@FEW
@given(scenarios(), st.floats(0.05, 1.2))
def test_the_cheapest_plan_is_the_cheapest_of_all(scenario, share):
    made = layout(scenario)
    plans = list(every_plan(made))
    assume(plans)
    floor = share * max(rate for _, _, rate, _ in plans)
    enough = [cost for _, _, rate, cost in plans if rate >= floor]
    best = cheapest(made, Limits(floor), budget=Budget())
    if not enough:
        assert best.status == "infeasible"
        return
    assert best.status == "optimal"
    assert best.cost == pytest.approx(min(enough), rel=1e-5)
    assert best.rate >= floor * (1 - 1e-6)
    assert holds(made, Limits(floor), best.chosen, best.nodes)


@FEW
@given(scenarios(), st.floats(1.0, 20.0))
def test_the_fastest_plan_is_the_fastest_that_the_rent_buys(scenario, dollars):
    made, budget = layout(scenario), dollars / 3600.0
    rates = [rate for _, _, rate, cost in every_plan(made) if cost <= budget * (1 + 1e-9)]  # as the solver rounds
    best = fastest(made, Limits(0.0, budget), budget=Budget())
    if not rates or max(rates) < 1.0:
        assert best.status == "infeasible"
        return
    assert best.rate >= max(rates) * (1 - 1.01 * RESOLUTION)
    assert best.rate <= max(rates) * (1 + 1e-6)
    assert best.bound >= max(rates) * (1 - 1e-6)


@FEW
@given(scenarios(), st.floats(0.05, 1.0))
def test_all_machines_together_are_never_worse_than_either_kind_alone(scenario, share):
    made = layout(scenario)
    top = fastest(made, Limits(0.0), budget=Budget())
    assume(top.chosen)
    floor = share * top.rate
    together = cheapest(made, Limits(floor), budget=Budget())
    cluster = type("Cluster", (), {"groups": scenario.groups})
    for machines, groups in subsets(cluster):
        alone = made.restricted(groups)
        if machines == "all" or alone is None:
            continue
        assert together.cost <= cheapest(alone, Limits(floor), budget=Budget()).cost * (1 + 1e-9)
        assert top.rate >= fastest(alone, Limits(0.0), budget=Budget()).rate * (1 - RESOLUTION)


@FEW
@given(scenarios(), st.integers(0, 100))
def test_a_plan_is_as_fresh_as_was_asked_for(scenario, late):
    made = layout(scenario)
    fresh = [plan for plan in every_plan(made) if made.staleness(plan[0], plan[1]) <= late and plan[2] >= 1.0]
    best = cheapest(made, Limits(1.0, staleness=late), budget=Budget())
    assert bool(best.chosen) == bool(fresh)
    if fresh:
        assert best.cost == pytest.approx(min(cost for *_, cost in fresh), rel=1e-5)


def test_the_bound_of_the_solver_is_never_above_the_plan():
    found = solve(layout(a_scenario()), Limits(1e4), budget=Budget())
    assert found.status == "optimal"
    assert found.bound == pytest.approx(1.0 / 3600.0)


def test_traffic_that_stays_on_the_only_node_is_not_held_against_it():
    made = layout(a_scenario(a_model(width=1024), (a_group(nodes=1, network=1, cores=64),)))
    assert cheapest(made, Limits(1e5), budget=Budget()).status == "optimal"


@each(
    ("asked", "reason", "near"),
    [
        (
            {"min_throughput": 1e9},
            "all nodes together reach 385k examples/s, not 1B examples/s",
            "--min-throughput 385k",
        ),
        (
            {"min_throughput": 1e9, "mode": "async", "max_staleness": 200},
            "all nodes together reach 490k examples/s with updates at most 200 steps late, not 1B examples/s",
            "--min-throughput 489k, which costs 3 $/h",
        ),
        (
            {"min_throughput": 1e6, "max_cost_per_hour": 1.0},
            "all nodes together reach 385k examples/s, not 1M examples/s",
            "--min-throughput 167k, which costs 1 $/h",
        ),
        (
            {"min_throughput": 1e5, "max_cost_per_hour": 0.1},
            "the cheapest plan costs 1 $/h, more than 0.1 $/h",
            "--max-cost '1 $/h', which reaches 168k examples/s",
        ),
        ({"max_cost_per_hour": 0.5}, "the cheapest plan costs 1 $/h, more than 0.5 $/h", "--max-cost '1 $/h'"),
    ],
)
def test_a_refusal_says_what_is_out_of_reach_and_the_nearest_that_is_not(asked, reason, near):
    cluster = SparseCluster(name="toys", groups=(a_group(),))
    found = answered(SparseRequest(**{"model": a_model(), "cluster": cluster, "mode": "sync"} | asked))
    assert found.reason == reason
    assert near in found.nearest.text


def test_tables_that_no_node_has_room_for_have_no_copies():
    cluster, large = SparseCluster(name="toys", groups=(a_group(),)), a_model(rows=(1.2e9,))
    found = answered(SparseRequest(model=large, cluster=cluster, mode="geo", min_throughput=1.0))
    assert found.reason == "geo mode needs a copy of all tables on every worker: 91.2 GB, and a node has 25.6 GB"


def test_a_search_for_the_most_tells_every_plan_and_what_is_out_of_reach():
    told = []
    best = fastest(layout(a_scenario()), Limits(0.0), budget=Budget(), report=lambda *plan: told.append(plan))
    rates, _, bounds = zip(*told, strict=True)
    assert list(rates) == sorted(rates)
    assert rates[0] <= rates[-1] <= best.rate <= min(bounds) * (1 + RESOLUTION)


def test_what_is_left_of_the_effort_makes_the_plan_faster_before_the_alternatives(monkeypatch):
    best = cheapest(layout(a_scenario()), Limits(1e4), budget=Budget())
    tried, asked = [Tried("all", mode, replace(best, layout=mode)) for mode in ("sync", "async", "geo")], []

    def note(layout, *_limits, **_rest):
        asked.append(layout)
        return best

    monkeypatch.setattr(sparse, "fastest", note)
    sparse._sped_up(tried, 1, Limits(1e4), budget=Budget())
    assert asked == ["async", "sync", "geo"]


def test_a_plan_of_the_solver_is_made_faster_on_the_same_nodes():
    """By rows on a group of its own, from a start with everything on one that is slow at looking up."""
    groups = (a_group(nodes=1, cores=1), a_group("other", nodes=1, cores=64))
    made = layout(a_scenario(a_model(hotness=100.0), groups))
    nodes = np.array([1, 1])
    slow = tuple(
        next(index for index, one in enumerate(place.choices) if one.group == 0 and one.home in {None, 0})
        for place in made.places
    )
    before = float(made.rates(made.load(slow), nodes).min())
    better = polished(made, Limits(before), Found("optimal", slow, nodes, 0.0), budget=Budget())
    assert float(made.rates(made.load(better), nodes).min()) > 2.0 * before


def test_heterogeneous_plans_beat_both_pure_ones_where_each_kind_is_good_at_something():
    """Tables that only CPU nodes have room for, below a tower that only accelerators are fast at."""
    groups = (a_group(nodes=40, memory=256, network=100), a_group("gpu", nodes=8, devices=4, network=100, price=10.0))
    model = a_model(rows=(5e9,), width=32, hotness=40.0, dense=(4096, 4096, 4096, 8))
    made = layout(a_scenario(model, groups))
    both, bare, dense = (
        fastest(part, Limits(0.0, 60.0 / 3600.0), budget=Budget()) if part else None
        for part in (made, made.restricted({0}), made.restricted({1}))
    )
    assert both.rate > 1.5 * bare.rate
    assert dense is None or not dense.chosen
    assert made.places[2].choices[both.chosen[2]].group == 1
    assert made.places[1].choices[both.chosen[1]].home == 0


def test_more_drives_and_memory_never_make_a_plan_dearer():
    groups = (a_group("gpu", nodes=3, devices=4, memory=64, ssd=500, price=3.0),)
    roomy = (groups[0].model_copy(update={"memory": 256e9}),)
    model = a_model(rows=(1e9,), width=16)
    costs = [cheapest(layout(a_scenario(model, g)), Limits(1e5), budget=Budget()).cost for g in (groups, roomy)]
    assert costs[1] <= costs[0]


def test_rates_and_usage_agree():
    made = layout(a_scenario(groups=(a_group(nodes=4),)))
    best = cheapest(made, Limits(3e5), budget=Budget())
    assert best.nodes[0] > 1
    assert usage(best).max() == pytest.approx(1.0)


def test_without_time_nothing_is_claimed():
    best = cheapest(layout(a_scenario()), Limits(1e4), budget=Budget(effort=0.0))
    assert best.status in {"unknown", "feasible"}
    assert best.gap > 0.0


def test_a_mode_without_time_leaves_the_most_throughput_open():
    made = layout(a_scenario())
    best = fastest(made, Limits(0.0), budget=Budget())
    late = fastest(made, Limits(0.0), budget=Budget(effort=0.0))
    request = SimpleNamespace(min_throughput=None)
    winner, other = Tried("all", "async", best), Tried("all", "sync", late)
    impossible = replace(other, best=replace(late, status="infeasible"))
    told, part, open_ = (
        sparse._proof(request, winner, [winner, *others], 1.0)
        for others in ([], [impossible, replace(other, machines="cpu")], [other])
    )
    assert (late.status, late.chosen) == ("unknown", ())
    assert told.gap == part.gap <= 1.01 * RESOLUTION
    assert (open_.bound, open_.gap) == (None, 1.0)


def test_the_throughput_grows_with_nodes_but_less_and_less():
    made = layout(a_scenario(a_model(batch_size=100), (a_group(nodes=64),)))
    rates = [float(made.rates(made.load((0,) * len(made.places)), np.array([k])).min()) for k in (1, 2, 4, 8, 16, 32)]
    gains = [later / earlier for earlier, later in pairwise(rates)]
    assert all(1.0 < gain <= 2.0 + 1e-9 for gain in gains)
    assert gains == sorted(gains, reverse=True)


def test_scaled_prices_scale_the_plan():
    scenario = a_scenario(groups=(a_group(nodes=8, price=1.0), a_group("other", nodes=8, cores=32, price=2.5)))
    dear = tuple(group.model_copy(update={"price": 3 * group.price}) for group in scenario.groups)
    once, thrice = (
        cheapest(layout(one), Limits(2e5), budget=Budget()) for one in (scenario, replace(scenario, groups=dear))
    )
    assert thrice.cost == pytest.approx(3 * once.cost)
    assert math.isfinite(once.cost)
