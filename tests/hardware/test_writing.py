"""What a program writes, the readers read back as it was."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from hardware.assembly import cluster_record
from hardware.catalogue import cluster, names
from hardware.units import exact_quantity, parse_quantity
from hardware.writing import cluster_document, short_quantity, toml
from tests.each import each

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    TEXT | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@each("name", names("cluster"))
def test_every_cluster_of_the_catalogue_comes_back_from_its_own_text(name):
    known = cluster(name)
    assert cluster_record(tomllib.loads(toml(cluster_document(known)))) == known


def test_an_accelerator_that_differs_from_the_catalogue_is_written_whole():
    known = cluster("dgx-h100")
    device = known.accelerator.model_copy(update={"training_rate": 0.5})
    changed = known.model_copy(update={"groups": (known.groups[0].model_copy(update={"accelerator": device}),)})
    document = cluster_document(changed)
    assert document["accelerator"]["memory_bandwidth"] == "3.35 TB/s"
    assert cluster_record(tomllib.loads(toml(document))).accelerator.training_rate == 0.5
    assert cluster_record(tomllib.loads(toml(document))) == changed


@given(st.dictionaries(TEXT, VALUES | st.dictionaries(TEXT, VALUES, max_size=3), max_size=4))
def test_tables_come_back_from_toml(table):
    assert tomllib.loads(toml(table)) == table


@given(st.floats(1.0, 1e15))
def test_a_short_quantity_is_the_same_quantity(value):
    assert parse_quantity(short_quantity(exact_quantity(value, "bandwidth")), "bandwidth") == value
