"""The words of a measured run on its network, and the link they stand for."""

import pytest

from hardware.catalogue import accelerator, cluster, names
from hardware.files import entry
from hardware.power import BLACKWELL_CLOCK, CLOCK
from planner.runs.words.machines import CLUSTERS, Unpriceable, machines, node_group
from planner.runs.words.stack_words import kin


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


@pytest.mark.parametrize(
    ("source", "expected"),
    [("pytorch/ao float8 tables", "h100-sxm-96gb-hbm2e"), ("a paper of NVIDIA's", "h100-sxm")],
)
def test_developers_of_pytorch_measure_on_a_variant_of_h100(source, expected):
    row = {"source": source, "cluster": {"accelerator": "h100-sxm"}, "strategy": {}}
    assert node_group(row, []).accelerator.name == expected


@pytest.mark.parametrize(
    ("note", "cores"), [("Ascend 910B (Atlas 800T A2)", 20), ("Ascend 910B (Atlas 900 A2 PoDc)", 24)]
)
def test_nodes_of_ascend_910b_differ_by_the_cores_of_their_chips(note, cores):
    row = {"cluster": {"accelerator": "ascend-910b", "accelerator_note": note}, "strategy": {}}
    found = node_group(row, []).accelerator
    assert found.compute_units == cores
    assert found.peak["bf16"] == pytest.approx(cores * 2 * 16**3 * 1.8e9, rel=1e-3)


@pytest.mark.parametrize(
    ("note", "share"),
    [("B200-SXM-180GB", 1.0), ("B200 (power limited)", 0.75), ("B200 (500 W)", 0.5), ("B200 (1200W)", 1.0)],
)
def test_less_power_slows_arithmetic_by_less_and_memory_not_at_all(note, share):
    full, found = (
        node_group({"cluster": {"accelerator": "b200", "accelerator_note": said}, "strategy": {}}, []).accelerator
        for said in ("", note)
    )
    assert (found.clock("bf16"), found.peak) == (share**BLACKWELL_CLOCK, full.peak)
    assert found.training_rate == full.training_rate
    assert found.memory_bandwidth == full.memory_bandwidth


@pytest.mark.parametrize(
    ("note", "limit", "cluster"),
    [
        ("GH200 (Hopper, 96GB HBM3), CSCS Alps Clariden", 660.0, "gh200-slingshot"),
        ("GH200, JUPITER", 680.0, "jupiter"),
        ("GH200", None, "gh200-slingshot"),
        ("GH200 (624 W), Alps", 624.0, "gh200-slingshot"),
        ("GH200 (12 W)", None, "gh200-slingshot"),
    ],
)
def test_machines_that_hold_both_chips_of_a_module_to_less_power_are_known_by_name(note, limit, cluster):
    row = {"cluster": {"accelerator": "gh200", "accelerator_note": note, "gpus_per_node": 4}, "strategy": {}}
    found = machines(row, [])
    assert (found.groups[0].accelerator.power_limit, found.name) == (limit, cluster)


def test_a_host_takes_its_part_of_the_power_of_a_module_first():
    """800 W leave the 700 within which H100's tables were measured."""
    said = [
        node_group({"cluster": {"accelerator": "gh200", "accelerator_note": f"GH200 {watts} W"}, "strategy": {}}, [])
        for watts in (660, 800, 1000)
    ]
    assert [group.accelerator.clock("bf16") for group in said] == [(560 / 700) ** CLOCK, 1.0, 1.0]


@pytest.mark.parametrize(
    ("said", "cluster"),
    [("rtx4090", "rtx4090-8x"), ("kunlun-p800", "kunlun-p800-8x"), ("H100", "dgx-h100"), ("tpu-v5p", "tpu-v5p-pod")],
)
def test_every_accelerator_of_the_catalogue_has_machines_also_by_a_short_name(said, cluster):
    assert machines({"cluster": {"accelerator": said}, "strategy": {}}, []).name == cluster


def test_the_rate_of_a_network_is_not_that_of_the_links_between_packages_of_a_node():
    said = {"accelerator": "mi250x-gcd", "inter_node": "4x Slingshot 200Gb/s per node", "gpus_per_node": 8}
    found = node_group({"cluster": said, "strategy": {}}, [])
    usual = cluster("mi250x-frontier-gcd").groups[0]
    inside = [tier.link.bandwidth for tier in usual.tiers if 0 < tier.domain <= 8]
    assert [tier.link.bandwidth for tier in found.tiers] == [*inside, 100e9 / 8]
    assert len(inside) > 1


@pytest.mark.parametrize(
    ("source", "card"),
    [
        ("pytorch/torchtitan docs/performance.md", "h100-sxm-96gb-hbm2e"),
        ("pytorch/ao float8 tables", "h100-sxm-96gb-hbm2e"),
        ("pytorch/torchtitan pull request 2107", "h100-sxm"),
    ],
)
def test_pytorchs_own_tables_are_of_its_own_cards_and_what_others_report_is_not(source, card):
    row = {"cluster": {"accelerator": "h100-sxm"}, "strategy": {}, "source": source}
    assert node_group(row, []).accelerator.name == card


def test_a_card_without_a_switch_is_joined_by_its_own_link():
    inner = node_group({"cluster": {"accelerator": "h100-pcie"}, "strategy": {}}, []).tiers[0].link
    assert inner.bandwidth == 64e9


def test_an_accelerator_that_nobody_knows_is_not_priced():
    with pytest.raises(Unpriceable, match="abacus"):
        machines({"cluster": {"accelerator": "abacus"}, "strategy": {}}, [])


@pytest.mark.parametrize(
    ("said", "device", "node"),
    [({"gpus_per_node": 8}, "mi250x-gcd", 8), ({"memory_gb": 64}, "mi250x-gcd", 8), ({"memory_gb": 128}, "mi250x", 4)],
)
def test_eight_devices_of_mi250x_in_a_node_are_its_dies(said, device, node):
    group = machines({"cluster": {"accelerator": "mi250x"} | said, "strategy": {}}, []).groups[0]
    assert (group.accelerator.name, group.gpus_per_node) == (device, node)
    assert group.accelerator.half_rate == pytest.approx(383e12 * (0.5 if node == 8 else 1.0))


@pytest.mark.parametrize(
    ("said", "device", "node"),
    [({"gpus_per_node": 32}, "trainium1-core", 32), ({"memory_gb": 16}, "trainium1-core", 32), ({}, "trainium1", 16)],
)
def test_thirty_two_devices_of_trainium_in_a_node_are_its_cores(said, device, node):
    group = machines({"cluster": {"accelerator": "trainium1"} | said, "strategy": {}}, []).groups[0]
    assert (group.accelerator.name, group.gpus_per_node) == (device, node)
    assert group.accelerator.half_rate == pytest.approx(190e12 * (0.5 if node == 32 else 1.0))


@pytest.mark.parametrize(("note", "rate"), [("fp32 by TF32", 494.5e12), ("fp32; TF32 use not stated", 67e12)])
def test_products_in_fp32_that_go_through_tf32_are_as_fast_as_that(note, rate):
    row = {"cluster": {"accelerator": "h100-sxm"}, "strategy": {"precision": "fp32", "precision_note": note}}
    assert node_group(row, []).accelerator.peak["fp32"] == pytest.approx(rate)


@pytest.mark.parametrize(("source", "share"), [("MooreThreads/SimuMax v1.2", 0.82), ("a paper of NVIDIA's", 1.0)])
def test_a_source_whose_products_were_measured_slow_is_slow(source, share):
    row = {"source": source, "cluster": {"accelerator": "b200"}, "strategy": {}}
    found = node_group(row, []).accelerator
    assert found.peak["bf16"] == pytest.approx(share * accelerator("b200").peak["bf16"])


@pytest.mark.parametrize("name", names("accelerator"))
def test_every_accelerator_stands_in_nodes_that_are_joined_by_links_of_its_own(name):
    group = machines({"cluster": {"accelerator": name}, "strategy": {}}, []).groups[0]
    assert group.accelerator.name == name
    assert group.gpus_per_node >= 1
    assert group.tiers[-1].domain == 0


def test_clusters_stand_for_accelerators_of_the_catalogue_and_exist():
    assert set(CLUSTERS) <= set(names("accelerator"))
    assert set(CLUSTERS.values()) <= set(names("cluster"))


@pytest.mark.parametrize(
    ("said", "device", "cluster"),
    [
        ("NVIDIA A10G", "a10g", "aws-g5"),
        ("RTX 3090 Ti", "rtx3090-ti", "rtx3090-8x"),
        ("h20-96gb", "h20", "dgx-h20"),
        ("ironwood", "tpu-v7x", "tpu-v7x-pod"),
        ("Ascend 910C", "ascend-910c", "cloudmatrix384"),
    ],
)
def test_a_run_may_spell_its_accelerator_otherwise(said, device, cluster):
    found = machines({"cluster": {"accelerator": said}, "strategy": {}}, [])
    assert (found.groups[0].accelerator.name, found.name) == (device, cluster)


@pytest.mark.parametrize(
    ("said", "devices", "die"),
    [("MI250", 8, "mi250-gcd"), ("pvc", 12, "max-1550-stack"), ("ascend910c", 16, "ascend-910c-die")],
)
def test_dies_of_packages_that_are_spelled_otherwise_are_told_by_their_number(said, devices, die):
    row = {"cluster": {"accelerator": said, "gpus_per_node": devices}, "strategy": {}}
    assert node_group(row, []).accelerator.name == die


def test_a_short_name_of_a_compiled_machine_runs_what_its_compiler_makes():
    row = {"cluster": {"accelerator": "trn2"}, "stack": {}, "strategy": {"gpus": 16}, "model": {}}
    assert kin(row) == "maxtext"
