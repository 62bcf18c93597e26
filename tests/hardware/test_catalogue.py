import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hardware import catalogue, files
from hardware.errors import UnknownName
from hardware.records import BadNodeCount
from tests.each import each

EXAMPLE = Path(__file__).parents[2] / "examples" / "my-cluster.toml"
ENTRIES = [(kind, name) for kind in ("accelerator", "cluster") for name in catalogue.names(kind)]
UNSOURCED = {"name", "title", "vendor", "year", "architecture", "like", "accelerator", "sources"}
MEASURED_RUNS = [
    "a100-pcie-80gb",
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "ascend-910b",
    "b200",
    "b300",
    "gaudi2",
    "gb200",
    "gb300",
    "gh200",
    "h100-sxm",
    "h100-sxm-96gb-hbm2e",
    "h200-sxm",
    "mi300x",
    "t4",
    "tpu-v3",
    "tpu-v4",
    "tpu-v5e",
    "tpu-v6e",
    "v100-sxm2-16gb",
    "v100-sxm2-32gb",
    "v100-sxm3-32gb",
]


def unsourced(document, keys):
    """Paths of the quantities that neither the table of sources nor a text of their own accounts for."""
    return [key for key in document if key not in UNSOURCED and document["sources"].get(key) not in keys]


def texts(document):
    for key, value in document.items():
        if isinstance(value, dict) and key != "sources":
            yield from texts(value)
        elif key == "source":
            yield value


@each(("kind", "name"), ENTRIES)
def test_every_entry_loads_under_its_own_name_and_every_figure_has_a_source(kind, name):
    record = getattr(catalogue, kind)(name)
    document = files.entry(kind, name)
    assert record.name == name == document["name"]
    assert record.title
    assert unsourced(document, catalogue.source_texts()) == []
    assert set(record.sources.values()) <= set(catalogue.source_texts())


@each(("kind", "name"), ENTRIES + [("link", name) for name in catalogue.names("link")])
def test_every_fit_names_a_known_source_or_admits_to_be_assumed(kind, name):
    for text in texts(files.entry(kind, name)):
        keys = re.findall(r"\[(\w+)\]", text)
        assert set(keys) <= set(catalogue.source_texts())
        assert keys or "assumed" in text or "recalled" in text


def test_an_accelerator_states_its_own_figures_and_borrows_only_kernels():
    own = {"memory", "usable_memory", "memory_bandwidth", "compute_units", "power", "peak", "failure", "scale_up"}
    for name in catalogue.names("accelerator"):
        assert own <= files.entry("accelerator", name).keys()


def test_borrowed_constants_are_marked_and_carry_no_measured_error():
    fit = catalogue.accelerator("a800-sxm-80gb").kernels.gemm["bf16"]
    assert fit.source.startswith("assumed like a100-sxm-80gb: ")
    assert fit.error_median is None
    assert catalogue.accelerator("a100").kernels.gemm["bf16"].error_median == pytest.approx(0.0608)


def test_every_accelerator_of_the_measured_runs_is_known():
    assert set(MEASURED_RUNS) <= set(catalogue.names("accelerator"))


def test_every_alias_leads_to_an_entry():
    for kind in ("accelerator", "cluster"):
        for alias, name in files.aliases(kind).items():
            assert name in catalogue.names(kind)
            assert alias not in catalogue.names(kind)


def test_names_ignore_case_and_near_misses_are_suggested():
    assert catalogue.cluster("DGX-H100") is catalogue.cluster("h100")
    with pytest.raises(UnknownName, match=r"did you mean .*dgx-h100.*`plan list clusters`"):
        catalogue.cluster("dgx-h1000")
    with pytest.raises(UnknownName, match="unknown accelerator 'zzz': `plan list accelerators`"):
        catalogue.accelerator("zzz")


def test_the_hash_is_short_and_stable():
    assert re.fullmatch(r"[0-9a-f]{12}", catalogue.catalogue_hash())


def test_the_example_file_is_a_cluster():
    cluster = catalogue.cluster(EXAMPLE)
    link = cluster.groups[0].tiers[-1].link
    assert (cluster.gpus, cluster.accelerator.name, link.bandwidth) == (128, "h100-sxm", 50e9)
    assert link.step_latency == pytest.approx(5e-6)
    assert link.source.startswith("assumed like ib-ndr400 but for bandwidth, step_latency: ")
    assert catalogue.cluster(str(EXAMPLE)) == cluster


@each("name", catalogue.names("cluster"))
def test_shipped_clusters_grow_to_any_size_unless_they_state_their_nodes(name):
    cluster = catalogue.cluster(name)
    size = cluster.groups[0].gpus_per_node
    if {"nodes", "groups"} & files.entry("cluster", name).keys():
        assert cluster.with_gpus(cluster.gpus) == cluster
        with pytest.raises(BadNodeCount, match=f"at most {cluster.gpus} works"):
            cluster.with_gpus(cluster.gpus + size)
    else:
        assert cluster.with_gpus(2**16 * size).gpus == 2**16 * size


def test_a_cold_look_up_parses_few_files_and_is_quick():
    script = (
        "import hardware.catalogue as c, time; from hardware import files\n"
        "seen = []; read = files.read\n"
        "files.read = lambda path: (seen.append(path.name), read(path))[1]; c.files.read = files.read\n"
        "start = time.process_time(); c.cluster('dgx-h100'); print(time.process_time() - start, len(seen))\n"
    )
    best = 1.0
    for _ in range(3):
        out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        seconds, files = out.split()
        assert int(files) <= 6
        best = min(best, float(seconds))
        time.sleep(0.01)
    assert best < 0.05


CARDS = {25, 50, 100, 200, 400, 800}
"""Rates of network cards, Gb/s."""


@each("name", catalogue.names("cluster"))
def test_a_device_has_its_share_of_the_cards_of_its_node(name):
    for group in catalogue.cluster(name).groups:
        for tier in group.tiers[1:]:
            if tier.lanes:
                rate = tier.link.bandwidth * 8 / 1e9 * group.gpus_per_node / tier.lanes
                assert round(rate, 6) in CARDS, f"{tier.name}: {rate} Gb/s a card"


def test_names_that_begin_as_asked_are_the_first_that_were_meant():
    assert UnknownName("model", "llama4", ["llama-7b", "llama3-405b", "llama4-scout"]).near[0] == "llama4-scout"


@each(
    ("name", "kin"),
    [
        ("h200-sxm", "h100-sxm"),
        ("gh200", "h100-sxm"),
        ("b300", "gb300"),
        ("mi355x", None),
        ("gaudi3", None),
        ("h20", None),
    ],
)
def test_a_rate_in_training_comes_from_the_same_silicon_or_is_neutral(name, kin):
    """H20 says its own: it has power to spare."""
    found = catalogue.accelerator(name)
    assert found.training_rate == (catalogue.accelerator(kin).training_rate if kin else 1.0)
    assert ("training_rate" in found.sources) is (kin is not None or name == "h20")
