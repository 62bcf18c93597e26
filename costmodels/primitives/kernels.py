"""Seconds of single kernels: matrix products, attention, memory-bound passes. Scalars and arrays alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from costmodels.names import WORD
from costmodels.strategy import Floats
from hardware.kernels import AttentionFit, GemmFit

Number = Any
"""One value per row, a scalar, or in the unit proof a quantity: the formulas take them alike."""


def matmul_seconds(*, m: Number, n: Number, k: Number, fit: GemmFit, peak: Number, bandwidth: float) -> Floats:
    r"""Seconds of C[m,n] += A[m,k] B[k,n] on one GPU.

        t = max( 2 m n k (1 + K0/k)(1 + A/(m n)) / (e P),  (w (m k + k n) + 2 m n) / (e_mem B) ) + t0

    e and K0 say how fast the product saturates with depth, A how much of the last wave is wasted on a small
    output, t0 is launch and drain, w the bytes of an input value. ``peak`` in FLOP/s, ``bandwidth`` in bytes/s, sizes
    in elements.
    Source: form and constants fitted to measured tables [aiconfigurator], [simumax].
    """
    work = 2.0 * m * n * k * (1.0 + fit.k_half / k) * (1.0 + fit.area_half / (m * n))
    traffic = fit.word * (m * k + k * n) + WORD * m * n
    return (
        np.maximum(work / (fit.efficiency * fit.sustained * peak), traffic / (fit.memory_efficiency * bandwidth))
        + fit.overhead
    )


def attention_seconds(
    *, flops: Number, span: Number, rows: Number, fit: AttentionFit, peak: float, units: float
) -> Floats:
    r"""Seconds of one fused attention forward pass on one GPU, a single kernel [Dao22], [Shah24].

        t = F (1 + S0/s)(1 + w 128 U / R) / (e P) + t0

    F counts the causal half, s is the length attended over, R = batch x heads x tokens is how much there is
    to spread over U compute units. Source: form and constants fitted to measured tables [aiconfigurator].
    """
    filling = 1.0 + fit.occupancy * 128.0 * units / rows
    return flops * (1.0 + fit.sequence_half / span) * filling / (fit.efficiency * peak) + fit.overhead


def attention_backward_seconds(
    *, flops: Number, span: Number, rows: Number, fit: AttentionFit, peak: float, units: float
) -> Floats:
    """Seconds of the fused attention backward pass: 2.5 times the FLOPs at the backward efficiency."""
    filling = 1.0 + fit.occupancy * 128.0 * units / rows
    rate = fit.efficiency * fit.backward_efficiency_ratio * peak
    return 2.5 * flops * (1.0 + fit.sequence_half / span) * filling / rate + fit.overhead


def stream_seconds(*, traffic: Number, share: float, bandwidth: float) -> Floats:
    """Seconds to move ``traffic`` bytes through memory at the achieved ``share`` of its bandwidth."""
    return traffic / (share * bandwidth)
