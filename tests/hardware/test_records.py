import copy
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hardware import catalogue
from hardware.errors import BadFile, MeshwrightError, UnknownName
from hardware.records import BadNodeCount, Cluster, NodeGroup, UnsupportedDtype
from tests.each import each

LINKS = [
    (f"{name}/{tier.name}", tier.link)
    for name in catalogue.names("cluster")
    for group in catalogue.cluster(name).groups
    for tier in group.tiers
]
LINK_IDS = [name for name, _ in LINKS]


def transfer_seconds(link, wire_bytes, ranks, steps=1):
    peak = link.efficiency * link.bandwidth * (1 - link.group_penalty / ranks)
    latency = link.base_latency + link.step_latency * (ranks - 1) * steps
    return latency + wire_bytes / peak * (1 + math.sqrt(link.saturation / wire_bytes))


@each("link", [link for _, link in LINKS], ids=LINK_IDS)
def test_more_bytes_are_never_faster_and_speed_stays_below_nominal(link):
    sizes = [2.0**power for power in range(10, 36)]
    for ranks in (2, 4, 8):
        times = [transfer_seconds(link, size, ranks) for size in sizes]
        assert times == sorted(times)
        assert all(time > size / (1.05 * link.bandwidth) for size, time in zip(sizes, times, strict=True))


def gemm_seconds(fit, device, dtype, size):
    m = n = k = size
    peak = fit.efficiency * fit.sustained * device.peak_rate(dtype)
    flops = 2 * m * n * k * (1 + fit.k_half / k) * (1 + fit.area_half / (m * n))
    moved = 2 * (m * k + k * n + m * n) / (fit.memory_efficiency * device.memory_bandwidth)
    return max(flops / peak, moved) + fit.overhead


@each("name", catalogue.names("accelerator"))
def test_larger_multiplications_take_longer_and_never_beat_the_peak(name):
    device = catalogue.accelerator(name)
    dtype = "bf16" if "bf16" in device.peak else "fp16"
    sizes = [256 * 2**i for i in range(8)]
    times = [gemm_seconds(device.kernels.gemm_fit(dtype), device, dtype, s) for s in sizes]
    assert times == sorted(times)
    assert all(t > 2 * s**3 / device.half_rate for s, t in zip(sizes, times, strict=True))


@each("name", catalogue.names("accelerator"))
def test_every_machine_has_a_fit_for_whatever_a_stack_may_ask(name):
    device = catalogue.accelerator(name)
    assert all(0 < fit.efficiency < 1 for fit in device.kernels.attention.values())
    for dtype in ("bf16", "fp16", "fp8", "fp8_block", "mxfp8", "nvfp4"):
        assert 0 < device.kernels.gemm_fit(dtype).efficiency < 1
    assert 0 < device.usable_memory <= device.memory
    assert device.half_rate > 9e12


def test_a_fit_stands_in_only_for_a_type_that_was_not_measured():
    kernels = catalogue.accelerator("b200").kernels
    assert kernels.gemm_fit("mxfp8") is kernels.gemm["mxfp8"]
    hopper = catalogue.accelerator("h100-sxm").kernels
    assert hopper.gemm_fit("mxfp8") is hopper.gemm["fp8_block"]
    assert kernels.gemm_fit("nvfp4") is kernels.gemm["nvfp4"]
    assert kernels.gemm_fit("fp16") is kernels.gemm["bf16"]


def test_an_unsupported_number_format_names_the_supported_ones():
    with pytest.raises(UnsupportedDtype, match=r"v100-sxm2-32gb does not compute in bf16; .* fp16, fp32"):
        catalogue.accelerator("v100").peak_rate("bf16")
    assert catalogue.accelerator("b200").peak_rate("mxfp8") == 4500e12
    assert catalogue.accelerator("b200").peak_rate("nvfp4") == 9000e12


def test_only_devices_that_scale_blocks_themselves_multiply_mxfp8():
    with pytest.raises(UnsupportedDtype, match=r"h100-sxm does not compute in mxfp8; .* fp16, fp32, fp8"):
        catalogue.accelerator("h100-sxm").peak_rate("mxfp8")


@given(st.integers(min_value=1, max_value=100_000))
def test_with_gpus_gives_exactly_that_many_or_names_the_neighbours(n):
    base = catalogue.cluster("dgx-a100-80gb")
    if n < 8 or n % 8 == 0:
        assert base.with_gpus(n).gpus == n
        assert base.gpus is None
    else:
        with pytest.raises(BadNodeCount, match=f"{n - n % 8} and {n - n % 8 + 8}"):
            base.with_gpus(n)


def test_zero_gpus_and_mixed_clusters_are_refused_in_words():
    with pytest.raises(BadNodeCount, match="the smallest number is 1"):
        catalogue.cluster("dgx-h100").with_gpus(0)
    group = catalogue.cluster("dgx-h100").groups[0]
    other = group.model_copy(update={"name": "other"})
    mixed = Cluster(name="m", title="m", groups=(group, other), sources={})
    with pytest.raises(BadNodeCount, match="needs its number of nodes"):
        mixed.with_gpus(8)
    with pytest.raises(BadNodeCount, match="no single accelerator"):
        _ = mixed.accelerator


def test_part_of_a_node_keeps_only_the_links_inside_it():
    part = catalogue.cluster("dgx-h100").with_gpus(4).groups[0]
    assert [(tier.name, tier.domain) for tier in part.tiers] == [("node", 0)]
    assert (part.nodes, part.gpus_per_node) == (1, 4)


def test_tiers_must_widen_outwards():
    group = catalogue.cluster("dgx-h100").groups[0]
    with pytest.raises(ValidationError, match="tiers must go from the inner to the outer network"):
        NodeGroup.model_validate(group.model_dump() | {"tiers": group.model_dump()["tiers"][::-1]})


def test_the_price_of_a_gpu_hour_comes_from_the_group_or_the_accelerator():
    cluster = catalogue.cluster("dgx-h100")
    assert cluster.usd_per_gpu_hour == pytest.approx(2.95)
    dearer = cluster.groups[0].model_copy(update={"price": 5.0 / 3600})
    assert cluster.model_copy(update={"groups": (dearer,)}).usd_per_gpu_hour == pytest.approx(5.0)
    assert catalogue.cluster("dgx-h20").usd_per_gpu_hour is None


@each("name", catalogue.names("cluster"))
def test_records_survive_json_and_copies_exactly(name):
    cluster = catalogue.cluster(name)
    assert Cluster.model_validate_json(cluster.model_dump_json()) == cluster
    assert copy.deepcopy(cluster) == cluster


def test_errors_survive_the_copy_protocol_that_pickling_uses():
    for error in (UnknownName("cluster", "h10", ["h100"]), BadFile("a.toml", "no such file")):
        again = copy.copy(error)
        assert isinstance(again, MeshwrightError)
        assert str(again) == str(error)


@each("name", ["tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "trainium1", "trainium2"])
def test_heads_of_half_a_systolic_array_run_at_little_more_than_half_the_rate(name):
    for fit in catalogue.accelerator(name).kernels.attention.values():
        assert 0.5 <= fit.narrow <= 0.6
        assert fit.full_width == (256 if name == "tpu-v6e" else 128)


@each("name", catalogue.names("accelerator"))
def test_the_figures_of_a_device_are_in_a_band_that_devices_are_in(name):
    """FLOP per byte of memory traffic and per joule: a figure with a wrong unit or a sparse rate falls out of it."""
    device = catalogue.accelerator(name)
    assert 10 < device.half_rate / device.memory_bandwidth < 700
    assert 0.03e12 < device.half_rate / device.power < 3.2e12
    assert 0.9 < device.usable_memory / device.memory <= 1.0
    assert 2010 < device.year < 2030


@each("name", catalogue.names("accelerator"))
def test_narrower_formats_are_as_fast_or_faster_and_exist_where_they_did(name):
    device = catalogue.accelerator(name)
    old = {"Pascal", "Volta", "Turing"}
    rates = [device.peak[dtype] for dtype in ("fp32", "tf32", "bf16", "fp8", "fp4") if dtype in device.peak]
    assert rates == sorted(rates)
    assert ("bf16" not in device.peak) or device.architecture not in old
    assert ("fp8" not in device.peak) or device.architecture not in {*old, "Ampere", "CDNA", "CDNA2", "Xe HPC"}


@pytest.mark.parametrize(
    ("die", "package"),
    [
        ("mi250x-gcd", "mi250x"),
        ("mi250-gcd", "mi250"),
        ("ascend-910c-die", "ascend-910c"),
        ("max-1550-stack", "max-1550"),
        ("trainium1-core", "trainium1"),
    ],
)
def test_a_package_is_two_of_its_dies(die, package):
    one, two = catalogue.accelerator(die), catalogue.accelerator(package)
    for field in ("memory", "memory_bandwidth", "power", "compute_units", "half_rate"):
        assert 2 * getattr(one, field) == pytest.approx(getattr(two, field), rel=1e-3), field


@each("name", ["rtx3090", "rtx3090-ti", "rtx4090", "rtx5090", "rtx2080ti", "a10g"])
def test_cards_whose_sums_in_fp32_are_halved_have_the_halved_peak(name):
    """At most 512 FLOP per multiprocessor and clock, of some 2 GHz; their kin have twice as much."""
    device = catalogue.accelerator(name)
    assert device.half_rate / device.compute_units < 1.3e12 < catalogue.accelerator("rtx-a6000").half_rate / 84
