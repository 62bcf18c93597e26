"""Which rows a batch touches: a Zipf law of popularity, and the distinct rows of many draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from costmodels.arrays import Floats

_SINGLE = 64
"""Ranks that are counted one by one; those behind them in bins of equal ratio."""
_BINS = 400
_HARMONIC = 1e-9
"""How near 1 the exponent counts as 1, where the integral is a logarithm."""


def distinct_rows(draws: float, *, rows: float, skew: float, ranks: ArrayLike) -> Floats:
    r"""Distinct rows among the first ``ranks`` ones that independent draws touch.

        E(r) = sum over i <= r of 1 - exp(-n p(i)),   p(i) = i^-s / sum over j <= R of j^-s

    Row i of R, the i-th in popularity, is drawn with probability p(i) (Zipf's law); after n draws it is missing
    with probability (1 - p)^n, here exp(-n p). Ranks beyond the first 64 share bins of equal ratio, whose mass is
    the integral of the law. Behind a cache that holds the most popular rows, the first ranks, it is what misses.

    Args:
        draws: n, look-ups.
        rows: R, rows of the table.
        skew: s; 0 draws all rows alike.
        ranks: r, how many of the most popular rows to count, shape (K,).

    Returns:
        Expected distinct rows, shape (K,).
    """
    edges = _edges(rows)
    count = np.diff(edges)
    mass = _mass(edges, skew)
    touched = count * -np.expm1(-draws * mass / (mass.sum() * count))
    reached = np.concatenate([[0.0], np.cumsum(touched)])
    return np.interp(np.asarray(ranks, dtype=float), edges, reached)


def _edges(rows: float) -> Floats:
    """Borders between the bins of ranks: 0, 1, 2 ... 64, then of equal ratio up to all rows."""
    single = np.arange(min(rows, _SINGLE) + 1.0)
    if rows <= _SINGLE:
        return single
    return np.concatenate([single[:-1], np.geomspace(_SINGLE, rows, _BINS)])


def _mass(edges: Floats, skew: float) -> Floats:
    """The sum of x^-s over each bin: term by term, then as an integral that begins half a rank before the bin."""
    single = np.arange(1.0, min(len(edges) - 1, _SINGLE) + 1.0) ** -skew
    x = edges[len(single) :] + 0.5
    if abs(skew - 1.0) < _HARMONIC:
        return np.concatenate([single, np.diff(np.log(x))])
    return np.concatenate([single, np.diff(x ** (1.0 - skew)) / (1.0 - skew)])
