"""What a measured run calls its accelerator, and the entry of the catalogue and the share of it that this means."""

import pytest

from hardware.catalogue import accelerator
from planner.runs.words.machines import Unpriceable, machines


def found(name, **said):
    notes = []
    return machines({"cluster": {"accelerator": name} | said, "strategy": {}}, notes).groups[0], notes


@pytest.mark.parametrize(
    ("said", "entry", "gib"),
    [
        ("h20-141gb", "h20", 141),
        ("H20-3e 141GB", "h20", 141),
        ("gh200-144gb", "gh200", 144),
        ("h100-sxm-96gb", "h100-sxm", 96),
        ("h100-sxm-64gb", "h100-sxm", 64),
        ("a800-sxm-40gb", "a800-sxm-80gb", 40),
    ],
)
def test_a_size_of_memory_in_a_name_that_no_entry_has_changes_the_memory_and_is_told(said, entry, gib):
    group, notes = found(said)
    assert (group.accelerator.name, group.accelerator.memory) == (entry, pytest.approx(gib * 2**30))
    assert any(f"{entry} with {gib} GB" in note for note in notes)
    assert found(said, memory_gb=gib)[0] == group


def test_a_size_in_a_name_that_agrees_with_the_entry_changes_nothing():
    group, notes = found("b200-sxm-192gb")
    assert group.accelerator == accelerator("b200")
    assert not any("in place of" in note for note in notes)


@pytest.mark.parametrize(
    ("said", "entry"),
    [
        ("trainium", "trainium1"),
        ("trn1.32xlarge", "trainium1"),
        ("tpu-v5litepod", "tpu-v5e"),
        ("rtx-titan", "titan-rtx"),
        ("ascend-910b3", "ascend-910b"),
        ("gb200-nvl36", "gb200"),
    ],
)
def test_another_name_of_the_same_part_is_that_part(said, entry):
    group, notes = found(said)
    assert group.accelerator == accelerator(entry)
    assert not any("taken for" in note for note in notes)


@pytest.mark.parametrize(
    ("said", "memory", "entry", "gib"),
    [
        ("ascend-910", None, "ascend-910a", 32),
        ("Ascend 910", 64, "ascend-910b", 64),
        ("ascend-910b2", 64, "ascend-910b1", 64),
        ("ascend-910b4", None, "ascend-910b", 32),
        ("a800-pcie-80gb", 80, "a100-pcie-80gb", 80),
        ("h800-pcie", None, "h100-pcie", 80),
        ("gh200-nvl2", None, "gh200", 144),
        ("trn2-ultra", None, "trainium2", 96),
    ],
)
def test_a_part_that_the_catalogue_lacks_is_its_nearest_kin_and_that_is_told(said, memory, entry, gib):
    group, notes = found(said, memory_gb=memory)
    assert (group.accelerator.name, group.accelerator.memory) == (entry, pytest.approx(gib * 2**30))
    assert any(f"{said} taken for {entry}" in note for note in notes)


@pytest.mark.parametrize("said", ["mi300a", "gaudi", "rtx-titan-141gb-x"])
def test_a_part_without_kin_is_refused(said):
    with pytest.raises(Unpriceable, match=said):
        found(said)


@pytest.mark.parametrize(("name", "core"), [("tpu-v2", 8), ("tpu-v3", 16), ("tpu-v4", 16)])
@pytest.mark.parametrize("by", ["memory", "number"])
def test_cores_of_a_tpu_have_half_of_a_chip(name, core, by):
    chips, _ = found(name)
    cores, notes = found(name, **({"memory_gb": core} if by == "memory" else {"gpus_per_node": 8}))
    assert cores.accelerator.half_rate == chips.accelerator.half_rate / 2
    assert cores.accelerator.memory == pytest.approx(chips.accelerator.memory / 2)
    assert cores.gpus_per_node == 2 * chips.gpus_per_node == 8
    assert cores.tiers[0].domain == 2 * chips.tiers[0].domain
    assert cores.tiers[-1].link.bandwidth == chips.tiers[-1].link.bandwidth / 2
    assert any("two to a chip" in note for note in notes)


@pytest.mark.parametrize(("name", "memory"), [("tpu-v2", 16), ("tpu-v3", 32), ("tpu-v4", 32)])
def test_chips_of_a_tpu_are_chips_however_many_a_host_has(name, memory):
    group, notes = found(name, memory_gb=memory, gpus_per_node=8)
    assert group.accelerator == accelerator(name)
    assert not any("two to a chip" in note for note in notes)


@pytest.mark.parametrize(
    ("said", "entry"),
    [
        ("A100-SXM4-40GB p4d", "a100-sxm-40gb"),
        ("DGX-A100 (40G)", "a100-sxm-40gb"),
        ("DGX H100", "h100-sxm"),
        ("8x A100", "a100-sxm-80gb"),
        ("TPU v3-256", "tpu-v3"),
        ("tpu v5p-128", "tpu-v5p"),
        ("TPU v4-512 (256 chips)", "tpu-v4"),
        ("Atlas 900 A3 (910C)", "ascend-910c"),
        ("Gaudi 3 HL-325L", "gaudi3"),
        ("V100 DGX-2", "v100-sxm2-32gb"),
    ],
)
def test_words_behind_the_name_of_a_part_are_left_out_and_that_is_told(said, entry):
    group, notes = found(said)
    assert group.accelerator.name == entry
    assert any(f"taken for {entry}" in note for note in notes)


@pytest.mark.parametrize(
    "said",
    ["RTX 4090 Laptop", "RTX 3080 Ti", "A100 MIG 3g.40gb", "H100 or H200", "RTX 6000 Blackwell", "A100-X", "Max 1100",
     "MI300A", "Xeon Platinum 8480", "H1000"],
)  # fmt: skip
def test_words_that_make_another_part_of_a_name_are_not_left_out(said):
    with pytest.raises(Unpriceable, match="is not in the catalogue"):
        found(said)


def test_the_power_in_the_name_of_a_part_holds_it_as_one_in_the_note_does():
    named, noted = found("H100 SXM5 (500W)")[0], found("h100-sxm", accelerator_note="500 W")[0]
    assert named.accelerator.power_limit == noted.accelerator.power_limit == 500.0
    assert found("NVIDIA H100 SXM 700W")[0].accelerator.power_limit is None


def test_the_memory_of_a_host_in_a_name_is_no_devices():
    group, _ = found("GH200 480GB (JUPITER)")
    assert group.accelerator.memory == accelerator("gh200").memory
