"""What a page draws of an answer: its sentence and cards, the places of GPUs, kernels, what an axis explains."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from costmodels.node_groups import price
from planner.answer.headline import headline
from planner.answer.load import stages_from_plan
from planner.api import plan, predict
from planner.errors import BadRequest
from planner.render.by_group import row_over_groups
from planner.render.page import shown_plan, shown_study
from planner.render.page.headline import cards
from planner.render.page.importance import importance
from planner.render.page.kernels import kernels_of
from planner.render.page.layout import MOST_DOMAINS, layout_of
from planner.request.request import PlanRequest
from planner.request.resolve import resolve
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
    assert card["value"] == f"{first.total / 2**30:.1f} GiB"
    too_much = f"1.0 GiB too much for {first.total / 2**30 - 1:.1f} GiB"
    assert card["detail"].startswith(f"{too_much}; fits with a probability of ")
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


@pytest.fixture(scope="module")
def mixed():
    cluster = str(Path(__file__).parents[3] / "examples/my-mixed-cluster.toml")
    return plan(PlanRequest(model="llama3-8b", gpus=64, cluster=cluster, global_batch_size=64, pins={"pp": "4"}))


def test_every_node_group_is_drawn_with_its_own_stages(mixed):
    layout, said = layout_of(mixed), mixed.strategy
    assert sum(stage["layers"] for stage in layout["stages"]) == 32
    assert [part["name"] for part in layout["parts"]] == list(dict.fromkeys(stage.group for stage in said.stages))
    for part in layout["parts"]:
        held = range(part["first"], part["first"] + len(part["stages"]))
        assert {said.stages[stage].group for stage in held} == {part["name"]}
        drawn = [gpu for domain in part["domains"] for gpu in domain["gpus"]]
        assert {gpu[2] for gpu in drawn} == set(held)
        assert part["gpus"] == len(held) * part["degrees"]["TP"] * part["degrees"]["CP"] * part["degrees"]["DP"]
        assert part["tiers"][-1]["gpus"] == part["gpus"] == 32
    assert [way["groups"] for way in layout["between"]] == [[part["name"] for part in layout["parts"]]]
    assert layout["between"][0]["bandwidth"] == pytest.approx(100e9 / 8)


def test_kernels_of_every_node_group_run_under_the_roofs_of_its_machine(mixed):
    told = kernels_of(mixed)["parts"]
    assert {part["name"]: part["machine"]["peak"] for part in told} == {"old": 312e12, "new": 989e12}
    for part in told:
        for kernel in part["layers"][0]["kernels"]:
            assert kernel["flops"][0] <= part["machine"]["peak"] * kernel["seconds"][0]


@pytest.mark.parametrize("pins", [{"pp": "4"}, {"tp": "1.."}, {"tp": "4,8", "micro_batch_size": "1,2"}])
def test_rows_over_node_groups_are_those_that_were_priced(pins):
    cluster = str(Path(__file__).parents[3] / "examples/my-mixed-cluster.toml")
    found = plan(PlanRequest(model="llama3-8b", gpus=64, cluster=cluster, global_batch_size=64, pins=pins))
    question = resolve(PlanRequest(**found.request)).mixed
    pairs = [(found.strategy, found.prediction), *((other.strategy, other) for other in found.alternatives)]
    for strategy, said in pairs:
        row, split = row_over_groups(strategy, question), stages_from_plan(strategy)
        assert price(row, question, split).iteration == pytest.approx(said.iteration_seconds, rel=1e-9)


def test_a_plan_whose_stages_lie_elsewhere_than_its_machines_is_refused(mixed):
    stages = tuple(stage.model_copy(update={"group": "gone"}) for stage in mixed.strategy.stages)
    with pytest.raises(BadRequest, match="they lie on gone; the machines are old, new"):
        layout_of(mixed.model_copy(update={"strategy": mixed.strategy.model_copy(update={"stages": stages})}))


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
