"""The figures of the model of errors, found on measured runs: standard deviations, widths, and ends of intervals.

They have the greatest likelihood with publishers as units. A publisher with many runs speaks for at most ``SPEAK`` of
them, since no model knows all that its runs have in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import gammaln

from costmodels.strategy import Floats
from planner.trust.error_model import FEW, FREEDOM, SIZES, Likeness, Points, Variances, covariance, likeness
from planner.trust.table import Measured

FOLDS: Final = 8
"""Parts that publishers are divided into: the figures for those of one are found without it."""
SPEAK: Final = 8
STEPS: Final = 80
"""Most steps of the search for the greatest likelihood; it ends after some 40."""
FEWER: Final = 20
"""The same from figures that are nearly right."""
_USUAL: Final = Variances(
    common=0.1,
    tensor_traffic=0.5,
    expert_traffic=0.5,
    data_traffic=0.5,
    pipeline=0.5,
    host=0.5,
    recomputation=0.5,
    optimizer=0.5,
    offload=0.5,
    expert_compute=0.2,
    cell=0.05,
    smooth=0.05,
    noise=0.03,
    utilisation=0.3,
    distance=0.15,
    few=0.3,
)
"""Where the search begins, and the middle of its wide prior."""
_DEVIATIONS: Final = 13
"""How many of the figures are standard deviations, which are sought by their logarithms."""
_PRIOR: Final = np.array([2.0] * _DEVIATIONS + [1.0, 1.0, 0.5])  # errors of times know no factor of own models
"""How far the figures, or their logarithms, may lie from the usual: spread of the prior."""


def publishers(known: Measured) -> dict[str, NDArray[np.int64]]:
    """The runs of every publisher, by name, in order of the name."""
    return {str(name): np.flatnonzero(known.sources == name) for name in np.unique(known.sources)}


def fitted(known: Measured, start: Variances = _USUAL, steps: int = STEPS) -> Variances:
    """The figures of greatest likelihood, from ``start`` on."""
    points, misses = known.points, known.misses
    mine = [(points.take(runs), misses[runs]) for runs in publishers(known).values()]
    parts = [(part, missed, likeness(part, part)) for part, missed in mine]
    middle = _sought(_USUAL)

    def unlikely(at: Floats) -> tuple[float, Floats]:
        """Negative logarithm of the density, and its slopes."""
        at_hand, pulled = _meant(at), (at - middle) / _PRIOR
        value, slopes = 0.5 * float(pulled @ pulled), pulled / _PRIOR
        for points, missed, alike in parts:
            weight = min(1.0, SPEAK / len(missed))
            said, rising = with_slopes(points, missed, alike, at_hand)
            value, slopes = value - weight * said, slopes - weight * rising
        return value, slopes

    return _meant(minimize(unlikely, _sought(start), jac=True, method="L-BFGS-B", options={"maxiter": steps}).x)


def likelihood(points: Points, misses: Floats, alike: Likeness, known: Variances, freedom: float = FREEDOM) -> float:
    """Logarithm of the density of a publisher's errors: a multivariate Student-t around none."""
    both = covariance(points, points, known, alike)
    return _density(both, float(misses @ np.linalg.solve(both, misses)), freedom)


def with_slopes(points: Points, misses: Floats, alike: Likeness, known: Variances) -> tuple[float, Floats]:
    """The same, and its slopes by what is sought: logarithms of deviations, then powers and factors of the width.

    With the covariance K, a = K^-1 y and A = (freedom + M) / (freedom + y a) a a' - K^-1 it rises by tr(A dK) / 2
    [Rasmussen06, 5.9; for a Student-t].
    """
    both, widths = covariance(points, points, known, alike), points.widths(known)
    inverse = np.linalg.inv(both)
    solved = inverse @ misses
    wide = float(misses @ solved)
    rises = (FREEDOM + len(misses)) / (FREEDOM + wide) * np.outer(solved, solved) - inverse
    inner = rises * np.outer(widths, widths)
    factors = np.einsum("ik,ij,jk->k", points.shares, inner, points.shares, optimize=True)
    parts = [inner.sum(), *factors, *((inner * one).sum() for one in alike)]
    by_run = (rises * both).sum(axis=1)
    few = 2.0 ** points.sizes[:, SIZES.index("gpus")] < FEW
    logarithms = (-np.log(np.maximum(points.utilisation, 1e-3)), points.nearest, few)
    slopes = [*np.square(known[:_DEVIATIONS]) * parts, *(by_run @ one for one in logarithms)]
    return _density(both, wide, FREEDOM), np.array(slopes)


def _density(both: Floats, wide: float, freedom: float) -> float:
    count, root = len(both), np.linalg.cholesky(both)
    constant = gammaln((freedom + count) / 2.0) - gammaln(freedom / 2.0) - count / 2.0 * np.log(freedom * np.pi)
    return float(constant - np.log(np.diag(root)).sum() - (freedom + count) / 2.0 * np.log1p(wide / freedom))


def _sought(known: Variances) -> Floats:
    return np.array([*np.log(known[:_DEVIATIONS]), *known[_DEVIATIONS : len(_PRIOR)]])


def _meant(at: Floats) -> Variances:
    return Variances(*map(float, (*np.exp(at[:_DEVIATIONS]), *at[_DEVIATIONS:])))


def without_each(known: Measured, shipped: Variances) -> Iterator[tuple[NDArray[np.bool_], Variances]]:
    """Which runs each fold holds, and the figures without its publishers."""
    names = list(publishers(known))
    for fold in range(FOLDS):
        held = np.isin(known.sources, names[fold::FOLDS])
        if held.any():
            yield held, fitted(known.take(np.flatnonzero(~held)), shipped, FEWER)
