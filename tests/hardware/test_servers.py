import pytest

from hardware import files
from hardware.catalogue import source_texts
from hardware.errors import BadFile, UnknownName
from hardware.servers import sparse_cluster

NAMES = files.names("server")
LABELS = {"name", "accelerator", "gpus_per_node"}
MINE = """name = "mine"
[[groups]]
name = "cpu"
nodes = 4
cores = 16
core_peak = "50 GFLOP/s"
memory = "64 GB"
memory_bandwidth = "100 GB/s"
network = "10 Gb/s"
price = "1 $/h"
"""


def loaded(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return sparse_cluster(path)


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_loads_under_its_name_and_every_figure_has_a_source(name):
    cluster, sources = sparse_cluster(name), sparse_cluster(name).sources
    assert cluster.name == name
    assert cluster.title
    assert set(sources.values()) <= set(source_texts())
    for index, group in enumerate(files.entry("server", name)["groups"]):
        for field in group.keys() - LABELS:
            assert {f"groups[{index}].{field}", "groups"} & sources.keys()


def test_the_catalogue_has_cpu_groups_with_and_without_accelerators_beside_them():
    kinds = [{group.accelerator is None for group in sparse_cluster(name).groups} for name in NAMES]
    assert {True} in kinds
    assert {True, False} in kinds


def test_a_file_of_ones_own_is_read(tmp_path):
    (group,) = loaded(tmp_path, MINE).groups
    assert (group.cores, group.memory, group.network, group.ssd) == (16, 64e9, 1.25e9, 0.0)
    assert group.price == pytest.approx(1.0 / 3600.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("nodes = 4", "nodes = 0"), "groups.0.nodes: expected more than 0, got 0"),
        (('"64 GB"', "64"), "groups.0.memory: expected a size such as"),
        (("mine", "mi\\u001bne"), "name: expected text without control characters, got 'mi"),
        (("cores", "kores"), "groups.0.cores: required, but missing"),
        (('price = "1 $/h"', 'price = "1 $/h"\nssd = "1 TB"'), "needs ssd_bandwidth"),
        (('price = "1 $/h"', 'price = "1 $/h"\ngpus_per_node = 8'), "go together; give both or neither"),
        (
            ('price = "1 $/h"', 'price = "1 $/h"\ngpus_per_node = 8\naccelerator = "h100-sxm"'),
            "a group with accelerators needs host_link",
        ),
        (('price = "1 $/h"', 'price = "1 $/h"\naccelerator = "h101"'), "unknown accelerator 'h101'"),
        (("1 $/h", "0 $/h"), r"groups.0.price: expected a price between 0.001 \$/h and 10000 \$/h, got 0 \$/h$"),
        (("[[groups]]", "[groups]"), r"groups: expected a list of tables \(\[\[groups\]\]\)"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path, change, said):
    with pytest.raises(BadFile, match=said) as caught:
        loaded(tmp_path, MINE.replace(*change))
    assert "\n" not in str(caught.value)
    assert "at least 1 item" not in str(caught.value)


def test_two_groups_of_one_name_are_refused(tmp_path):
    with pytest.raises(BadFile, match="two are called cpu"):
        loaded(tmp_path, MINE + MINE.partition("\n")[2])


def test_an_unknown_name_leads_to_the_list():
    with pytest.raises(UnknownName, match=r"unknown server 'hierp': did you mean hierps.*`plan list servers`"):
        sparse_cluster("hierp")
