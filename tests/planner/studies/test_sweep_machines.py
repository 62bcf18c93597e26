"""Fields of the machines by path, and what points share although their machines differ."""

from dataclasses import fields, replace

import pytest

from hardware.catalogue import cluster
from planner import PlanRequest, plan, predict
from planner.errors import BadRequest
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.request.resolve import resolve
from planner.search.best_first import search
from planner.space.cache import cached_space, shape_of
from planner.space.lattice import build
from planner.studies.answer import Shared, Task, kept_document, plan_point
from planner.studies.machines import changed_cluster
from planner.studies.question import key_of


def changed(path, value, name="dgx-h100"):
    return changed_cluster(name, ((f"cluster.{path}", value),)).groups[0]


def test_the_fabric_is_every_tier_between_nodes_and_scale_up_what_is_inside():
    before = [tier.link.bandwidth for tier in cluster("dgx-h100").groups[0].tiers]
    assert [tier.link.bandwidth for tier in changed("fabric.bandwidth", "2x").tiers] == [
        before[0],
        *[2 * b for b in before[1:]],
    ]
    assert [tier.link.bandwidth for tier in changed("scale_up.bandwidth", "1 TB/s").tiers] == [1e12, *before[1:]]
    assert [tier.link.bandwidth for tier in changed("spine.bandwidth", "1 GB/s").tiers] == [*before[:2], 1e9]
    assert changed("fabric.latency", "9 us").tiers[-1].link.step_latency == pytest.approx(9e-6)
    assert changed("spine.oversubscription", 4).tiers[-1].oversubscription == 4


def test_memory_takes_the_usable_memory_with_it():
    before, after = cluster("dgx-h100").groups[0].accelerator, changed("accelerator.memory", "2x").accelerator
    assert (after.memory, after.usable_memory) == pytest.approx((2 * before.memory, 2 * before.usable_memory))
    assert changed("hbm", "2x").accelerator == after
    assert changed("memory_bandwidth", "5 TB/s").accelerator.memory_bandwidth == 5e12
    assert changed("peak.bf16", "1.5x").accelerator.peak["bf16"] == pytest.approx(1.5 * before.peak["bf16"])


@pytest.mark.parametrize("path", ["price", "accelerator.price"])
def test_a_price_is_the_one_that_is_paid(path):
    assert changed(path, "3 $/h").rent == pytest.approx(3 / 3600)
    assert changed(path, "2x").rent == pytest.approx(2 * cluster("dgx-h100").groups[0].rent)


def test_devices_are_held_to_a_quantity_or_to_a_share_of_what_they_draw():
    h100, alps = (cluster(name).accelerator for name in ("dgx-h100", "gh200-slingshot"))
    assert changed("power_limit", "500 W").accelerator == h100.model_copy(update={"power_limit": 500.0})
    assert changed("power_limit", "0.8x", "gh200-slingshot").accelerator.drawn == pytest.approx(0.8 * 660)
    assert changed("power_limit", "1x", "gh200-slingshot").accelerator == alps
    with pytest.raises(BadRequest, match=r"cluster.power_limit: h100-sxm is rated for 700 W"):
        changed("power_limit", "2x")


def test_less_power_takes_longer_and_never_shares_a_search_with_more():
    shared = Shared()
    points = [
        {"model": "22b", "gpus": 16, "cluster": "dgx-h100"} | limit
        for limit in ({}, {"cluster.power_limit": "500 W"}, {"cluster.power_limit": "0.5x"})
    ]
    full, less, half = (kept_document(plan_point(Task("", "search", point), shared))["prediction"] for point in points)
    assert full["iteration_seconds"] < less["iteration_seconds"] < half["iteration_seconds"]
    watts = [one["energy_megawatt_hours"] / one["training_days"] for one in (full, less, half)]
    node = cluster("dgx-h100").groups[0].node_power_overhead / 8
    assert watts == pytest.approx([watts[0] * (limit + node) / (700 + node) for limit in (700, 500, 350)])
    assert len(shared.outcomes) == 3


def test_a_changed_cluster_says_so_and_an_unchanged_one_does_not():
    assert changed_cluster("dgx-h100", (("cluster.fabric.bandwidth", "1x"),)) == cluster("dgx-h100")
    assert changed_cluster("dgx-h100", (("cluster.price", "1x"),)) == cluster("dgx-h100")
    named = changed_cluster("dgx-h100", (("cluster.price", "3 $/h"), ("cluster.fabric.bandwidth", "1x"))).name
    assert named == "dgx-h100 with price 3 $/h"


def test_one_group_of_a_mixed_cluster_can_change():
    mixed = cluster("a100-h100-mixed")
    name = mixed.groups[1].name
    after = changed_cluster("a100-h100-mixed", ((f"cluster.groups.{name}.memory", "2x"),))
    assert after.groups[0] == mixed.groups[0]
    assert after.groups[1].accelerator.memory == 2 * mixed.groups[1].accelerator.memory


QUESTIONS = {
    "dense": {"model": "22b", "gpus": 16},
    "experts": {"model": "mixtral-8x7b", "gpus": 16, "cluster": "megascale"},
    "fp8": {"model": "llama3-8b", "gpus": 16, "precision": "fp8", "pins": {"offload": "any"}},
    "old": {"model": "22b", "gpus": 16, "cluster": "v100-dgx2", "precision": "fp16"},
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_lattice_reads_nothing_of_the_machines_but_their_shape(name):
    scenario = resolve(PlanRequest(**QUESTIONS[name])).scenario
    pins = parse_pins(QUESTIONS[name].get("pins", {}))
    mine, shared = build(scenario, pins), build(shape_of(scenario), pins)
    assert mine.refusals == shared.refusals
    assert mine.candidates == shared.candidates
    for field in ("layout", "degree", "allowed", "zero_stage"):
        assert (getattr(mine, field) == getattr(shared, field)).all()
    for column in fields(mine.cores):
        if column.init:
            assert (getattr(mine.cores, column.name) == getattr(shared.cores, column.name)).all()


def test_machines_of_one_shape_share_a_lattice():
    slow, cheap, plain = (
        resolve(PlanRequest(model="22b", gpus=16, cluster=changed_cluster("dgx-h100", changes))).scenario
        for changes in ((("cluster.fabric.bandwidth", "25 GB/s"),), (("cluster.price", "3 $/h"),), ())
    )
    assert cached_space(slow, {}) is cached_space(cheap, {}) is cached_space(plain, {})
    assert cached_space(replace(slow, gpus=32), {}) is not cached_space(slow, {})


def test_points_that_share_are_answered_as_if_they_were_alone():
    shared = Shared()
    base = {"model": "22b", "gpus": 16}
    points = [
        base | {"cluster.fabric.bandwidth": f"{rate} GB/s", "cluster.price": f"{price} $/h"}
        for rate, price in ((25, 2), (25, 3), (100, 2), (25, 2))
    ]
    together = [kept_document(plan_point(Task("", "search", point), shared)) for point in points]
    alone = [kept_document(plan_point(Task("", "search", point), Shared())) for point in points]
    assert together == alone
    assert len(shared.outcomes) == 2
    costs = [one["prediction"]["cost_dollars"] for one in together]
    assert costs[1] == pytest.approx(1.5 * costs[0])


@pytest.mark.parametrize("name", [*QUESTIONS, "infeasible", "offloaded", "mixed", "lean", "goodput"])
def test_a_sweep_finds_what_plan_finds(name):
    further = {
        "infeasible": {"model": "llama2-13b", "gpus": 1, "pins": {"offload": "none"}},
        "offloaded": {"model": "llama2-70b", "gpus": 8},
        "mixed": {"model": "llama2-7b", "gpus": 64, "cluster": "a100-h100-mixed"},
        "lean": {"model": "22b", "gpus": 8, "objective": "memory"},
        "goodput": {"model": "22b", "gpus": 16, "objective": "goodput", "stability": {"spare_nodes": 1}},
    }
    asked = (QUESTIONS | further)[name]
    whole = plan(PlanRequest(**asked, reasons=False))
    fields = {key: value for key, value in asked.items() if key != "pins"}
    fields |= {f"pins.{axis}": value for axis, value in asked.get("pins", {}).items()}
    brief = plan_point(Task("", "search", fields), Shared())
    assert (brief.status, brief.strategy, brief.prediction) == (whole.status, whole.strategy, whole.prediction)
    assert (brief.breakdown_seconds, brief.goodput) == (whole.breakdown_seconds, whole.goodput)
    assert (brief.alternatives, brief.why_not, brief.what_helps, brief.nearest) == ((), (), (), None)


def test_a_search_without_runners_up_finds_the_same_best():
    scenario = resolve(PlanRequest(model="22b", gpus=64)).scenario
    space = build(scenario, {})
    wide, narrow = (search(space, scenario, budget=Budget(), margin=margin) for margin in (1.5, 1.0 + 1e-6))
    assert narrow.priced < wide.priced
    assert narrow.best.row.row(0) == wide.best.row.row(0)
    assert narrow.best.iteration == wide.best.iteration


def test_a_key_is_the_question_and_not_how_it_is_written():
    def key(mode="search", **fields):
        return key_of({"model": "22b", "gpus": 64} | fields, mode)

    assert key() == key(cluster="dgx-h100", stack="megatron-core", precision="bf16", seq_length=2048)
    assert key() == key(global_batch_size=resolve(PlanRequest(model="22b", gpus=64)).scenario.global_batch_size)
    assert key() == key(**{"cluster.fabric.bandwidth": "1x"})
    assert key(**{"pins.tp": "4,8"}) == key(**{"pins.tp": "4, 8"})
    others = [
        key("predict"),
        key(gpus=128),
        key(cluster="dgx-a100-80gb"),
        key(precision="fp8"),
        key(objective="memory"),
        key(stability={"spare_nodes": 1}),
        key(global_batch_size=64),
        key(seq_length=4096),
        key(seq_length=4096, global_batch_size=64),
        key(tokens=10**9),
        key(**{"cluster.price": "9 $/h"}),
        key(**{"pins.tp": 8}),
        key(time_limit=1.0),
    ]
    assert len({key(), *others}) == len(others) + 1


def test_the_memory_that_is_kept_of_a_plan_is_that_of_its_fullest_stage():
    found = predict(PlanRequest(model="gpt3-1.3b", gpus=8, pins={"tp": 1, "pp": 2}))
    totals = [stage.total for stage in found.memory_bytes]
    assert kept_document(found)["peak_memory_bytes"] == max(totals) > min(totals)
