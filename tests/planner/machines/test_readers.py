"""What each program prints of a machine is recognised by its content, and read with the place of every figure."""

import re

import pytest

from planner.errors import BadFile
from planner.machines.host import MEMORY_OF_A_SOCKET, memory_bandwidth
from planner.machines.readers import READERS, read_machines
from planner.machines.slurm import gres, hosts
from tests.each import each
from tests.planner.machines import samples

BY_TITLE = {
    "nvidia-smi -q": samples.SMI,
    "nvidia-smi -L": samples.LISTED,
    "nvidia-smi topo -m": samples.TOPOLOGY,
    "lscpu": samples.PROCESSORS,
    "ibstat": samples.PORTS,
    "sinfo": samples.SINFO,
    "scontrol show node": samples.SCONTROL,
    "kubectl get nodes -o json": samples.kubernetes(),
}


@pytest.fixture
def read(tmp_path):
    def ask(text, name="file.txt"):
        (tmp_path / name).write_text(text)
        (told,) = read_machines([tmp_path / name])
        return told

    return ask


def test_every_program_has_a_sample():
    assert {one.title for one in READERS} == set(BY_TITLE)


@pytest.mark.parametrize("title", BY_TITLE)
def test_a_file_is_recognised_by_its_content(title, read):
    assert read(BY_TITLE[title]).reader.title == title
    assert [one.title for one in READERS if one.is_mine(BY_TITLE[title])] == [title]


@pytest.mark.parametrize("title", BY_TITLE)
def test_every_figure_says_its_file_and_its_program(title, read):
    told = read(BY_TITLE[title], "from-node-7.txt")
    figures = [figure for node in told.nodes for figure in node.figures.values()]
    assert figures
    assert all(figure.source.startswith("from-node-7.txt: ") for figure in figures)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("root:x:0:0:root:/root:/bin/bash\n", "not the output of kubectl get nodes"),
        ("| NVIDIA-SMI 550.54.14   Driver Version: 550.54.14 |\n", "nvidia-smi -q > FILE tells all"),
        ("hca_id: mlx5_0\n  port: 1\n    state: PORT_ACTIVE (4)\n", "ibstat > FILE does"),
        ("n001 gpu:a100:8\n", "leave -h out"),
        ("<nvidia_smi_log><attached_gpus>8</attached_gpus></nvidia_smi_log>\n", "without -x"),
        ("apiVersion: v1\nitems: []\n", "kubectl get nodes -o json > FILE"),
        ("", "not the output of"),
    ],
)
def test_what_is_no_such_output_is_refused_with_what_to_run(text, said, read):
    with pytest.raises(BadFile, match=said):
        read(text)


def values(told):
    return [{name: figure.value for name, figure in node.figures.items()} for node in told.nodes]


def test_devices_are_counted_with_their_memory_and_their_limit(read):
    (node,) = values(read(samples.SMI))
    assert (node["gpu"], node["gpus_per_node"]) == ("NVIDIA H100 80GB HBM3", 2)
    assert node["gpu_memory"] == 81559 * 2**20
    assert (node["power_limit"], node["rated_power"]) == (500.0, 700.0)
    assert node["host_link"] == (5, 16)


def test_the_limit_of_an_older_driver_is_read(read):
    text = samples.SMI.replace("GPU Power Readings", "Power Readings", 1).replace(
        "Current Power Limit  ", "Power Limit", 1
    )
    assert values(read(text))[0]["power_limit"] == 500.0


def test_devices_without_a_name_are_counted_and_said(read):
    told = read("Attached GPUs : 2\nGPU 00000000:12:00.0\n    Performance State : P0\nGPU 00000000:8A:00.0\n")
    assert values(told) == [{"gpus_per_node": 2}]
    assert "no Product Name" in told.nodes[0].remarks[0]


def test_two_kinds_of_devices_in_a_node_and_mig_are_said(read):
    text = samples.SMI.replace("HBM3\n    FB", "HBM2e\n    FB").replace("Disabled", "Enabled")
    remarks = read(text).nodes[0].remarks
    assert "1 x NVIDIA H100 80GB HBM2e and 1 x NVIDIA H100 80GB HBM3" in remarks[0]
    assert "MIG is enabled" in remarks[1]


def test_links_between_devices_are_nvlink_or_pcie(read):
    assert values(read(samples.TOPOLOGY)) == [{"gpus_per_node": 2, "between_gpus": "pcie"}]
    assert values(read(samples.TOPOLOGY.replace("SYS\tPIX", "NV12\tPIX")))[0]["between_gpus"] == "nvlink"
    alone = "\tGPU0\tNIC0\tCPU Affinity\nGPU0\t X \tNODE\t0-19\n"
    assert values(read(alone)) == [{"gpus_per_node": 1}]


def test_only_active_ports_count(read):
    (node,) = values(read(samples.PORTS))
    assert [(port.card, port.rate, port.layer) for port in node["ports"]] == [
        ("mlx5_0", 400e9, "InfiniBand"),
        ("mlx5_2", 100e9, "Ethernet"),
    ]


@each(
    ("processor", "gigabytes"),
    [
        ("Intel(R) Xeon(R) Platinum 8480C", 614.4),
        ("AMD EPYC 7763 64-Core Processor", 409.6),
        ("AMD EPYC 7V13 64-Core Processor", 409.6),
        ("AMD EPYC 9654 96-Core Processor", 921.6),
        ("AMD EPYC 7451 24-Core Processor", None),
        ("Intel(R) Core(TM) i7-9700K", None),
    ],
)
def test_the_memory_of_known_processors_has_a_bandwidth(processor, gigabytes):
    found = memory_bandwidth(processor, 2)
    assert (found and found[0]) == (gigabytes and pytest.approx(gigabytes * 1e9))


def test_no_processor_has_two_bandwidths():
    assert len({pattern for pattern, _, _ in MEMORY_OF_A_SOCKET}) == len(MEMORY_OF_A_SOCKET)


def test_nodes_of_several_partitions_count_once(read):
    first, second = values(read(samples.SINFO))
    assert (first["gpu"], first["gpus_per_node"], first["nodes"]) == ("h100", 2, 10)
    assert first["host_memory"] == 2063937 * 2**20
    assert (second["gpu"], second["nodes"]) == ("nvidia_a100_80gb_pcie", 6)


def test_without_names_of_nodes_the_largest_partition_counts(read):
    text = "PARTITION GRES NODES\nall gpu:a100:4 12\nlong gpu:a100:4 4\nlong gpu:a100:4 4\n"
    assert values(read(text))[0]["nodes"] == 12


def test_a_plain_sinfo_says_nodes_and_what_to_ask_for(read):
    told = read("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu up 1-00:00:00 4 mix g[01-04]\n")
    assert values(told) == [{"nodes": 4}]
    assert "so 4 nodes are counted, those without GPUs too; sinfo -o" in told.nodes[0].remarks[0]


def test_a_node_that_is_down_counts_and_is_said(read):
    told = read(samples.SCONTROL)
    assert values(told) == [
        {"gpu": "a100", "gpus_per_node": 8, "nodes": 2, "host_memory": 1024000 * 2**20, "sockets": 2}
    ]
    assert "1 of 2 nodes are down" in told.nodes[0].remarks[0]


@each(
    ("text", "found"),
    [
        ("gpu:a100:8(S:0-1)", ("a100", 8)),
        ("gpu:8", (None, 8)),
        ("gpu:nvidia_a100-sxm4-40gb:8,lustre:1", ("nvidia_a100-sxm4-40gb", 8)),
        ("gpu:a100_1g.5gb:14,gpu:a100:2", ("a100", 2)),
        ("gpu:1080ti:1(IDX:0),gpu:a40:2(IDX:1-2)", ("a40", 2)),
        ("gpu:a100_3g.20gb:4", None),
        ("gpu:a40:0", None),
        ("(null)", None),
        ("ime:1,pfsdir:2", None),
    ],
)
def test_devices_of_a_resource(text, found):
    assert gres(text) == found


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[001-003,7],login", ["n001", "n002", "n003", "n7", "login"]),
        ("r[1-2]c[1-2]", ["r1c1", "r1c2", "r2c1", "r2c2"]),
        ("a", ["a"]),
        ("", []),
    ],
)
def test_names_of_nodes_in_short(text, names):
    assert list(hosts(text)) == names


def test_several_kinds_in_a_node_are_said(read):
    told = read("GRES NODES NODELIST\ngpu:1080ti:1,gpu:a40:2 1 n1\n")
    assert values(told)[0]["gpu"] == "a40"
    assert "gpu:1080ti:1,gpu:a40:2 is several kinds in a node" in told.nodes[0].remarks[0]


def test_parts_of_devices_are_said_to_be_left_out(read):
    told = read("PARTITION GRES NODES NODELIST\na gpu:a100_3g.20gb:4 2 n[1-2]\n")
    assert values(told) == [{}]
    assert any("MIG" in remark for remark in told.nodes[0].remarks)


def test_nodes_of_kubernetes_are_kinds_by_label_and_capacity(read):
    (node,) = values(read(samples.kubernetes()))
    assert (node["gpu"], node["gpus_per_node"], node["nodes"]) == ("NVIDIA-H100-80GB-HBM3", 8, 2)
    assert (node["machine"], node["host_memory"]) == ("p5.48xlarge", 2097152000 * 1024)


@pytest.mark.parametrize("product", ["NVIDIA-A100-SXM4-80GB-SHARED", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"])
def test_shared_devices_of_kubernetes_count_whole(product, read):
    told = read(samples.kubernetes(product=product, count="56", **{"nvidia.com/gpu.count": "8"}))
    assert (values(told)[0]["gpu"], values(told)[0]["gpus_per_node"]) == ("NVIDIA-A100-SXM4-80GB", 8)
    assert any("whole devices" in remark for remark in told.nodes[0].remarks)


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0: \n",
        '{"items": 5}',
        '{"items": null, "status": {}}',
        "[" * 50_000,
        "\n" * 300_000,
        "GRES NODELIST\ngpu:h100:8 n[0-65535][0-65535][0-65535]\n",
        f"GRES NODES NODELIST\ngpu:h100:{'9' * 5000} 1 n1\n",
    ],
)
def test_what_no_program_prints_is_refused_at_once(text, read):
    with pytest.raises(BadFile):
        read(text)


def test_a_file_that_ends_early_is_said(read):
    whole = samples.SMI
    told = read(whole[: whole.rindex("GPU 0000")])
    assert values(told)[0]["gpus_per_node"] == 1
    assert any("2 GPUs are attached, 1 are listed" in remark for remark in told.nodes[0].remarks)


def test_devices_cut_by_mig_are_said(read):
    told = read("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n  MIG 1g.10gb     Device  0: (UUID: MIG-1)\n")
    assert values(told)[0]["gpus_per_node"] == 1
    assert "MIG is enabled" in told.nodes[0].remarks[0]


def test_ports_without_a_rate_and_links_without_lanes_tell_nothing(read):
    assert not values(read(re.sub(r"Rate: \d+", "Rate: 0", samples.PORTS)))[0]["ports"]
    odd = samples.SMI.replace("Max                       : 5", "Max                       : 99999")
    assert odd != samples.SMI
    assert "host_link" not in values(read(odd))[0]
