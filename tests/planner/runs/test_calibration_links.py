"""The links and products of a known machine are found again from its tests."""

from dataclasses import replace

import numpy as np
import pytest

from costmodels.primitives.collectives import all_reduce_seconds
from costmodels.primitives.kernels import matmul_seconds
from costmodels.primitives.rank_groups import Group
from hardware.catalogue import cluster as find_cluster
from hardware.errors import MeshwrightError
from planner import calibrate
from planner.errors import BadRequest
from planner.runs.calibrate.links import fit_links, transfer_seconds
from planner.runs.calibrate.records import Log, Transfer
from tests.planner.runs.test_calibration import EXAMPLES, LOGS


def made_by(cluster, places):
    """Tests of a cluster whose links are as the formula says, over sizes from 64 KiB to 4 GiB."""
    sizes, group = 2.0 ** np.arange(16, 33), cluster.groups[0]
    made = []
    for name, nodes, each in places:
        blank = Log("made.log", 1, name, "", nodes, each, tuple(Transfer(size, 1.0, 1) for size in sizes))
        seconds = transfer_seconds(blank, sizes, group.tiers, group)
        transfers = tuple(Transfer(size, float(t), 1) for size, t in zip(sizes, seconds, strict=True))
        made.append(replace(blank, transfers=transfers))
    return made


def with_links(cluster, place, **changes):
    group = cluster.groups[0]
    tiers = list(group.tiers)
    tiers[place] = tiers[place].model_copy(update={"link": tiers[place].link.model_copy(update=changes)})
    return cluster.model_copy(update={"groups": (group.model_copy(update={"tiers": tuple(tiers)}),)})


def test_the_links_that_made_the_tests_are_found_from_the_shipped_ones():
    start = find_cluster("a100-40gb-roce-1600g")
    node = {"efficiency": 0.7, "saturation": 2e7, "step_latency": 2e-6}
    network = {"efficiency": 0.6, "saturation": 8e6, "step_latency": 2e-5, "point_to_point": 0.5}
    truth = with_links(with_links(start, 0, **node), 1, **network)
    places = [(name, *at) for name in ("all_gather", "all_reduce") for at in ((1, 8), (1, 2), (2, 8), (8, 8))]
    cluster, found = fit_links(made_by(truth, [*places, ("sendrecv", 2, 8)]), start)
    for tier, told in zip(cluster.groups[0].tiers, (node, network), strict=True):
        for name, value in told.items():
            assert getattr(tier.link, name) == pytest.approx(value, rel=0.03), (tier.name, name)
    assert max(one.median_after for one in found.errors) < 0.01


def test_a_test_within_a_node_leaves_the_network_alone():
    start = find_cluster("dgx-h100")
    cluster, found = fit_links(made_by(with_links(start, 0, efficiency=0.5), [("all_gather", 1, 8)]), start)
    assert {one.name.split(".")[1] for one in found.constants} == {"node"}
    assert cluster.groups[0].tiers[1:] == start.groups[0].tiers[1:]
    assert cluster.groups[0].tiers[0].link.efficiency == pytest.approx(0.5, rel=0.02)


def test_a_spine_with_the_link_of_the_leaf_takes_what_was_fitted_there():
    start = find_cluster("dgx-h100")
    cluster, found = fit_links(made_by(with_links(start, 1, efficiency=0.6), [("all_gather", 4, 8)]), start)
    _, leaf, spine = cluster.groups[0].tiers
    assert leaf.link == spine.link
    assert leaf.link.efficiency == pytest.approx(0.6, rel=0.05)
    assert any("spine takes the link of leaf" in note for note in found.notes)


def test_a_network_far_below_its_nominal_bandwidth_is_called_into_question():
    answer = calibrate(LOGS, cluster="a100-40gb-roce-1600g")
    assert any("network.efficiency 0.36 of the nominal 200 Gb/s" in line for line in answer.warnings)
    one, two = answer.errors
    assert two.median_after < one.median_before < two.median_before
    assert one.median_after < 0.08


def test_the_products_of_another_machine_are_found_from_the_shipped_ones(tmp_path):
    device = find_cluster("dgx-h100").accelerator
    truth = {"efficiency": 0.6, "k_half": 400.0, "memory_efficiency": 0.5, "overhead": 6e-6}
    fit = device.kernels.gemm["bf16"].model_copy(update=truth | {"sustained": 1.0})
    lines = ["m,n,k,dtype,time_us"]
    for m in (16, 128, 1024, 8192):
        for n, k in ((256, 256), (1024, 8192), (8192, 1024), (8192, 8192)):
            seconds = matmul_seconds(
                m=m, n=n, k=k, fit=fit, peak=device.peak["bf16"], bandwidth=device.memory_bandwidth
            )
            lines.append(f"{m},{n},{k},bf16,{1e6 * float(seconds):.6f}")
    path = tmp_path / "gemm.csv"
    path.write_text("\n".join(lines))
    answer = calibrate([path], cluster="dgx-h100")
    (tmp_path / "p.toml").write_text(answer.profile)
    found = find_cluster(tmp_path / "p.toml").accelerator.kernels.gemm["bf16"]
    for name, value in truth.items():
        assert getattr(found, name) == pytest.approx(value, rel=0.03), name
    assert found.sustained == device.kernels.gemm["bf16"].sustained
    assert "16 products; median error" in found.source


def test_products_alone_ask_for_their_machine():
    with pytest.raises(BadRequest, match="--cluster dgx-h100"):
        calibrate([EXAMPLES / "products.csv"])


def test_a_log_of_another_machine_is_refused_by_its_line():
    with pytest.raises(
        MeshwrightError, match=r"all_reduce_1_node.log: line 1: measured on NVIDIA A100-SXM4-40GB, but cluster"
    ):
        calibrate(LOGS, cluster="dgx-h100")


@pytest.mark.parametrize("each", [2, 3, 5, 6, 7, 8])
def test_any_number_of_ranks_on_one_host_speak_of_its_node(each):
    cluster = find_cluster("dgx-h100")
    _, found = fit_links(made_by(with_links(cluster, 0, efficiency=0.6), [("all_gather", 1, each)]), cluster)
    assert {one.name.split(".")[1] for one in found.constants} == {"node"}
    assert max(abs(one.median_after) for one in found.errors) < 0.02


def test_some_ranks_of_two_hosts_speak_of_the_switch_between_them():
    cluster = find_cluster("dgx-h100")
    _, found = fit_links(made_by(cluster, [("all_reduce", 2, 6)]), cluster)
    assert {one.name.split(".")[1] for one in found.constants} == {"leaf"}


def test_ranks_that_fill_their_nodes_take_as_long_as_a_group_of_the_cluster():
    group, size = find_cluster("dgx-h100").groups[0], np.array([1e6, 1e9])
    test = Log("made.log", 1, "all_reduce", "", 4, 8, ())
    ones = np.ones(2, dtype=np.int64)
    whole = Group(size=32 * ones, parts=((32 * ones, ones),))
    assert transfer_seconds(test, size, group.tiers, group) == pytest.approx(
        all_reduce_seconds(size, whole, group.tiers)
    )


@pytest.mark.parametrize("times", [1000.0, 0.001])
def test_tests_and_products_in_other_units_are_refused(tmp_path, times):
    cluster = find_cluster("dgx-h100")
    (test,) = made_by(cluster, [("all_reduce", 1, 8)])
    wrong = replace(test, transfers=tuple(replace(one, seconds=times * one.seconds) for one in test.transfers))
    with pytest.raises(MeshwrightError, match=r"line 1: predicted to take .* as measured; look at its units"):
        fit_links([test, wrong], cluster)
    table = tmp_path / "products.csv"
    table.write_text(
        "m,n,k,dtype,time_us\n" + "".join(f"8192,8192,{k},bf16,{times * 1.7 * k / 8:.3f}\n" for k in (4096, 8192))
    )
    with pytest.raises(MeshwrightError, match=r"line 2: predicted to take .* as measured; look at its units"):
        calibrate([table], cluster="dgx-h100")
