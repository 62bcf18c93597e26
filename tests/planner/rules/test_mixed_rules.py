"""Every rule about several node groups with a strategy that it accepts and one that it refuses."""

import numpy as np
import pytest

from costmodels.names import SCHEDULE_NAMES
from planner.api import plan
from planner.request.request import PlanRequest
from planner.rules.core import GROUP_RULES, RULES, sentence
from tests.each import each
from tests.scenarios import ONE_F_ONE_B, toy_scenario

PAIRS = {
    "group-layers": ({"pp": 8}, {"pp": 16}),
    "group-width": ({"ranks": 8, "widest": 8}, {"ranks": 4, "widest": 8}),
    "group-batch": ({"dp": 4, "batch_width": 8}, {"dp": 4, "batch_width": 6}),
    "group-chunks": ({"vpp": 4}, {"vpp": 7}),
    "group-order": ({"rank_order": 0}, {"rank_order": 1}),
    "group-schedule": ({"schedule": ONE_F_ONE_B}, {"schedule": SCHEDULE_NAMES.index("zb-1p")}),
    "group-vocabulary": ({"vocabulary": 0}, {"vocabulary": 1}),
    "group-recompute": ({"recompute_num_layers": 1}, {"recompute_num_layers": 2}),
    "group-offload": ({"offload": 0}, {"offload": 1}),
}
"""Rule to the columns of a strategy that passes it and of one that does not."""


def columns(row):
    return {name: np.array([value]) for name, value in row.items()}


def test_every_rule_has_a_pair_and_a_name_of_its_own():
    assert sorted(PAIRS) == sorted(rule.name for rule in GROUP_RULES)
    assert not {rule.name for rule in RULES} & set(PAIRS)


@each("rule", GROUP_RULES)
def test_a_rule_accepts_one_strategy_and_refuses_another_in_words(rule):
    accepted, refused = PAIRS[rule.name]
    assert set(accepted) == set(refused) == set(rule.reads)
    assert np.all(rule.passes(columns(accepted), toy_scenario()))
    assert not np.any(rule.passes(columns(refused), toy_scenario()))
    words = sentence(rule, refused, toy_scenario())
    assert "{" not in words
    assert rule.source


@each("name", SCHEDULE_NAMES[1:])
def test_schedules_over_several_groups_are_those_that_work_through_unequal_stages_in_turn(name):
    (rule,) = (rule for rule in GROUP_RULES if rule.name == "group-schedule")
    turns = {"gpipe", "1f1b", "interleaved-1f1b", "interleaved-groups"}
    assert bool(rule.passes(columns({"schedule": SCHEDULE_NAMES.index(name)}), toy_scenario())[0]) == (name in turns)


@pytest.mark.parametrize(
    ("pins", "rule", "said"),
    [
        ({"tp": 8, "cp": 8, "dp": 1, "pp": 2, "micro_batch_size": 3}, "batch-divides", "micro-batch 3 does not divide"),
        ({"tp": 8, "dp": 8, "micro_batch_size": 128}, "batch-divides", "64 does"),
        ({"zero_stage": 3, "schedule": "none"}, "schedule", "schedule none does not run"),
        (
            {"recompute": "full", "recompute_modules": "layernorm", "dp": 32},
            "modules-selective",
            "need recompute selective",
        ),
        ({"zero_stage": 1, "dp": 1, "cp": 1}, "sharding", "stage 0 has degree 1"),
        ({"rank_order": "tp-cp-ep-pp-dp", "zero_stage": 1}, "group-order", "spreads a node group's ranks"),
    ],
)
def test_the_first_reason_is_about_what_was_pinned(pins, rule, said):
    asked = PlanRequest(model="llama3-8b", gpus=128, cluster="a100-h100-mixed", pins=pins, reasons=False)
    answer = plan(asked)
    assert answer.status == "infeasible"
    assert answer.rejected[0].rule == rule
    assert said in answer.rejected[0].example
    assert not {one.rule for one in answer.rejected} & {one.name for one in RULES if one.kind == "dominated"}


def test_the_nearest_that_works_gives_up_one_pin_where_that_is_enough():
    pins = {"tp": 4, "schedule": "none", "micro_batch_size": 1}
    answer = plan(PlanRequest(model="llama3-8b", gpus=128, cluster="a100-h100-mixed", pins=pins))
    assert answer.nearest.subject == "without --schedule"
    assert "TP 4" in answer.nearest.text
