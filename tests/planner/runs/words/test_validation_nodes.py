"""What a measured run says of its nodes, and the tiers that join their devices."""

import pytest

from hardware.catalogue import cluster
from planner.runs.words.machines import machines, node_group


def row(accelerator, gpus_per_node=None, *, gpus=0, **said):
    said = {"accelerator": accelerator, "gpus_per_node": gpus_per_node} | said
    return {"cluster": said, "strategy": {"gpus": gpus}}


def domains(group):
    return [tier.domain for tier in group.tiers]


@pytest.mark.parametrize("gpus", [1, 3, 4, 6, 7])
def test_a_job_smaller_than_a_node_pays_no_network_whether_or_not_it_divides_the_node(gpus):
    group = node_group(row("h100", 8, gpus=gpus, inter_node="25 Gb/s Ethernet"), [])
    assert (group.gpus_per_node, domains(group)) == (gpus, [0])
    assert group.tiers[0].link == cluster("dgx-h100").groups[0].tiers[0].link


def test_the_72_of_a_rack_are_nodes_of_4_whose_cards_serve_4():
    notes = []
    said = row("gb200", 72, gpus=144, inter_node="4x NDR 400Gb/s per node beyond the 72-GPU domain")
    rack, trays = node_group(said, notes), node_group(row("gb200", 4, gpus=144, inter_node="4x NDR 400Gb/s"), [])
    assert (rack.gpus_per_node, domains(rack)) == (4, [72, 0])
    assert rack.tiers[-1].link.bandwidth == trays.tiers[-1].link.bandwidth == 50e9
    assert "the 72 said of a node are one domain of nodes of 4" in notes


def test_a_job_of_64_of_a_rack_stays_within_it():
    group = node_group(row("gb200", 72, gpus=64), [])
    assert domains(group)[0] == 64


@pytest.mark.parametrize(("name", "nodes"), [("gb200", 4), ("gb300", 4)])
def test_a_smaller_rack_is_known_by_the_number_in_its_name(name, nodes):
    notes = []
    group = node_group(row(name, 4, gpus=72, intra_node="NVLink5 NVL36"), notes)
    assert (group.gpus_per_node, domains(group)) == (nodes, [36, 0])
    assert "NVLink domains of 36 joined as those of 72 are assumed" in notes


@pytest.mark.parametrize("name", ["v100-sxm2-16gb", "a10g", "t4", "l4", "h100", "a40", "p100"])
def test_nodes_of_one_device_meet_over_the_network_that_is_said(name):
    group = node_group(row(name, 1, gpus=8, inter_node="10 Gb/s Ethernet"), [])
    assert {tier.link.bandwidth for tier in group.tiers} == {10e9 / 8}
    assert domains(group)[-1] == 0


def test_a_gh200_alone_in_its_node_has_no_nvlink():
    notes = []
    found = machines(row("gh200", 1, inter_node="1x NDR 400Gb/s InfiniBand"), notes)
    assert (found.name, domains(found.groups[0])) == ("gh200-slingshot", [0])
    assert found.groups[0].tiers[0].link.bandwidth == 50e9
    assert "nodes of 1 joined as the 4 of gh200-slingshot are assumed" in notes


@pytest.mark.parametrize("said", [{"gpus_per_node": 32}, {"gpus_per_node": 1, "intra_node": "NVLink switches, NVL32"}])
def test_gh200_in_a_rack_of_32_are_joined_by_nvlink(said):
    found = machines(row("gh200", **said), [])
    assert (found.name, domains(found.groups[0])) == ("gh200-nvl32", [32, 0])


@pytest.mark.parametrize(
    ("name", "size", "joined"),
    [
        ("h100-nvl", 4, [2, 4, 0]),
        ("h100-nvl", 2, [2, 0]),
        ("h100-nvl", 16, [2, 16, 0]),
        ("h200-nvl", 2, [2, 0]),
        ("a40", 4, [4, 0]),
        ("a40", 2, [2, 0]),
        ("a100-pcie-80gb", 10, [4, 10, 0]),
        ("mi210", 4, [4, 0]),
        ("max-1550-stack", 8, [2, 8, 0]),
        ("max-1550-stack", 1, [0]),
    ],
)
def test_a_node_of_another_size_is_joined_inside_by_its_own_links_alone(name, size, joined):
    group = machines(row(name, size, inter_node="100 Gb/s InfiniBand"), []).groups[0]
    usual = machines(row(name), []).groups[0].tiers
    assert domains(group) == joined
    assert [tier.link for tier in group.tiers[:-1]] == [tier.link for tier in usual[: len(joined) - 1]]
    assert group.tiers[-1].link.bandwidth == 12.5e9
