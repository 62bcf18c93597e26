"""Devices held to less power than they are rated for: how much slower, what is refused, what a file keeps."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware import catalogue
from hardware.assembly import cluster_record
from hardware.errors import BadFile
from hardware.power import BLACKWELL_CLOCK, CLOCK, LEAST
from hardware.writing import cluster_document

CAPPED = (
    'name = "mine"\naccelerator = "h100-sxm"\npower_limit = "{limit}"\ngpus_per_node = 8\n'
    '[network]\nbandwidth = "400 Gb/s"\n'
)


def held(name, watts):
    return catalogue.accelerator(name).model_copy(update={"power_limit": watts})


def test_two_cards_of_one_die_differ_by_their_power_as_was_measured():
    """H100 PCIe multiplies at 495.9 TFLOP/s with 114 units within 350 W, H100 SXM at 797.5 with 132 within 700."""
    each = (350.0 / 114) / (700.0 / 132)
    assert held("h100-sxm", each * 700.0).clock("bf16") == pytest.approx((495.9 / 114) / (797.5 / 132), rel=0.002)


def test_blackwell_loses_more_than_hopper():
    assert held("b200", 750.0).clock("bf16") == 0.75**BLACKWELL_CLOCK < 0.75**CLOCK
    assert held("b200", 750.0).clock("bf16") * 0.9 * 1521 == pytest.approx(1021, rel=0.02)


@given(share=st.floats(LEAST, 1.0))
def test_less_power_never_makes_products_faster_and_vector_units_never_slower(share):
    for name in ("h100-sxm", "gh200", "b200", "mi300x"):
        device = held(name, share * catalogue.accelerator(name).power)
        assert 0 < device.clock("bf16") <= 1 == device.clock("fp32")
        assert device.drawn == device.power_limit


def test_every_machine_of_the_catalogue_runs_at_its_tables_unless_its_cluster_holds_it():
    assert {catalogue.accelerator(name).clock("bf16") for name in catalogue.names("accelerator")} == {1.0}
    slowed = {
        name: round(catalogue.cluster(name).groups[0].accelerator.clock("bf16"), 3)
        for name in catalogue.names("cluster")
        if catalogue.cluster(name).groups[0].accelerator.clock("bf16") < 1
    }
    assert slowed == {"gh200-slingshot": round((560 / 700) ** CLOCK, 3), "jupiter": round((580 / 700) ** CLOCK, 3)}


def test_a_cluster_file_holds_its_devices_and_is_written_as_it_was_read(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(CAPPED.format(limit="500 W"), encoding="utf-8")
    cluster = catalogue.cluster(path)
    assert cluster.accelerator.drawn == 500.0
    document = cluster_document(cluster)
    assert (document["accelerator"], document["power_limit"]) == ("h100-sxm", "500 W")
    assert cluster_record(document) == cluster


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("900 W", "h100-sxm is rated for 700 W, less than the power_limit of 900 W; leave it out"),
        ("100 W", "h100-sxm has 700 W, and its speed at a power_limit of 100 W is not known; 245 W works"),
        ("500", "power_limit: expected a power such as '700 W', got '500' (no unit)"),
    ],
)
def test_a_limit_that_holds_nothing_or_too_much_is_refused(tmp_path, limit, said):
    path = tmp_path / "mine.toml"
    path.write_text(CAPPED.format(limit=limit), encoding="utf-8")
    with pytest.raises(BadFile, match=re.escape(said)):
        catalogue.cluster(path)


@pytest.mark.parametrize("host", ["500 W", "900 W"])
def test_a_host_that_leaves_its_device_too_little_is_refused(tmp_path, host):
    path = tmp_path / "gpu.toml"
    path.write_text(f'name = "mine"\nlike = "h100-sxm"\nhost_power = "{host}"\n', encoding="utf-8")
    with pytest.raises(BadFile, match="its speed at a power_limit of 700"):
        catalogue.accelerator(path)
