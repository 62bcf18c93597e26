"""Cluster files of one's own: what they borrow, how they grow, what is refused and in which words."""

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware import catalogue, files
from hardware.errors import BadFile, MeshwrightError
from hardware.records import BadNodeCount

BASE = 'name = "mine"\naccelerator = "h100-sxm"\ngpus_per_node = 8\n[network]\nbandwidth = "400 Gb/s"\n'


HEAD = BASE.partition("[network]")[0]


def loaded(tmp_path, text, name="mine.toml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return catalogue.cluster(path)


def test_a_new_machine_borrows_what_it_does_not_state(tmp_path):
    text = (
        'name = "mine"\ngpus_per_node = 4\n[network]\nbandwidth = "50 GB/s"\n[accelerator]\nname = "my-gpu"\n'
        'like = "h100-sxm"\nmemory = "120 GB"\nmemory_bandwidth = "5 TB/s"\npeak = {bf16 = "1200 TFLOP/s"}\n'
    )
    device = loaded(tmp_path, text).accelerator
    assert (device.memory, device.usable_memory, device.peak) == (120e9, 120e9, {"bf16": 1200e12})
    assert device.kernels.gemm["bf16"].source.startswith("assumed like h100-sxm")
    assert device.price is None
    assert device.compute_units == 132


def test_a_mixed_cluster_has_a_group_per_kind(tmp_path):
    groups = "".join(
        f'[[groups]]\naccelerator = "{name}"\ngpus_per_node = 8\nnodes = {nodes}\n[groups.network]\n'
        f'bandwidth = "200 Gb/s"\nlike = "ib-hdr200"\n'
        for name, nodes in (("a100-sxm-80gb", 4), ("h100-sxm", 2), ("a100-sxm-80gb", 1))
    )
    cluster = loaded(tmp_path, 'name = "mixed"\n' + groups)
    assert [group.name for group in cluster.groups] == ["a100-sxm-80gb", "h100-sxm-2", "a100-sxm-80gb-3"]
    assert cluster.gpus == 56
    assert cluster.usd_per_gpu_hour == pytest.approx((40 * 1.30 + 16 * 2.95) / 56)


def test_tiers_scale_up_and_a_single_node_without_network(tmp_path):
    head = 'name = "x"\naccelerator = "gb200"\ngpus_per_node = 4\n'
    tier = '[[tiers]]\nname = "{}"\nbandwidth = "50 GB/s"\n{}\n'
    tiers = tier.format("leaf", "domain = 288") + tier.format("spine", "oversubscription = 2.0")
    wide = loaded(tmp_path, head + "[scale_up]\ndomain = 72\n" + tiers)
    shape = [(tier.name, tier.domain, tier.oversubscription) for tier in wide.groups[0].tiers]
    assert shape == [("node", 72, 1.0), ("leaf", 288, 1.0), ("spine", 0, 2.0)]
    single = loaded(tmp_path, head + "nodes = 1\n")
    assert [tier.domain for tier in single.groups[0].tiers] == [0]


def test_a_cluster_of_so_many_nodes_gives_no_job_more(tmp_path):
    cluster = loaded(tmp_path, HEAD + "nodes = 2\n" + BASE.partition(HEAD)[2])
    assert cluster.with_gpus(16) == cluster
    assert cluster.with_gpus(8).gpus == 8
    with pytest.raises(BadNodeCount, match="mine has 2 nodes x 8 = 16 GPUs; 24 were asked for; at most 16 works"):
        cluster.with_gpus(24)


def test_a_single_node_without_a_network_is_no_larger_domain(tmp_path):
    single = loaded(tmp_path, HEAD + "nodes = 1\n")
    assert single.with_gpus(8).gpus == 8
    assert single.with_gpus(4).gpus == 4
    with pytest.raises(BadNodeCount, match="mine has 1 node x 8 = 8 GPUs; 64 were asked for"):
        single.with_gpus(64)


def test_a_single_device_needs_no_network(tmp_path):
    alone = loaded(tmp_path, HEAD.replace("gpus_per_node = 8", "gpus_per_node = 1") + "nodes = 1\n")
    assert alone.with_gpus(1).gpus == 1
    assert [tier.domain for tier in alone.groups[0].tiers] == [0]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("memory", "80 B", "memory: expected a size between 1 GB and 100 TB, got 80 B"),
        ("memory_bandwidth", "3.35 kB/s", "memory_bandwidth: expected a bandwidth between 1 GB/s and 1 PB/s"),
        ("power", "700 MW", "power: expected a power between 0 W and 1 MW, got 700 MW"),
        ("price", "1e9 $/h", "price: expected a price between 0 \\$/h and 10000 \\$/h"),
        ("failure", "1 per 1 s", "failure: expected a failure rate between 0 /s and 1 per 1 h"),
    ],
)
def test_an_absurd_figure_of_a_machine_is_refused_with_its_plausible_range(tmp_path, field, value, said):
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps({"name": "g", "like": "h100-sxm", field: value}), encoding="utf-8")
    with pytest.raises(BadFile, match=said):
        catalogue.accelerator(path)


def test_a_peak_outside_what_is_built_is_refused(tmp_path):
    path = tmp_path / "gpu.json"
    for rate in ("989 FLOP/s", "1e280 TFLOP/s"):
        path.write_text(json.dumps({"name": "g", "like": "h100-sxm", "peak": {"bf16": rate}}), encoding="utf-8")
        with pytest.raises(BadFile, match=r"peak.bf16: expected a compute rate between 1 GFLOP/s and 1 EFLOP/s"):
            catalogue.accelerator(path)


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_a_byte_order_mark_is_nobodys_error(tmp_path, suffix):
    text = BASE if suffix == ".toml" else json.dumps(tomllib.loads(BASE))
    (tmp_path / f"mine{suffix}").write_text(text, encoding="utf-8-sig")
    assert catalogue.cluster(tmp_path / f"mine{suffix}").name == "mine"


def test_a_file_of_the_largest_size_is_read_and_one_byte_more_is_not(tmp_path):
    path = tmp_path / "mine.toml"
    padding = files.LARGEST - len(BASE) - 1
    path.write_text(BASE + "#" + " " * padding, encoding="utf-8")
    assert catalogue.cluster(path).name == "mine"
    path.write_text(BASE + "#" + " " * (padding + 1), encoding="utf-8")
    with pytest.raises(BadFile, match="more than 16 MiB"):
        catalogue.cluster(path)


def test_a_device_that_never_ends_is_refused():
    with pytest.raises(BadFile, match="/dev/zero: more than 16 MiB; a description of a few kB is expected"):
        files.read(Path("/dev/zero"))


def test_a_pipe_that_never_ends_is_refused():
    with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as writer:
        with pytest.raises(BadFile, match="more than 16 MiB"):
            files.read(Path(f"/dev/fd/{writer.stdout.fileno()}"))
        writer.stdout.close()
        assert writer.wait(timeout=10) != 0, "the pipe was let go of"


def test_a_dumped_cluster_is_a_cluster_file(tmp_path):
    cluster = catalogue.cluster("gb200-nvl72").with_gpus(144)
    path = tmp_path / "dump.json"
    path.write_text(cluster.model_dump_json(), encoding="utf-8")
    assert catalogue.cluster(path) == cluster


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BASE.replace('"400 Gb/s"', "400"), "bandwidth: expected a bandwidth such as .* got 400"),
        (BASE.replace("bandwidth", "bandwith"), "bandwith: there is no such field"),
        (BASE.replace("gpus_per_node", "gpus_per_nod"), "gpus_per_nod: .* did you mean gpus_per_node?"),
        (BASE.replace("h100-sxm", "h10"), "unknown accelerator 'h10': did you mean h100"),
        (BASE.replace("= 8", '= "eight"'), "gpus_per_node: expected a whole number, got 'eight'"),
        (BASE.replace("= 8", "= 0"), "gpus_per_node: expected more than 0, got 0"),
        (HEAD, "network: required with more than one node"),
        (HEAD + '[network]\nlatency = "5 us"\n', "network.bandwidth: required, such as '400 Gb/s', or like = "),
        (HEAD + '[[tiers]]\nname = "rail"\n', "rail.bandwidth: required"),
        (BASE + '[[tiers]]\nname = "x"\n', "network and tiers: give only one"),
        (BASE.replace("[network]\n", ""), "bandwidth: there is no such field"),
        ('network = "400 Gb/s"\n' + HEAD, "network: expected a table of fields"),
        (BASE.replace('name = "mine"\n', ""), "name: required, but missing"),
        (BASE.replace('accelerator = "h100-sxm"\n', ""), "accelerator: required, but missing"),
        (BASE.replace('"h100-sxm"', "3"), "accelerator: expected a name .* got 3"),
        (BASE.replace("= 8", "= true"), "gpus_per_node: expected a whole number, got true"),
        (HEAD.replace("= 8", "= 0"), "gpus_per_node: expected a whole number such as 8, got 0"),
        (HEAD + "nodes = true\n", "nodes: expected a whole number, got true"),
        (BASE.replace("400 Gb/s", "1e-300 Gb/s"), "bandwidth: expected a bandwidth between 1 Mb/s and 100 TB/s, got 1"),
        (BASE.replace("400 Gb/s", "1e300 Gb/s"), "bandwidth: expected a bandwidth between 1 Mb/s and 100 TB/s, got 1"),
        (BASE.replace("400 Gb/s", "0 Gb/s"), "bandwidth: expected a bandwidth between .*, got 0 B/s"),
        (BASE + 'latency = "5 h"\n', "network: latency: expected a time between 0 s and 1 s, got 5 h"),
        (BASE + 'step_latency = "5 h"\n', "network: step_latency: expected a time between 0 s and 1 s, got 5 h"),
        (
            BASE + 'latency = "5 us"\nstep_latency = "5 us"\n',
            "network: latency and step_latency are the same; leave out one",
        ),
        (
            BASE + '[scale_up]\nlatency = "-5 us"\n',
            "scale_up: latency: expected a time that is not negative, got '-5 us'",
        ),
        (BASE + "efficiency = 1e-300\n", "efficiency: expected at least 0.001, got 1e-300"),
        (BASE + "group_penalty = -inf\n", "group_penalty: .* got -inf"),
        (
            HEAD + 'host_memory = "1 B"\n' + BASE.partition(HEAD)[2],
            "host_memory: expected a size between 1 GB and 1 PB",
        ),
        ("groups = []\n", r"groups: expected a list of tables \(\[\[groups\]\]\)"),
        ("name = ", "not TOML: "),
        (BASE + 'like = "ib-ndr4"\n', "unknown link 'ib-ndr4': did you mean ib-ndr400"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_that_names_the_field(tmp_path, text, message):
    with pytest.raises(BadFile, match=message) as caught:
        loaded(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert "mine.toml: " in str(caught.value)


def test_missing_binary_and_broken_files_are_bad_files(tmp_path):
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00\x01")
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    for name, reason in (
        ("none.toml", "no such file"),
        ("binary.toml", "not a text file"),
        ("broken.json", "not JSON"),
        ("list.json", "expected a table of fields, got a list"),
        ("", "a folder"),
    ):
        with pytest.raises(BadFile, match=reason):
            catalogue.cluster(tmp_path / name)


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))


VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.text(max_size=5), SCALARS, max_size=2))


FIELDS = ["name", "accelerator", "gpus_per_node", "nodes", "network", "tiers", "scale_up", "groups", "price"]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, min_size=1, max_size=3))
def test_no_file_however_strange_escapes_the_error_tree(tmp_path, changes):
    path = tmp_path / "strange.json"
    path.write_text(json.dumps(tomllib.loads(BASE) | changes), encoding="utf-8")
    try:
        cluster = catalogue.cluster(path)
    except MeshwrightError:
        return
    assert cluster.groups[0].gpus_per_node >= 1
    assert cluster.groups[0].tiers[-1].domain == 0


TWO_GROUPS = "".join(
    f'[[groups]]\nname = "{name}"\naccelerator = "{device}"\ngpus_per_node = 8\nnodes = {nodes}\n'
    f'[groups.network]\nbandwidth = "{rate}"\nlike = "ib-hdr200"\n'
    for name, device, nodes, rate in (("old", "a100-sxm-80gb", 4, "200 Gb/s"), ("new", "h100-sxm", 2, "400 Gb/s"))
)


LINK = '[[between]]\ngroups = ["new", "old"]\nbandwidth = "100 Gb/s"\n'


def test_groups_meet_over_both_their_networks_unless_a_link_between_them_is_given(tmp_path):
    plain = loaded(tmp_path, 'name = "m"\n' + TWO_GROUPS)
    assert [tier.link.bandwidth for tier in plain.crossing("old", "new")] == [25e9, 50e9]
    joined = loaded(tmp_path, 'name = "m"\n' + TWO_GROUPS + LINK)
    assert {tier.link.bandwidth for tier in joined.crossing("old", "new")} == {12.5e9}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TWO_GROUPS + LINK.replace('"old"', '"odd"'), "two of the groups old, new"),
        (TWO_GROUPS.replace('"new"', '"old"'), "two are called old"),
        (TWO_GROUPS.replace('[groups.network]\nbandwidth = "200 Gb/s"\nlike = "ib-hdr200"\n', "", 1), "network"),
        (
            '[[groups]]\nname = "box"\naccelerator = "h200-sxm"\ngpus_per_node = 8\nnodes = 1\n' + TWO_GROUPS,
            "box has no network that old",
        ),
    ],
)
def test_groups_that_do_not_join_are_refused_in_words(tmp_path, text, said):
    with pytest.raises(BadFile, match=said):
        loaded(tmp_path, 'name = "m"\n' + text)


def test_part_of_a_mixed_cluster_is_its_fastest_devices_in_whole_nodes(tmp_path):
    cluster = loaded(tmp_path, 'name = "m"\n' + TWO_GROUPS + LINK)

    def taken(count):
        return [(group.name, group.gpus) for group in cluster.with_gpus(count).groups]

    assert taken(48) == [("old", 32), ("new", 16)]
    assert taken(24) == [("old", 8), ("new", 16)]
    assert taken(16) == [("new", 16)]
    assert cluster.with_gpus(16).between == ()
    with pytest.raises(BadNodeCount, match="20 GPUs cannot fill whole nodes of 8 old and 8 new; 16 and 24 can"):
        cluster.with_gpus(20)
    with pytest.raises(BadNodeCount, match="1 GPU cannot fill whole nodes of 8 old and 8 new; 8 can"):
        cluster.with_gpus(1)
    with pytest.raises(BadNodeCount, match="32 old \\+ 16 new = 48 GPUs; 64 were asked for; at most 48 works"):
        cluster.with_gpus(64)


def test_a_named_pipe_that_nobody_writes_to_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(BadFile, match="a named pipe, where a file is expected"):
        files.read_text(tmp_path / "pipe.toml")


def test_what_a_shell_has_opened_is_read_to_its_end():
    receiving, sending = os.pipe()
    os.write(sending, b"x = 1")
    os.close(sending)
    assert files.read_text(Path(f"/dev/fd/{receiving}")) == "x = 1"
    os.close(receiving)
