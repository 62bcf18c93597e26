"""What a page draws of an answer: its sentence and cards, the places of GPUs, kernels, what an axis explains."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from planner.answer.headline import headline
from planner.api import plan, predict
from planner.render.page import shown_plan, shown_study
from planner.render.page.headline import cards
from planner.render.page.importance import importance
from planner.render.page.kernels import kernels_of
from planner.render.page.layout import MOST_DOMAINS, layout_of
from planner.request.request import PlanRequest
from tests.planner.page_samples import results, small_plan


@pytest.fixture(scope="module")
def best():
    return small_plan()


@pytest.fixture(scope="module")
def experts():
    pins = {"tp": "2", "pp": "2", "ep": "8"}
    return plan(PlanRequest(model="mixtral-8x7b", gpus=64, global_batch_size=128, pins=pins))


@pytest.fixture(scope="module")
def huge():
    pins = {"tp": "8", "pp": "64", "vpp": "1"}
    return predict(PlanRequest(model="megatron-1t", gpus=98304, global_batch_size=24576, pins=pins))


def test_the_sentence_names_the_job_the_strategy_the_price_and_the_proof(best):
    told = shown_plan(best).headline
    assert told.startswith("llama3-8b on 16 GPUs of dgx-h100: ")
    assert f"DP {best.strategy.dp}: " in told
    assert "without offloading" in told


def test_a_given_strategy_is_not_called_the_best(best):
    given = best.model_copy(update={"proof": None, "status": "feasible"})
    assert "faster" not in shown_plan(given).headline
    assert headline(given.model_copy(update={"fits": False})).endswith("It is likely to run out of memory.")


def test_cards_turn_the_interval_of_the_time_into_one_of_the_mfu(best):
    said = best.prediction
    card = next(card for card in cards(best) if card["name"] == "MFU")
    low, high = (100 * said.mfu * said.iteration_seconds / end for end in (said.interval.high, said.interval.low))
    assert card["detail"].startswith(f"{low:.0f} to {high:.0f} %")
    assert low < 100 * said.mfu < high


def test_the_memory_card_is_of_the_fullest_stage_and_says_what_is_too_much(best):
    first, *others = best.memory_bytes
    over = first.model_copy(update={"limit": first.total - 2**30})
    card = next(
        card for card in cards(best.model_copy(update={"memory_bytes": (*others, over)})) if card["name"] == "Memory"
    )
    assert card["level"] == "bad"
    assert card["detail"].startswith("1.0 GiB too much; fits with a probability of ")
    assert card["detail"].endswith(f"; stage {first.stage} of 2")


def test_every_gpu_of_a_drawn_replica_has_a_place_of_its_own(experts):
    layout = layout_of(experts)
    mine = [tuple(gpu[2:5]) for domain in layout["domains"] for gpu in domain["gpus"] if gpu[1] == 0]
    degrees = layout["degrees"]
    assert len(set(mine)) == len(mine) == layout["replica"]["gpus"] == degrees["TP"] * degrees["CP"] * degrees["PP"]
    assert layout["replica"]["count"] == degrees["DP"]
    assert layout["replica"]["count"] * layout["replica"]["gpus"] == 64
    drawn = {gpu[5] for domain in layout["domains"] for gpu in domain["gpus"]}
    assert drawn <= set(range(degrees["EP"]))


def test_groups_name_the_outermost_tier_that_they_cross(experts):
    layout = layout_of(experts)
    tiers = {group["name"]: layout["tiers"][group["tier"]]["name"] for group in layout["groups"]}
    assert tiers == {"TP": "node", "EP": "node", "PP": "leaf", "DP": "leaf"}
    assert next(group for group in layout["groups"] if group["name"] == "TP")["inside"] == 2


def test_data_ranks_do_what_their_sharding_stage_asks():
    pins = {"zero_stage": "3", "cp": "2", "tp": "1", "pp": "1"}
    sharded = predict(PlanRequest(model="llama3-8b", gpus=16, stack="torchtitan", global_batch_size=64, pins=pins))
    data = next(group for group in layout_of(sharded)["groups"] if group["name"] == "DP")
    assert data["gpus"] == 16
    assert "gathers weights" in data["meaning"]
    assert data["meaning"].endswith("context ranks take part")


def test_a_hundred_thousand_gpus_are_counted_and_a_few_nodes_drawn(huge):
    layout = layout_of(huge)
    assert len(layout["domains"]) == MOST_DOMAINS
    assert layout["replica"] == {"count": 192, "gpus": 512, "domains": 64}
    assert {gpu[1] for domain in layout["domains"] for gpu in domain["gpus"]} == {0}


def test_a_job_inside_a_node_is_drawn_without_the_network_beyond():
    one = predict(PlanRequest(model="llama3-8b", gpus=4, global_batch_size=64, pins={"tp": "4"}))
    layout = layout_of(one)
    assert [tier["gpus"] for tier in layout["tiers"]] == [4]
    assert [len(domain["gpus"]) for domain in layout["domains"]] == [4]


def test_stages_on_several_node_groups_are_told_without_gpus():
    cluster = str(Path(__file__).parents[3] / "examples/my-mixed-cluster.toml")
    mixed = plan(PlanRequest(model="llama3-8b", gpus=64, cluster=cluster, global_batch_size=64))
    layout, said = layout_of(mixed), mixed.strategy
    assert {stage["group"] for stage in layout["stages"]} == {stage.group for stage in said.stages} == {"old", "new"}
    assert sum(stage["layers"] for stage in layout["stages"]) == 32
    assert "domains" not in layout
    assert "node groups" in layout["remark"]
    assert kernels_of(mixed) is None


def test_kernels_are_told_for_every_kind_of_layer(experts):
    told = kernels_of(experts)
    assert sum(layer["count"] for layer in told["layers"]) == 32
    names = {kernel["name"] for kernel in told["layers"][0]["kernels"]}
    assert {"router", "experts", "permuting tokens", "attention output"} <= names
    for kernel in told["layers"][0]["kernels"]:
        for way in (0, 1):
            assert kernel["flops"][way] <= told["machine"]["peak"] * kernel["seconds"][way]


def points(value):
    return [
        {"axes": {"a": a, "b": b, "c": c}, "days": value(a, b), "cost": None, "mfu": 0.4, "gib": None}
        for a in (1, 2, 4)
        for b in (1, 2)
        for c in ("x", "y")
    ]


def test_an_axis_that_decides_all_explains_all():
    found = importance(points(lambda a, _b: 100.0 / a), ("a", "b", "c"))
    assert found == {"days": {"a": pytest.approx(1.0), "b": 0.0, "c": 0.0}}


def test_axes_share_what_they_explain_by_their_variance():
    found = importance(points(lambda a, b: 100.0 / a * b), ("a", "b", "c"))["days"]
    between_a, between_b = (math.log(2) ** 2) * 2 / 3, (math.log(2) / 2) ** 2
    assert found["a"] == pytest.approx(1 - between_b / (between_a + between_b) * 11 / 9)
    assert found["a"] > found["b"] > found["c"] == 0.0


def test_an_axis_with_a_value_for_every_point_explains_nothing():
    several = points(lambda a, b: 10.0 * a + b)
    for number, point in enumerate(several):
        point["axes"]["number"] = number
    assert "number" not in importance(several, ("a", "number"))["days"]


def test_a_study_opens_with_its_best_plans_and_what_decides():
    told = shown_study(results(), "networks", ("gpus", "cluster")).headline
    assert told.startswith("8 points, 6 with a plan. Fastest: 10.0 days with 64 GPUs, plain.")
    assert "What decides days most is GPUs" in told


def test_warnings_stand_apart_from_assumptions(best):
    shown = shown_plan(best.model_copy(update={"warnings": ("the network is shared",)}))
    assert shown.plan["warnings"] == ("the network is shared",)
    assert "the network is shared" not in shown.assumptions
    assert replace(shown, plan=None).data()["plan"] is None
