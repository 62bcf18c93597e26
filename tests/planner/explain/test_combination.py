import re
from contextlib import suppress

import pytest

from costmodels.pricing import price_together
from planner import PlanRequest, plan, predict
from planner.errors import BadRequest
from planner.explain import combination
from planner.request.fields import FIELDS
from planner.request.pins import Pin, parse_pins
from planner.request.resolve import resolve
from planner.search.given import broken_rules, checked_layers, single_strategy

AXES = {field.words[0]: name for name, field in FIELDS.items() if field.axis}


def named(error):
    words = re.search(r"the nearest that works: ([^,]*)", str(error))[1].split()
    return {AXES[option.removeprefix("--")]: value for option, value in zip(words[::2], words[1::2], strict=True)}


def asked(pins, **more):
    return PlanRequest(model="llama3-70b", gpus=256, pins=pins, **more)


@pytest.mark.parametrize(
    "pins",
    [
        {"tp": 3, "pp": 7},
        {"tp": 3, "pp": 7, "micro_batch_size": 5, "vpp": 3},
        {"tp": 8, "pp": 3, "dp": 5},
        {"tp": 5, "cp": 3, "dp": 8, "micro_batch_size": 8},
        {"pp": 6, "micro_batch_size": 3},
    ],
)
def test_contradicting_pins_are_answered_with_one_combination_that_works(pins):
    with pytest.raises(BadRequest) as refused:
        predict(asked(pins))
    assert predict(asked(pins | named(refused.value))).status != "infeasible"


@pytest.mark.parametrize("pins", [{"tp": 3, "pp": 7}, {"tp": 16, "pp": 32, "micro_batch_size": 7}])
def test_a_search_names_one_too(pins):
    with pytest.raises(BadRequest) as refused:
        plan(asked(pins, reasons=False, top=0))
    assert plan(asked(pins | named(refused.value), reasons=False, top=0)).status != "infeasible"


def test_the_combination_leaves_tensor_ranks_within_the_node():
    with pytest.raises(BadRequest) as refused:
        predict(PlanRequest(model="llama3-70b", gpus=64, pins={"tp": 2, "micro_batch_size": 3}))
    assert int(named(refused.value)["tp"]) <= 8


def test_several_rules_that_pins_break_are_answered_with_what_changes():
    found = predict(asked({"tp": 8, "pp": 1, "vpp": 3, "micro_batch_size": 1, "schedule": "gpipe"}))
    assert found.status == "infeasible"
    words = found.nearest.subject.split()
    changed = {AXES[word.removeprefix("--")]: value for word, value in zip(words[::2], words[1::2], strict=True)}
    assert predict(asked({"tp": 8, "pp": 1, "vpp": 3, "micro_batch_size": 1, "schedule": "gpipe"} | changed)).fits


def test_one_pin_alone_is_mended_as_it_was():
    with pytest.raises(BadRequest, match=r"; 2 and 4 do$"):
        plan(asked({"tp": 3}))


@pytest.mark.parametrize(
    ("model", "gpus", "pins", "layers"),
    [
        ("llama3-70b", 256, {"tp": 3, "pp": 7}, None),
        ("llama3-70b", 256, {"tp": 3, "vpp": 2}, [10] * 8),
        ("llama3.1-405b", 8, {"tp": 3, "pp": 5, "micro_batch_size": 3}, None),
    ],
)
def test_the_nearest_is_that_of_the_rules_asked_about_one_strategy_at_a_time(model, gpus, pins, layers):
    scenario, pins = resolve(PlanRequest(model=model, gpus=gpus)).scenario, parse_pins(pins)
    tried = list(combination._combinations(scenario, {"cp": Pin("cp", (1,)), **pins}))[:300]
    alone = []
    for changed in tried:
        with suppress(BadRequest):
            row = single_strategy(scenario, combination._with(pins, changed), layers)
            if not broken_rules(row, scenario, layers) and (layers is None or checked_layers(layers, row, scenario)):
                alone.append((changed, row.row(0)))
    together = [(changed, row.row(0)) for changed, row in combination._allowed(scenario, pins, tried, layers)]
    assert together == alone != []


def test_many_combinations_are_priced_in_few_calls(monkeypatch):
    priced = []
    monkeypatch.setattr(
        combination, "price_together", lambda rows, scenario: priced.append(len(rows)) or price_together(rows, scenario)
    )
    pins = {"tp": 3, "pp": 5, "vpp": 3, "micro_batch_size": 3}
    assert combination.nearest_given(resolve(PlanRequest(model="1t", gpus=64)).scenario, parse_pins(pins), None) is None
    assert len(priced) <= 8
    assert sum(priced) >= 200
