import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.primitives.kernels import attention_seconds, matmul_seconds, stream_seconds
from hardware.kernels import AttentionFit, GemmFit

SIZES = st.integers(1, 1 << 16)


def gemm(**changes):
    plain = {"efficiency": 1.0, "memory_efficiency": 1.0, "overhead": "0 s", "wgrad_ratio": 1.0, "source": "toy"}
    return GemmFit(**(plain | changes))


def attention(**changes):
    return AttentionFit(
        **({"efficiency": 1.0, "overhead": "0 s", "backward_efficiency_ratio": 1.0, "source": "toy"} | changes)
    )


def product(m, n, k, fit=None, *, peak=1e12, bandwidth=1e12):
    return matmul_seconds(m=m, n=n, k=k, fit=fit or gemm(), peak=peak, bandwidth=bandwidth)


def test_a_large_product_takes_its_flops_over_the_peak():
    assert product(1000.0, 1000.0, 1000.0) == pytest.approx(2e9 / 1e12)


def test_a_thin_product_takes_its_bytes_over_the_bandwidth():
    assert product(1.0, 1000.0, 1000.0) == pytest.approx(2 * (1000 + 1e6 + 1000) / 1e12)


def test_narrow_inputs_halve_their_bytes_and_not_those_of_the_output():
    seconds = product(1.0, 1000.0, 1000.0, gemm(word=1.0), peak=1e15)
    assert seconds == pytest.approx((1000 + 1e6 + 2 * 1000) / 1e12)


def test_a_product_as_deep_as_the_half_depth_runs_at_half_the_rate():
    assert product(1e3, 1e3, 1e3, gemm(k_half=1e3)) == pytest.approx(2 * product(1e3, 1e3, 1e3))


def test_an_output_as_large_as_the_half_area_runs_at_half_the_rate():
    assert product(1e3, 1e3, 1e3, gemm(area_half=1e6)) == pytest.approx(2 * product(1e3, 1e3, 1e3))


def test_efficiency_and_sustained_clock_divide_the_rate_and_overhead_adds():
    fit = gemm(efficiency=0.5, sustained=0.8, overhead="1 ms")
    assert product(1e3, 1e3, 1e3, fit) == pytest.approx(2e9 / 0.4e12 + 1e-3)


@given(SIZES, SIZES, SIZES, st.floats(0, 1000), st.floats(0, 1e6))
def test_no_product_beats_the_peak_or_the_memory(m, n, k, k_half, area_half):
    seconds = product(float(m), float(n), float(k), gemm(k_half=k_half, area_half=area_half))
    assert seconds >= 2.0 * m * n * k / 1e12 * (1 - 1e-12)
    assert seconds >= 2.0 * (m * n + n * k + m * k) / 1e12 * (1 - 1e-12)


@given(SIZES, SIZES, SIZES, st.floats(0, 1000), st.floats(0, 1e6))
def test_a_product_split_in_two_is_never_faster_than_whole(m, n, k, k_half, area_half):
    fit = gemm(k_half=k_half, area_half=area_half, overhead="2 us")
    whole = product(float(m), float(n), float(k), fit)
    for halves in ((m / 2, n, k), (m, n / 2, k), (m, n, k / 2)):
        assert 2 * product(*halves, fit) >= whole * (1 - 1e-12)


def test_attention_takes_its_flops_over_the_peak_and_two_and_a_half_times_that_backward():
    known = {"flops": 1e9, "span": 1e3, "rows": 1e6, "fit": attention(), "peak": 1e12, "units": 100.0}
    assert attention_seconds(**known) == pytest.approx(1e-3)
    assert attention_seconds(**known, backward=True) == pytest.approx(2.5e-3)


def test_too_few_rows_leave_compute_units_idle():
    fit = attention(occupancy=1.0)
    known = {"flops": 1e9, "span": 1e3, "fit": fit, "peak": 1e12, "units": 100.0}
    assert attention_seconds(rows=12800.0, **known) == pytest.approx(2 * 1e-3)
    assert attention_seconds(rows=1e12, **known) == pytest.approx(1e-3)


def test_a_short_span_loses_as_much_as_the_half_length_says():
    known = {"flops": 1e9, "rows": 1e6, "peak": 1e12, "units": 100.0, "fit": attention(sequence_half=512.0)}
    assert attention_seconds(span=512.0, **known) == pytest.approx(2e-3)


def test_a_pass_over_memory_takes_its_bytes_over_the_achieved_share():
    assert stream_seconds(traffic=1e9, share=0.5, bandwidth=1e12) == pytest.approx(2e-3)


@given(st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=8))
def test_arrays_are_priced_as_their_elements_are(shapes):
    fit = gemm(k_half=100.0, area_half=1e5, overhead="2 us")
    m, n, k = np.array(shapes, dtype=float).T
    together = product(m, n, k, fit)
    assert together.tolist() == [product(*map(float, shape), fit) for shape in shapes]
