"""What runs of one's own teach: how many times as long each cause of time takes, and what is left uncertain.

Under a change theta of logarithms of factors a run takes h(theta) longer, in logarithms. The factors are those of
greatest posterior density, with the standard deviations of the model of errors (:mod:`planner.trust.error_model`) as
prior and what is smooth in sizes and noise as scatter; a few steps of Gauss and Newton find them. Unlike the posterior
of every strategy they can be priced: a stack has them as constants, so that search, reasons and breakdown agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from costmodels.strategy import Floats
from planner.trust.error_model import FREEDOM, SHARES, Points, Variances, below, likeness

FACTORS: Final = ("common", *SHARES)
"""Logarithms that are learnt, in order; ``common`` is in all time."""
STEPS: Final = 6
"""Steps of Gauss and Newton."""
SHORTER: Final = (1.0, 0.5, 0.25, 0.1)
"""Shares of a step that are tried."""
ENOUGH_GAIN: Final = 1e-3
"""Twice the gain of log density below which a step was the last."""
WIDEST: Final = 3.0
"""Largest logarithm of a factor."""
WILD: Final = 3.0
"""Standard deviations beyond which a run counts less."""
ROUNDS: Final = 2
"""Times that wild runs are looked for."""


class Change(NamedTuple):
    """What factors, as logarithms (K,), do to M runs."""

    longer: Callable[[Floats], Floats]
    """How much longer the runs take, in logarithms, (M,)."""
    slopes: Callable[[Floats], Floats]
    """Of that, (M, K)."""


class Learnt(NamedTuple):
    """What runs say of the factors."""

    mean: Floats
    """Logarithms, (K,)."""
    covariance: Floats
    """Of these, (K, K)."""
    kept: float
    """Share of the correction that is worth making, 0 to 1."""

    @property
    def factors(self) -> Floats:
        """Logarithms of the factors that are worth applying, (K,)."""
        return self.kept * self.mean


def prior_of(own: Points, known: Variances) -> Floats:
    """Standard deviations of the factors before any run, (K,): a cell of one's own is part of what is common."""
    width = float(np.exp(np.log(own.widths(known)).mean()))
    return np.array([np.hypot(known.common, known.cell), *known.shares]) * width


def scatter_of(own: Points, known: Variances) -> Floats:
    """Covariance of what no factor explains, (M, M)."""
    width, alike = own.widths(known), likeness(own, own)
    found: Floats = (known.smooth**2 * alike.size + known.noise**2 * alike.itself) * np.outer(width, width)
    return found


def learn(change: Change, misses: Floats, prior: Floats, scatter: Floats) -> Learnt:
    """The factors that M runs ask for.

    Args:
        change: what factors do to the runs.
        misses: log(measured / predicted) without factors, (M,).
        prior: standard deviations of the factors, (K,).
        scatter: covariance of what they do not explain, (M, M). A run that lies ``WILD`` of its standard deviations or
            more off what the others have it at is given a wider one.
    """
    found, wide = _solved(change, misses, np.zeros(len(prior)), prior, scatter), scatter
    for _ in range(ROUNDS):
        wilder = np.maximum(np.abs(misses - found.here) / np.sqrt(np.diag(scatter)) / WILD, 1.0)
        if wilder.max() == 1.0:
            break
        wide = scatter * np.outer(wilder, wilder)
        found = _solved(change, misses, found.at, prior, wide)
    inverse = np.asarray(np.linalg.inv(wide), dtype=np.float64)
    grown = (FREEDOM + _left(misses - found.here, inverse, found.at, prior)) / (FREEDOM + len(misses))
    information = found.slopes.T @ inverse @ found.slopes + np.diag(prior**-2.0)
    covariance = np.asarray(np.linalg.inv(information), dtype=np.float64) * grown
    uncertain = np.einsum("ik,kl,il->i", found.slopes, covariance, found.slopes) + np.diag(scatter) * grown
    return Learnt(found.at, covariance, kept_share(found.here, uncertain))


class _Solved(NamedTuple):
    """Factors, and what they do to the runs."""

    at: Floats
    here: Floats
    slopes: Floats


def _solved(change: Change, misses: Floats, at: Floats, prior: Floats, scatter: Floats) -> _Solved:
    """The factors of greatest density, by steps of Gauss and Newton that are shortened until they gain."""
    here, slopes, inverse = change.longer(at), change.slopes(at), np.asarray(np.linalg.inv(scatter), dtype=np.float64)
    left = _left(misses - here, inverse, at, prior)
    for _ in range(STEPS):
        information = slopes.T @ inverse @ slopes + np.diag(prior**-2.0)
        toward = np.linalg.solve(information, slopes.T @ inverse @ (misses - here + slopes @ at)) - at
        for share in SHORTER:
            tried: Floats = np.clip(at + share * toward, -WIDEST, WIDEST)
            there = change.longer(tried)
            if (less := _left(misses - there, inverse, tried, prior)) < left:
                break
        else:
            break
        gained, at, here, slopes, left = left - less, tried, there, change.slopes(tried), less
        if gained < ENOUGH_GAIN:
            break
    return _Solved(at, here, slopes)


def _left(missed: Floats, inverse: Floats, at: Floats, prior: Floats) -> float:
    return float(missed @ inverse @ missed + ((at / prior) ** 2).sum())


def kept_share(corrections: Floats, variances: Floats) -> float:
    """The share of a correction that is worth making, by what it does to M runs: less where it may as well be noise.

    Mean of max(0, 1 - g variance / correction^2) with g = 1/2 + 2 / M: of few runs more is asked, since others, and
    larger ones above all, share a correction in part only. Of publishers left out it harms 4 to 7 % of draws of one to
    five runs by more than half a point, and where the others have twice as many GPUs or more as many.
    """
    doubt = (0.5 + 2.0 / len(corrections)) * variances / np.maximum(corrections**2, 1e-12)
    return float(np.maximum(0.0, 1.0 - doubt).mean())


def by_shares(points: Points) -> Change:
    """What factors do to runs of which only the shares of their terms are known."""
    rest = 1.0 - points.shares.sum(axis=1)

    def total(at: Floats) -> Floats:
        return rest + points.shares @ np.exp(at[1:])

    def longer(at: Floats) -> Floats:
        return at[0] + np.log(total(at))

    def slopes(at: Floats) -> Floats:
        return np.column_stack([np.ones(len(rest)), points.shares * np.exp(at[1:]) / total(at)[:, None]])

    return Change(longer, slopes)


def probability_faster(one: Points, others: Points, gaps: Floats, known: Variances, learnt: Learnt) -> Floats:
    """Probability that a corrected strategy is faster than each of N others of the same job, (N,).

    Args:
        one: the strategy, M = 1.
        others: N other ones.
        gaps: log(predicted time of the other / predicted time of the one), (N,).
        known: the standard deviations.
        learnt: what runs of one's own taught.
    """
    apart, widths = others.shares - one.shares, one.widths(known) ** 2 + others.widths(known) ** 2
    own = known.smooth**2 * (1.0 - likeness(one, others).size[0]) + known.noise**2
    squared = np.einsum("ik,kl,il->i", apart, learnt.covariance[1:, 1:], apart) + own * widths
    expected = gaps + apart @ learnt.mean[1:] * (1.0 - learnt.kept)
    return below(expected / np.sqrt(np.maximum(squared, 1e-12)))


def left_uncertain(learnt: Learnt, new: Points, known: Variances) -> tuple[Floats, Floats]:
    """What is still expected of N corrected strategies: center and scale of log(measured / predicted), (N,).

    The center is what of the correction was not made.
    """
    slopes = np.column_stack([np.ones(len(new.shares)), new.shares])
    apart = (known.smooth**2 + known.noise**2) * new.widths(known) ** 2
    scale = np.sqrt(np.einsum("ik,kl,il->i", slopes, learnt.covariance, slopes) + apart)
    return slopes @ learnt.mean * (1.0 - learnt.kept), scale
