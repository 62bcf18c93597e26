import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.names import RANK_ORDERS, SCHEDULE_NAMES, VALUE_NAMES
from planner import PlanRequest
from planner.errors import BadRequest
from planner.request.fields import PIN_AXES
from planner.request.pins import parse_pins
from tests.each import each

NUMBERS = [axis for axis in PIN_AXES if axis not in VALUE_NAMES]
USUAL = (1, 2, 3, 4, 6, 8, 12)


def restricted(axis, given_pin, usual=USUAL):
    return parse_pins({axis: given_pin})[axis].restrict(usual)


@each(
    ("written", "allowed"),
    [
        ("8", (8,)),
        (8, (8,)),
        (8.0, (8,)),
        ("4,8", (4, 8)),
        (" 4 , 8 ", (4, 8)),
        ([4, 8], (4, 8)),
        ((4, "8"), (4, 8)),
        ("8,8,4", (8, 4)),
        ("..3", (1, 2, 3)),
        ("4..", (4, 6, 8, 12)),
        ("2..6", (2, 3, 4, 6)),
        (" 2..6 ", (2, 3, 4, 6)),
        ("5..5", ()),
        ("7", (7,)),
    ],
)
def test_pins_are_values_lists_and_inclusive_ranges(written, allowed):
    assert restricted("tp", written) == allowed


@each(
    ("axis", "written", "code"),
    [
        ("schedule", "1f1b", SCHEDULE_NAMES.index("1f1b")),
        ("schedule", "interleaved", SCHEDULE_NAMES.index("interleaved-1f1b")),
        ("schedule", "GPipe", SCHEDULE_NAMES.index("gpipe")),
        ("recompute", "full", 2),
        ("recompute", " Selective ", 1),
        ("rank_order", RANK_ORDERS[1], 1),
        ("sequence_parallel", True, 1),
        ("sequence_parallel", "off", 0),
        ("sequence_parallel", 0, 0),
    ],
)
def test_named_axes_are_pinned_by_name(axis, written, code):
    assert restricted(axis, written, (0, 1, 2, 3)) == (code,)


@each("written", ["eight", "4,", "4.5", 4.5, True, [], "-4", "0", "8..2", "..", "٨", "1e3", "2...4"])
def test_what_is_not_a_pin_is_refused_with_the_axis_and_an_example(written):
    with pytest.raises(BadRequest, match=r"^tp: .*(8|least)"):
        parse_pins({"tp": written})


@each("axis", sorted(VALUE_NAMES))
def test_an_unknown_name_is_refused_with_the_known_ones(axis):
    with pytest.raises(BadRequest, match=f"^{axis}: .*{VALUE_NAMES[axis][0]}"):
        parse_pins({axis: "sideways"})


@each("axis", NUMBERS)
def test_a_number_beyond_all_machines_is_refused(axis):
    with pytest.raises(BadRequest, match=axis):
        parse_pins({axis: 10**30})


def test_zero_stages_start_at_zero_and_end_at_three():
    assert restricted("zero_stage", "0,3", (0, 1)) == (0, 3)
    with pytest.raises(BadRequest, match="4 does not exist"):
        parse_pins({"zero_stage": 4})


def test_an_axis_without_a_pin_is_free():
    assert parse_pins({"tp": None, "pp": ""}) == {}


@given(st.integers(1, 100), st.integers(1, 100))
def test_a_range_allows_exactly_what_lies_in_it(low, high):
    low, high = sorted((low, high))
    assert restricted("pp", f"{low}..{high}", range(1, 101)) == tuple(range(low, high + 1))


@given(st.text(max_size=12))
def test_any_text_is_a_pin_or_a_bad_request(text):
    for axis in ("tp", "schedule", "zero_stage"):
        try:
            pins = parse_pins({axis: text})
        except BadRequest:
            continue
        assert all(pin.values or pin.low <= pin.high for pin in pins.values())


def test_arrays_pin_as_lists_do_and_bytes_pin_nothing():
    asked = {"model": "llama3-8b", "gpus": 8}
    assert PlanRequest(**asked, pins={"tp": np.array([1, 2]), "pp": np.int64(2)}).pins == {"tp": [1, 2], "pp": 2}
    for odd in (b"8", [b"8"], memoryview(b"8"), np.array([[1, 2]]), {"at": 8}):
        with pytest.raises(BadRequest, match="tp: expected a value"):
            PlanRequest(**asked, pins={"tp": odd})


@pytest.mark.parametrize("field", ["gpus", "precision", "time_limit", "model"])
def test_bytes_are_no_text(field):
    with pytest.raises(BadRequest) as refused:
        PlanRequest(**({"model": "llama3-8b", "gpus": 8} | {field: b"8"}))
    assert str(refused.value) == f"{field}: expected text or a number, got b'8'"


def test_bytes_are_no_value_of_a_change():
    with pytest.raises(BadRequest, match=r"stack.overlap.pp: expected text or a number, got b'0.1'"):
        PlanRequest(model="llama3-8b", gpus=8, changes={"stack": {"overlap": {"pp": b"0.1"}}})


def test_a_count_of_tokens_is_whole():
    for text, count in {"1.5T": 1_500_000_000_000, "0.3B": 300_000_000, "1.1B": 1_100_000_000, "7": 7}.items():
        assert PlanRequest(model="llama3-8b", gpus=8, tokens=text).tokens == count
    for text in ("1.5", "0.4", "1.0000005M", 1.5):
        with pytest.raises(BadRequest, match="expected a whole number such as 300B"):
            PlanRequest(model="llama3-8b", gpus=8, tokens=text)
