"""How many of its sends and receives an iteration waits for, where a send stops nobody and delays its receiver alone.

Schedules whose backward pass is split have weight gradients to run while an input travels, and executors that send and
receive beside the computation. Every function takes ``(p, m, v)``, stages, micro-batches and chunks, arrays that
broadcast, and counts in what a stage with two neighbours sends and receives for one micro-batch, all chunks, both ways.
The delays add up along the longest path of the order, so each form is a line in p and m; they were read off the
simulation of the orders for passes of the same time and sends of up to a tenth of them, and agree with it to rounding,
but for V-Half (3 % at most) and V-Min (8 %). Where forward, backward and weights take 0.28 to 0.4 of a stage's time
each, the simulation waits for less, down to nothing, or at most for a tenth more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from costmodels.arrays import Floats

Waits = Callable[[ArrayLike, ArrayLike, ArrayLike], Floats]


def all_of_them(_p: ArrayLike, m: ArrayLike, _v: ArrayLike) -> Floats:
    """All, where a send stops both stages."""
    return np.asarray(m, dtype=np.float64)


def zb_1p(p: ArrayLike, m: ArrayLike, _v: ArrayLike) -> Floats:
    """``2 (p - 1)``: once each way to fill and to drain."""
    return 2.0 * _others(p, m)


def zb_2p(p: ArrayLike, m: ArrayLike, _v: ArrayLike) -> Floats:
    """``p - 1``: to fill, or to drain."""
    return _others(p, m)


def zb_v(p: ArrayLike, m: ArrayLike, _v: ArrayLike) -> Floats:
    """``3 (p - 1) / 2``, two chunks being as many hops."""
    return 1.5 * _others(p, m)


def v_half(p: ArrayLike, m: ArrayLike, _v: ArrayLike) -> Floats:
    """``m / 2 + 5 (p - 2) / 4``: half of its passes have no slack."""
    return np.asarray(m) / 2.0 + 1.25 * (_others(p, m) - 1.0)


def v_min(p: ArrayLike, m: ArrayLike, _v: ArrayLike) -> Floats:
    """``(3 / 2 - 2 / p) m + 17 (p - 1) / 20``: nothing of it has any."""
    return (1.5 - 2.0 / np.asarray(p)) * np.asarray(m) + 0.85 * _others(p, m)


def interleaved_zb(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Floats:
    """``p + (p - 2) / v``."""
    others = _others(p, m)
    return others + 1.0 + (others - 1.0) / np.asarray(v)


def _others(p: ArrayLike, m: ArrayLike) -> Floats:
    """Stages but one, of the shape of both."""
    return np.asarray(p) - 1.0 + np.zeros_like(np.asarray(m, dtype=np.float64))
