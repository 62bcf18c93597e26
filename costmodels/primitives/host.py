"""Seconds of the host: its link, and Adam on its processors [Ren21]."""

from __future__ import annotations

from math import inf

import numpy as np

from costmodels.arrays import Floats, Number
from costmodels.names import WORD


def cpu_adam_seconds(
    *, parameters: Number, word: Number, bandwidth: Number, gradient: Number = 4.0, weight: Number | None = None
) -> Floats:
    """Seconds of Adam's step on the CPUs, which their memory bounds.

        t = N (2 K + g + w) / B

    States are read and written, gradients read, new weights written.

    Args:
        parameters: N, that one device's share of the CPUs updates, shape (N,).
        word: K, bytes of states per parameter.
        bandwidth: B, achieved bytes per second; 0 where nobody said, and the step never ends.
        gradient: g, bytes per parameter.
        weight: w, bytes moved for a new weight; unset, a 16-bit one is written.

    Returns:
        Seconds, shape (N,).

    Source:
        [Ren21], section 5.

    >>> float(cpu_adam_seconds(parameters=1e9, word=12.0, bandwidth=30e9))
    1.0
    """
    written = WORD if weight is None else weight
    return parameters * (2.0 * word + gradient + written) / bandwidth if bandwidth else parameters * inf


def transfer_seconds(size: Number, bandwidth: Number) -> Floats:
    """Seconds of a copy over the host link.

        t = S / B

    Args:
        size: S, bytes, shape (N,).
        bandwidth: B, achieved bytes per second; 0 where nobody said, and a copy never ends.

    Returns:
        Seconds, shape (N,).

    Source:
        [Rajbhandari21], section 4.

    >>> transfer_seconds(32e9, 16e9)
    2.0
    """
    return size / bandwidth if bandwidth else np.where(size > 0, inf, 0.0)
