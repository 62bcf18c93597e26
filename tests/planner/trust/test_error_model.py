"""The model of errors: covariances are what they say, runs of one's own teach it, likelihood finds what was drawn."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_t, t

from planner.runs import error_fit
from planner.trust.error_model import (
    FREEDOM,
    SHARES,
    SIZES,
    Points,
    below,
    covariance,
    likeness,
    probability_faster,
    score_at,
    spread,
)
from planner.trust.table import figures, measured

KNOWN = figures().variances


def points(count, seed=0, cells=2):
    draw = np.random.default_rng(seed)
    return Points(
        shares=draw.dirichlet(np.ones(len(SHARES) + 3), count)[:, : len(SHARES)],
        sizes=draw.uniform(0.0, 12.0, (count, len(SIZES))),
        cells=draw.integers(0, cells, count).astype(str),
        utilisation=draw.uniform(0.1, 0.6, count),
        nearest=draw.uniform(0.0, 3.0, count),
        own_model=draw.uniform(size=count) < 0.5,
    )


def test_the_scale_of_a_run_alone_is_the_root_of_its_variance():
    some = points(7)
    assert spread(some, KNOWN) ** 2 == pytest.approx(np.diag(covariance(some, some, KNOWN)))


def test_covariances_are_of_a_distribution():
    some = points(40)
    both = covariance(some, some, KNOWN)
    assert both == pytest.approx(both.T)
    assert np.linalg.eigvalsh(both).min() > 0.0


def test_the_likelihood_is_that_of_a_multivariate_student_t():
    some, misses = points(5), np.array([0.1, -0.2, 0.05, 0.3, 0.0])
    expected = multivariate_t(shape=covariance(some, some, KNOWN), df=FREEDOM).logpdf(misses)
    assert error_fit.likelihood(some, misses, likeness(some, some), KNOWN) == pytest.approx(expected)


def test_the_slopes_of_the_likelihood_are_those_that_steps_find():
    some, misses = points(6), np.array([0.1, -0.2, 0.05, 0.3, 0.0, -0.04])
    alike, middle = likeness(some, some), error_fit._sought(KNOWN)

    def likely(at):
        return error_fit.likelihood(some, misses, alike, error_fit._meant(at))

    value, slopes = error_fit.with_slopes(some, misses, alike, KNOWN)
    steps = 1e-5 * np.eye(len(middle))
    assert value == pytest.approx(likely(middle))
    assert slopes == pytest.approx([(likely(middle + h) - likely(middle - h)) / 2e-5 for h in steps], abs=1e-5)


def test_the_probability_below_a_score_is_that_of_a_student_t():
    scores = np.linspace(-8.0, 8.0, 33)
    assert below(scores) == pytest.approx(t(FREEDOM).cdf(scores))


def test_the_score_at_a_probability_is_the_one_that_it_lies_below():
    shares = np.array([0.5, 0.65, 0.95, 0.99])
    assert below(np.array([score_at(share) for share in shares])) == pytest.approx(shares)


def test_what_two_layouts_have_in_common_does_not_blur_their_order():
    one, far = points(1), points(1, seed=5)
    twin = replace(one, shares=one.shares * 1.01)
    gap = np.array([0.02])
    assert 0.5 < probability_faster(one, far, gap, KNOWN)[0] < probability_faster(one, twin, gap, KNOWN)[0] < 1.0
    assert probability_faster(one, far, np.zeros(1), KNOWN)[0] == pytest.approx(0.5)


def test_the_order_of_two_runs_is_as_sure_as_the_difference_of_their_errors_is_small():
    some, gap = points(2), np.array([0.1])
    one, other = some.take(np.array([0])), some.take(np.array([1]))
    both = covariance(some, some, KNOWN)
    apart = np.array([1.0, -1.0]) @ both @ np.array([1.0, -1.0])
    assert probability_faster(one, other, gap, KNOWN) == pytest.approx(below(gap / np.sqrt(apart)))


def test_the_greatest_likelihood_finds_the_spread_that_errors_were_drawn_with():
    """Sixty publishers of six runs, all alike but for what each has in common: 0.3 of the logarithm."""
    table = measured()
    like = np.zeros(360, dtype=np.int64) + int(np.flatnonzero(table.traits.names["kind"] == "dense")[0])
    draw = np.random.default_rng(1)
    chi = np.sqrt(FREEDOM / draw.chisquare(FREEDOM, 60))
    misses = np.repeat(0.3 * chi * draw.standard_normal(60), 6) + 0.01 * draw.standard_normal(360)
    runs = [
        run._replace(group=f"publisher {n // 6}", miss=float(miss))
        for n, (run, miss) in enumerate(zip(table.take(like).runs, misses, strict=True))
    ]
    drawn = replace(table.take(like), runs=tuple(runs))
    found = error_fit.fitted(drawn)
    assert float(spread(drawn.points.take(np.arange(1)), found)[0]) == pytest.approx(0.3, rel=0.25)
