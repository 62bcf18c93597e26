"""The words of a measured run on its network, and the link they stand for."""

import pytest

from hardware.files import entry
from planner.validation.machines import node_group


@pytest.mark.parametrize(
    ("words", "tcp"),
    [
        ("25 Gb/s", True),
        ("10 Gb/s per node", True),
        ("2x 100 Gb/s Ethernet", True),
        ("56 Gb/s InfiniBand", False),
        ("40 Gb/s RoCE", False),
        ("400 Gb/s per node", False),
    ],
)
def test_slow_or_plain_ethernet_networks_carry_tcp(words, tcp):
    row = {"cluster": {"accelerator": "a100-sxm-80gb", "inter_node": words}, "strategy": {}}
    link = node_group(row, []).tiers[-1].link
    assert (link.source == entry("link", "ethernet-tcp")["source"]) is tcp
