import re

import pytest

from planner import PlanRequest, plan, predict
from planner.errors import BadRequest
from planner.request.fields import FIELDS

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


def test_several_rules_that_pins_break_are_answered_with_what_changes():
    found = predict(asked({"tp": 8, "pp": 1, "vpp": 3, "micro_batch_size": 1, "schedule": "gpipe"}))
    assert found.status == "infeasible"
    changed = dict(one.split() for one in found.nearest.subject.split(", "))
    assert predict(asked({"tp": 8, "pp": 1, "vpp": 3, "micro_batch_size": 1, "schedule": "gpipe"} | changed)).fits


def test_one_pin_alone_is_mended_as_it_was():
    with pytest.raises(BadRequest, match=r"; 2 and 4 do$"):
        plan(asked({"tp": 3}))
