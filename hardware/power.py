"""What a device computes within less power than its kernels' tables were measured within.

Matrix units and fused attention are held by it. Products on vector units are not: fifteen runs in fp32 on GH200 within
660 W show no limit [sailor_runs]; nor is what the bandwidth of memory bounds.
"""

from __future__ import annotations

from typing import Final

CLOCK: Final = 0.6
"""Exponent of a device's power that its rate of arithmetic follows: a third if voltage followed the clock all the way,
one if it were fixed. Large bf16 products run at 797.5 TFLOP/s on H100 SXM, 132 units within 700 W, and at 495.9 on H100
PCIe, 114 within 350 W: 0.72 of the rate of a unit with 0.58 of its power (GitHub zzc0721/torch-performance-test-data,
issues 79 and 95)."""

BLACKWELL_CLOCK: Final = 1.05
"""The same of Blackwell: 617 TFLOP/s within 500 W, where 1400 W give 1600 to 2174 (GB300; GitHub
facebookexperimental/triton, pull request 2023), and 1021 within 750 W for a product that runs at 0.9 of 1521 within
1000 W (B200; its pull request 3648)."""

LEAST: Final = 0.35
"""Least share of a device's power that a limit may leave: nothing was measured within less (500 of 1400 W)."""


def clock(share: float, architecture: str) -> float:
    """Rate of matrix products within a share of the power of their tables, over that within all of it."""
    return float(share ** (BLACKWELL_CLOCK if architecture.startswith("Blackwell") else CLOCK))
