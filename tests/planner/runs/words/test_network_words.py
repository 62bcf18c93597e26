"""The words of a measured run on its network, as others write them, and what they say for a device."""

import pytest

from planner.runs.words.machines import machines
from planner.runs.words.network_words import assumed, lane_bandwidth, link_name


@pytest.mark.parametrize(
    ("words", "gigabits"),
    [
        ("100GbE", 100 / 8),
        ("25GbE", 25 / 8),
        ("10 gigabit Ethernet", 10 / 8),
        ("100 Gigabit Ethernet", 100 / 8),
        ("400 Gbps EFA (p4d.24xlarge)", 400 / 8),
        ("2x200Gbps RoCE per GPU", 400),
        ("3x 100GbE per HPU", 300),
        ("24x 200GbE RoCE (3 external per HPU)", 24 * 200 / 8),
        ("400Gbps/NPU", 400),
        ("8x 400Gb/s RDMA (one NIC per GPU)", 400),
        ("8x 400Gb/s per GPU", 400),
        ("200Gbps HDR InfiniBand, 8 NICs per node", 200),
        ("8 HDR InfiniBand NICs per node", 200),
        ("2x 25 Gbps NICs per node", 50 / 8),
        ("Spectrum-X Ethernet 400 Gbps per GPU", 400),
        ("800 Gbps InfiniBand", 100),
        ("8x XDR 800Gb/s InfiniBand", 800),
        ("XDR 800G", 800),
        ("4x100gbps roce", 50),
        ("4xHDR100", 50),
        ("4*100Gbps RoCE", 50),
        ("8X400G", 400),
        ("200 gbps infiniband", 200),
        ("RoCE v2 4x200", 100),
        ("RoCE 8*200Gb", 200),
        ("EFA 3200", 400),
        ("4x Omni-Path 100", 50),
        ("Omni-Path 100", 100),
        ("Slingshot-11", 200),
        ("4x Slingshot-11", 100),
        ("Quantum-2 InfiniBand", 400),
        ("ConnectX-7 x 8", 400),
        ("2,400 Gb/s per node (18 x 200GbE)", 300),
        ("400 GB/s per node (8x NDR)", 400),
        ("3.2Tbps (2x200Gbps per GPU)", 400),
        ("dual-rail EDR InfiniBand", 25),
        ("InfiniBand 4X EDR 100 Gb/s", 100),
        ("200 Gb/s per two GPUs", 100),
        ("100 Gbps InfiniBand shared by four GPUs", 25),
        ("4 x 200Gb/s HDR (two GPUs per NIC)", 100),
        ("NVLink bridges between 2 GPUs, 100 Gb/s InfiniBand", 100),
        ("4 NICs/node, 200 Gbps", 100),
        ("Slingshot 11, 4 NICs per node, 200 Gb/s", 100),
        ("8 HCAs per node, 1.6 Tb/s in total", 200),
        ("2 GPU cards, 100 Gb/s InfiniBand", 100),
        ("3.2 Tbps, 8 NICs", 400),
        ("NVLink 18 links, 400 Gb/s InfiniBand", 400),
        ("HDR InfiniBand (4 links per node)", 100),
        ("EDR, dual rail", 25),
        ("quad-rail EDR", 50),
        ("multi-rail 400 Gb/s InfiniBand", 400),
        ("50 Gbps ENA", 50 / 8),
        ("100 Gbps gVNIC per VM", 100 / 8),
        ("ICI 4800 Gbps per chip", None),
        ("InfiniBand, installed in 2022", None),
    ],
)
def test_words_on_a_network_of_nodes_of_8_are_a_rate_per_device(words, gigabits):
    assert lane_bandwidth(words, 8) == (gigabits and pytest.approx(gigabits / 8 * 1e9))


@pytest.mark.parametrize(
    ("words", "accelerator", "link"),
    [
        ("100GbE", "a100-sxm-80gb", "ethernet-tcp"),
        ("25Gbps", "a100-sxm-80gb", "ethernet-tcp"),
        ("100 Gbps gVNIC", "a100-sxm-80gb", "ethernet-tcp"),
        ("100 Gbps of a scenario", "a100-sxm-80gb", None),
        ("4x 25 GB/s per node", "h100-sxm", None),
        ("25 GB/s InfiniBand", "a100-sxm-80gb", None),
        ("24x 100GbE", "gaudi2", None),
        ("3x 400GbE per node", "gaudi2", None),
        ("Spectrum-X Ethernet 400 Gbps per GPU", "h100-sxm", "roce-400"),
        ("100GbE RoCE", "a100-sxm-80gb", "roce-400"),
        ("RoCE v2 4x200", "a100-sxm-80gb", "roce-200"),
        ("4x Omni-Path 100", "v100-sxm2-16gb", "omni-path-100"),
    ],
)
def test_words_name_the_link_that_carries_a_network(words, accelerator, link):
    assert link_name(words, accelerator) == link


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("Quantum-2 InfiniBand", "network of 'Quantum-2' taken for 400 Gb/s a card, 400 Gb/s per GPU"),
        ("EFA 3200", "network of 'EFA 3200' taken for 3200 Gb/s a card, 400 Gb/s per GPU"),
        ("800 Gbps InfiniBand", "network of '800 Gbps InfiniBand' taken for a node's, being more than a card has"),
        ("8x HDR 200Gb/s InfiniBand", ""),
        ("800 Gb/s per node", ""),
        ("InfiniBand", ""),
    ],
)
def test_what_is_guessed_of_a_network_is_told(words, note):
    assert assumed(words, 8) == note


@pytest.mark.parametrize(("device", "rate"), [("a100-sxm-80gb", 12.5e9), ("h100", 12.5e9), ("b300", 100e9)])
def test_800_gigabits_are_one_cards_only_where_machines_have_such_cards(device, rate):
    notes = []
    said = {"accelerator": device, "gpus_per_node": 8, "inter_node": "800 Gbps RoCE"}
    group = machines({"cluster": said, "strategy": {}}, notes).groups[0]
    assert group.tiers[-1].link.bandwidth == rate
    assert any("more than a card" in note for note in notes) is (rate < 100e9)
