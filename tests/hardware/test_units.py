import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from hardware.errors import BadQuantity, flatten
from hardware.units import (
    BandwidthQuantity,
    FailureQuantity,
    PriceQuantity,
    exact_quantity,
    format_quantity,
    parse_quantity,
)
from tests.each import each

DIMENSIONS = ("bytes", "bandwidth", "rate", "time", "power", "price", "count", "frequency", "money")


@each(
    ("text", "dimension", "value"),
    [
        ("80 GB", "bytes", 80e9),
        ("80GiB", "bytes", 80 * 2**30),
        ("81559 MiB", "bytes", 81559 * 2**20),
        ("3.35 TB/s", "bandwidth", 3.35e12),
        ("1 GiB/s", "bandwidth", 2**30),
        ("400 Gb/s", "bandwidth", 50e9),
        ("3.2 Tb/s", "bandwidth", 400e9),
        ("989 TFLOP/s", "rate", 989e12),
        ("1.2 PFLOPS", "rate", 1.2e15),
        ("5 us", "time", 5e-6),
        ("5 µs", "time", 5e-6),
        ("30 d", "time", 30 * 86400),
        ("2 min", "time", 120),
        ("0 s", "time", 0),
        ("10.2 kW", "power", 10200),
        ("2.95 $/h", "price", 2.95 / 3600),
        ("$2.95/h", "price", 2.95 / 3600),
        ("300B", "count", 300e9),
        ("1.5T", "count", 1.5e12),
        ("2M", "count", 2e6),
        ("1e9", "count", 1e9),
        (4096, "count", 4096),
        ("1_000_000", "count", 1e6),
        ("1 per 50000 h", "frequency", 1 / (50000 * 3600)),
        ("6.5 per 1000 days", "frequency", 6.5 / (1000 * 86400)),
        ("2 per d", "frequency", 2 / 86400),
        ("$1.5M", "money", 1.5e6),
        ("1500 $", "money", 1500),
    ],
)
def test_quantities_are_read_as_people_write_them(text, dimension, value):
    assert parse_quantity(text, dimension) == pytest.approx(value, rel=1e-12)


@each(
    ("text", "dimension", "why"),
    [
        (3350, "bandwidth", "no unit"),
        ("3350", "bandwidth", "no unit"),
        ("3.35 TB", "bandwidth", "unknown unit 'TB'"),
        ("400 Gb", "bytes", "unknown unit 'Gb'; did you mean GB?"),
        ("300b", "count", "unknown unit 'b'; did you mean B?"),
        ("3 gb/s", "bandwidth", "unknown unit 'gb/s'; did you mean GB/s or Gb/s?"),
        ("-5 GB", "bytes", "negative"),
        ("nan GB", "bytes", "not finite"),
        ("inf s", "time", "not finite"),
        ("1e999 s", "time", "not finite"),
        (10**400, "count", "not finite"),
        (True, "count", "no unit"),
        (None, "time", "not text"),
        ("fast", "rate", "not a number with a unit"),
        ("1__0 s", "time", "unknown unit"),
        ("3 $", "price", "unknown unit"),
        ("1.5M", "money", "no unit"),
        ("$1 $", "money", "two units"),
        ("1 per 0 h", "frequency", "not a positive time"),
        ("1 per 5 apples", "frequency", "not a positive time"),
        ("$5 GB", "bytes", "unknown unit"),
    ],
)
def test_a_wrong_quantity_says_what_was_given_and_what_is_expected(text, dimension, why):
    with pytest.raises(BadQuantity) as caught:
        parse_quantity(text, dimension)
    message = str(caught.value)
    if why != "unknown unit":
        assert why in message
    assert message.startswith("expected a")
    assert "got " in message
    assert "\n" not in message


@given(st.floats(min_value=0, max_value=1e300, allow_nan=False), st.sampled_from(DIMENSIONS))
def test_the_exact_form_loses_nothing(value, dimension):
    assert parse_quantity(exact_quantity(value, dimension), dimension) == value


@given(st.floats(min_value=1e-12, max_value=1e17), st.sampled_from(DIMENSIONS), st.integers(2, 9))
def test_the_printed_form_is_read_back_within_its_digits(value, dimension, digits):
    again = parse_quantity(format_quantity(value, dimension, digits), dimension)
    assert again == pytest.approx(value, rel=10.0 ** (1 - digits))


@each(
    ("value", "dimension", "text"),
    [
        (3.35e12, "bandwidth", "3.35 TB/s"),
        (0.0125, "time", "12.5 ms"),
        (175e9, "count", "175B"),
        (1.5e6, "money", "$1.5M"),
        (999.9e9, "bytes", "1 TB"),
        (1 / (50700 * 3600), "frequency", "1 per 50700 h"),
        (2.95 / 3600, "price", "2.95 $/h"),
        (0.0, "bytes", "0 B"),
        (0.0, "frequency", "0 /s"),
    ],
)
def test_quantities_are_printed_with_the_unit_that_reads_best(value, dimension, text):
    assert format_quantity(value, dimension) == text


class Sample(BaseModel):
    bandwidth: BandwidthQuantity
    failure: FailureQuantity
    price: PriceQuantity | None = None


@given(st.floats(min_value=0, max_value=1e300), st.floats(min_value=0, max_value=1))
def test_a_record_survives_json_to_the_last_bit(bandwidth, failure):
    sample = Sample(bandwidth="1 B/s", failure="1 per 9 d", price="2.95 $/h").model_copy(
        update={"bandwidth": bandwidth, "failure": failure}
    )
    assert Sample.model_validate_json(sample.model_dump_json()) == sample
    assert Sample.model_validate(sample.model_dump()) == sample


def test_a_bare_number_in_a_record_names_the_field_and_the_expected_form():
    with pytest.raises(ValidationError) as caught:
        Sample(bandwidth=3350, failure="1 per 9 d", price=3)
    assert flatten(caught.value) == (
        "bandwidth: expected a bandwidth such as '3.35 TB/s', got 3350 (no unit); "
        "price: expected a price such as '2.95 $/h', got 3 (no unit)"
    )


def test_the_schema_says_that_quantities_are_strings_with_a_unit():
    schema = Sample.model_json_schema()["properties"]["bandwidth"]
    assert schema["type"] == "string"
    assert math.isfinite(parse_quantity(schema["examples"][0], "bandwidth"))
