"""Names as people, drivers and published runs write them."""

from itertools import combinations

import pytest

from hardware import catalogue, files
from hardware.errors import UnknownName, nearest
from hardware.files import canonical
from hardware.spelling import entry_meant, parse_name
from tests.each import each

KNOWN = {"v9-pcie-16gb": "v9-pcie-16gb", "v9-pcie-32gb": "v9-pcie-32gb", "w9": "w9-sxm", "w9-sxm": "w9-sxm"}
MEMORY = {"v9-pcie-16gb": 16, "v9-pcie-32gb": 32, "w9-sxm": 80}


@each(
    ("said", "entry"),
    [
        ("h20-96gb", "h20"),
        ("rtx-3090", "rtx3090"),
        ("RTX 3090", "rtx3090"),
        ("nvidia-a10g", "a10g"),
        ("geforce-rtx-4090", "rtx4090"),
        ("rtxpro6000", "rtx-pro-6000-server"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
        ("tesla-v100", "v100-sxm2-32gb"),
        ("Tesla V100-PCIE-16GB", "v100-pcie-16gb"),
        ("v100s", "v100s-pcie-32gb"),
        ("instinct-mi210", "mi210"),
        ("a100-80gb-sxm", "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("A100-SXM-64GB", "a100-sxm-64gb"),
        ("V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("B200 SXM6", "b200"),
        ("GB300 NVL72", "gb300"),
        ("h100-80gb-hbm3", "h100-sxm"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("ascend910c", "ascend-910c"),
        ("Ascend910B3", "ascend-910b"),
        ("kunlun-r480-x8", "kunlun-r300"),
        ("tpu7x", "tpu-v7x"),
        ("TPU v5p", "tpu-v5p"),
        ("Trn3", "trainium3"),
        ("Intel(R) Data Center GPU Max 1550", "max-1550"),
        ("pvc", "max-1550"),
        ("2080ti", "rtx2080ti"),
        ("a6000", "rtx-a6000"),
        ("RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("Quadro RTX 8000", "quadro-rtx-8000"),
        ("MI300X OAM", "mi300x"),
        ("H200 141GB HBM3e", "h200-sxm"),
        ("Ascend 910B NPU", "ascend-910b"),
        ("NVIDIA H100 SXM 700W", "h100-sxm"),
        ("GH200 Grace Hopper Superchip", "gh200"),
        ("Habana Gaudi2", "gaudi2"),
        ("p4d.24xlarge", "a100-sxm-40gb"),
    ],
)
def test_a_name_is_found_however_it_is_spelled(said, entry):
    assert canonical("accelerator", said) == entry
    assert catalogue.accelerator(said).name == entry


@each(
    ("said", "near"),
    [
        ("H20-141GB", "h20"),
        ("h100-96gb", "h100"),
        ("Quadro RTX 5000", "rtx-a5000"),
        ("rtx 4090 laptop gpu", "rtx4090"),
        ("NVIDIA GeForce RTX 4080", "rtx4090"),
        ("a100-40gb-80gb", "a100"),
        ("Ascend 910", "ascend-910a"),
    ],
)
def test_a_name_that_is_nearly_one_is_none_and_the_near_one_is_suggested(said, near):
    with pytest.raises(UnknownName, match="did you mean") as error:
        canonical("accelerator", said)
    assert near in error.value.near


@each("said", ["", "  ", "gpu", "NVIDIA", "80GB", "Data Center GPU", "\x1b[31m", "h100" * 40])
def test_words_that_name_nothing_find_nothing(said):
    with pytest.raises(UnknownName):
        canonical("accelerator", said)


@each(
    ("said", "entry"),
    [
        ("V9 PCIe 16GB", "v9-pcie-16gb"),
        ("v9-32gb-pcie", "v9-pcie-32gb"),
        ("V9 PCIe", None),
        ("v9-pcie-24gb", None),
        ("W9", "w9-sxm"),
        ("w9 80 GiB", "w9-sxm"),
        ("W9-96GB", None),
    ],
)
def test_a_size_of_memory_tells_parts_apart_and_must_agree(said, entry):
    assert entry_meant(said, KNOWN, MEMORY.get) == entry


def test_the_only_part_of_a_name_needs_no_size():
    assert entry_meant("V9 PCIe", {"v9-pcie-16gb": "v9-pcie-16gb"}, MEMORY.get) == "v9-pcie-16gb"


@pytest.mark.parametrize("kind", files.KINDS)
def test_no_two_entries_are_spelled_alike(kind):
    """What a person writes for one of them must not fit another, whatever the case, separators and words around it."""
    called = {name: name for name in catalogue.names(kind)} | files.aliases(kind)
    for one, other in combinations(called, 2):
        if called[one] != called[other]:
            assert parse_name(one) != parse_name(other), f"{one} and {other}"


@pytest.mark.parametrize("kind", files.KINDS)
def test_every_name_and_short_name_is_found_without_its_separators_and_in_capitals(kind):
    for name, entry in ({name: name for name in catalogue.names(kind)} | files.aliases(kind)).items():
        assert canonical(kind, name.upper()) == entry
        assert canonical(kind, name.replace("-", " ").title()) == entry


@each("name", catalogue.names("accelerator"))
def test_every_title_begins_with_a_vendor_that_a_name_may_begin_with(name):
    vendor = catalogue.accelerator(name).vendor
    assert canonical("accelerator", f"{vendor} {name}" if vendor != "Moore Threads" else name) == name


@each("name", catalogue.names("accelerator"))
def test_a_name_with_its_own_memory_is_the_same_entry_and_with_another_is_none(name):
    size = round(catalogue.accelerator(name).memory / 2**30)
    if parse_name(name).size is None:
        assert canonical("accelerator", f"{name} {size} GB") == name
        with pytest.raises(UnknownName):
            canonical("accelerator", f"{name} {size + 1000} GB")


@pytest.mark.parametrize(
    ("asked", "known", "near"),
    [
        ("h20", ["h200-sxm", "h20", "gh200", "h20"], ["h20", "h200-sxm", "gh200"]),
        ("rtx-4080", ["rtx4090", "rtx3090", "rtx4090", "t4"], ["rtx4090", "rtx3090"]),
        ("", ["a", "b"], []),
    ],
)
def test_the_nearest_names_come_once_and_longer_ones_first(asked, known, near):
    assert nearest(asked, known) == near


@pytest.mark.parametrize(
    ("said", "cluster"),
    [
        ("NVIDIA H100 80GB HBM3", "dgx-h100"),
        ("NVIDIA A100-SXM4-80GB", "dgx-a100-80gb"),
        ("NVIDIA A100-SXM4-40GB", "dgx-a100-40gb"),
        ("Tesla V100-SXM2-32GB", "v100-dgx1-edr"),
        ("NVIDIA GeForce RTX 3090", "rtx3090-8x"),
    ],
)
def test_a_cluster_is_found_by_what_its_driver_calls_the_accelerator(said, cluster):
    assert canonical("cluster", said) == cluster


def test_no_cluster_stands_for_an_accelerator_that_none_is_called_by():
    with pytest.raises(UnknownName):
        canonical("cluster", "Quadro RTX 8000")


@each(
    ("said", "cluster"),
    [
        ("p5.48xlarge", "aws-p5"),
        ("p6-b300.48xlarge", "aws-p6-b300"),
        ("Standard_ND96isr_H200_v5", "azure-nd-h200-v5"),
        ("a3-megagpu-8g", "gcp-a3-mega"),
        ("a3-mega", "gcp-a3-mega"),
        ("BM.GPU.MI300X.8", "oci-mi300x"),
        ("gpu_8x_h100_sxm5", "lambda-h100"),
        ("NVIDIA H100 PCIe", "h100-pcie-8x"),
    ],
)
def test_a_machine_of_a_cloud_goes_by_the_clouds_own_name(said, cluster):
    assert canonical("cluster", said) == cluster


@each("name", catalogue.names("cluster"))
def test_every_cluster_says_what_offloading_needs_of_its_hosts(name):
    for group in catalogue.cluster(name).groups:
        assert None not in {group.host_memory, group.host_link, group.host_bandwidth}
