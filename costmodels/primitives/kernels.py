"""Seconds of single kernels: matrix products, attention, passes over memory; and what attention multiplies."""

from __future__ import annotations

import numpy as np

from costmodels.arrays import Floats, Number
from costmodels.names import WORD
from hardware.kernels import AttentionFit, GemmFit

BACKWARD_PRODUCTS = 2.5
"""Products of attention's backward pass over those of its forward pass: five for two [Dao22]."""
QUERY_TILE = 128.0
"""Queries that one compute unit works on at a time [Dao22]."""


def matmul_seconds(*, m: Number, n: Number, k: Number, fit: GemmFit, peak: Number, bandwidth: Number) -> Floats:
    r"""Seconds of the matrix product C[m,n] += A[m,k] B[k,n] on one device: the roofline, with its losses.

        t = max( 2 m n k (1 + K0/k) (1 + A/(m n)) / (e P),  (w (m k + k n) + 2 m n) / (e_mem B) ) + t0

    K0 says how fast the product saturates with depth, A how much of the last wave of a small output is wasted, t0 is
    launch and drain.

    Args:
        m: rows of the output, elements, shape (N,).
        n: columns of the output.
        k: depth of the product.
        fit: e, K0, A, w, e_mem and t0 of one device and format.
        peak: P, dense FLOP per second.
        bandwidth: B, nominal bytes per second of the memory.

    Returns:
        Seconds, shape (N,).

    Source:
        Form and constants fitted to measured tables [aiconfigurator], [simumax].

    >>> ideal = GemmFit(efficiency=1.0, memory_efficiency=1.0, overhead="0 s", source="a device without losses")
    >>> float(matmul_seconds(m=4096, n=4096, k=4096, fit=ideal, peak=1e15, bandwidth=3e12).round(9))  # 2 x 4096^3 FLOP
    0.000137439
    >>> float(matmul_seconds(m=1, n=4096, k=4096, fit=ideal, peak=1e15, bandwidth=3e12).round(9))  # 33.6 MB
    1.119e-05
    """
    work = 2.0 * m * n * k * (1.0 + fit.k_half / k) * (1.0 + fit.area_half / (m * n))
    traffic = fit.word * (m * k + k * n) + WORD * m * n
    return (
        np.maximum(work / (fit.efficiency * fit.sustained * peak), traffic / (fit.memory_efficiency * bandwidth))
        + fit.overhead
    )


def stream_seconds(*, traffic: Number, share: Number, bandwidth: Number) -> Floats:
    """Seconds of a kernel that memory bounds.

        t = S / (e B)

    Args:
        traffic: S, bytes read and written, shape (N,).
        share: e, achieved share of the bandwidth.
        bandwidth: B, nominal bytes per second.

    Returns:
        Seconds, shape (N,).

    Source:
        S. Williams et al., "Roofline", CACM 52(4), 2009.

    >>> stream_seconds(traffic=2.4e12, share=0.8, bandwidth=3e12)
    1.0
    """
    return traffic / (share * bandwidth)


def causal_pairs(seq_length: float, *, window: float | None = None, chunked: bool = False) -> float:
    """Query-key pairs of one sequence and head that a causal mask leaves.

        s^2 / 2;  within a window of w < s tokens  s w - w^2 / 2;  within chunks of w tokens  (s / w) w^2 / 2

    Args:
        seq_length: s, tokens.
        window: w, tokens that a query looks back over, its own included; unset, all.
        chunked: whether windows are chunks that do not look back into the one before.

    Returns:
        Pairs; the diagonal counts half.

    Source:
        [Dao22], section 3; windows of [Beltagy20].

    >>> causal_pairs(4096.0), causal_pairs(4096.0, window=1024.0), causal_pairs(4096.0, window=1024.0, chunked=True)
    (8388608.0, 3670016.0, 2097152.0)
    """
    if window is None or window >= seq_length:
        return seq_length * seq_length / 2.0
    if chunked:
        whole, rest = divmod(seq_length, window)
        return (whole * window * window + rest * rest) / 2.0
    return seq_length * window - window * window / 2.0


def blocked_pairs(seq_length: float, block: float, *, window: float | None = None, chunked: bool = False) -> float:
    """Query-key pairs in square blocks that a causal mask leaves any pair of, and a kernel computes whole.

        s (s + b) / 2;  within a window  s (b + w);  within chunks  s (b + w) / 2;  never more than the first

    A block of queries meets all keys up to its own end, or as many as its own and what the window reaches back. Exact
    where the block divides the window.

    Args:
        seq_length: s, tokens.
        block: b, tokens of the longer side of a block.
        window: w, tokens that a query looks back over; unset, all.
        chunked: whether windows are chunks that do not look back into the one before.

    Returns:
        Pairs of one sequence and head.

    Source:
        ``_splash_attention_forward`` of [Splash] skips a block that is masked as a whole, and no less.

    >>> blocked_pairs(4096.0, 512.0) / causal_pairs(4096.0)
    1.125
    """
    side = min(block, seq_length)
    causal = seq_length * (seq_length + side) / 2.0
    if window is None:
        return causal
    if chunked:
        return min(causal, seq_length * (side + window) / 2.0)
    return min(causal, seq_length * (side + window))


def attention_flops(*, pairs: Number, key_width: Number, value_width: Number) -> Floats:
    """FLOP of attention's two products: scores of queries and keys, and the weighted sum of values.

        F = 2 (d_k + d_v) n

    Args:
        pairs: n, query-key pairs of one head.
        key_width: d_k, width of the queries of all heads together.
        value_width: d_v, width of the values of all heads together.

    Returns:
        FLOP of one forward pass over all heads.

    Source:
        [Dao22], section 3; 4 s^2 h without a mask in [Narayanan21], appendix.

    >>> attention_flops(pairs=causal_pairs(2048.0), key_width=12288, value_width=12288) == 2 * 2048**2 * 12288
    True
    """
    return 2.0 * (key_width + value_width) * pairs


def attention_seconds(
    *, flops: Number, span: Number, rows: Number, fit: AttentionFit, peak: Number, units: Number, backward: bool = False
) -> Floats:
    r"""Seconds of one fused attention pass on one device, a single kernel.

        t = F (1 + S0/s) (1 + w 128 U / R) / (e P) + t0;  backward 2.5 F in place of F and r e in place of e

    S0 says how fast the kernel saturates with the length, w how much idles where there are few tiles. The backward pass
    has five products for the forward pass's two.

    Args:
        flops: F, FLOP of the pairs that the forward pass computes, shape (N,).
        span: s, tokens attended over.
        rows: R, sequences x heads x tokens of queries, which are spread over the units.
        fit: e, S0, w and t0 of one device and kernel, and r, the rate of its backward pass over that of the forward.
        peak: P, dense 16-bit FLOP per second.
        units: U, compute units of the device.
        backward: whether it is the backward pass.

    Returns:
        Seconds, shape (N,).

    Source:
        [Dao22], appendix B, [Shah24]; form and constants fitted to measured tables [aiconfigurator].

    >>> fit = AttentionFit(efficiency=0.5, overhead="0 s", backward_efficiency_ratio=0.8, source="half of the peak")
    >>> known = {"flops": 5e11, "span": 4096, "rows": 4096 * 32, "fit": fit, "peak": 1e15, "units": 132}
    >>> attention_seconds(**known), attention_seconds(**known, backward=True)
    (0.001, 0.003125)
    """
    filling = 1.0 + fit.occupancy * QUERY_TILE * units / rows
    products, slower = (BACKWARD_PRODUCTS, fit.backward_efficiency_ratio) if backward else (1.0, 1.0)
    rate = fit.efficiency * slower * peak
    return products * flops * (1.0 + fit.sequence_half / span) * filling / rate + fit.overhead


NEWTON_SCHULZ = 5
"""Iterations that orthogonalise Muon's momentum [Moonlight25]."""


def newton_schulz_flops(rows: Number, columns: Number) -> Floats:
    """FLOP that orthogonalise one matrix: per iteration X X^T, its square, and the product with X.

        F = 5 (2 n^2 m + 2 n^3 + 2 n^2 m)  with n the shorter side and m the longer

    Args:
        rows: of the matrix, shape (N,).
        columns: of the matrix, shape (N,).

    Returns:
        FLOP, shape (N,).

    Source:
        [Moonlight25], section 2.1.

    >>> float(newton_schulz_flops(1000.0, 4000.0)) / 1e9
    90.0
    """
    n, m = np.minimum(rows, columns), np.maximum(rows, columns)
    return NEWTON_SCHULZ * (4.0 * n * n * m + 2.0 * n**3)
