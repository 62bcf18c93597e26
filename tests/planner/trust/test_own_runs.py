"""What runs of one's own teach: factors that made them are found, contradictions are not followed."""

import numpy as np
import pytest

from planner.trust.own_runs import (
    FACTORS,
    WIDEST,
    by_shares,
    kept_share,
    learn,
    left_uncertain,
    prior_of,
    probability_faster,
    scatter_of,
)
from planner.trust.table import figures
from tests.planner.trust.test_error_model import points

KNOWN = figures().variances


def taught(own, misses):
    return learn(by_shares(own), misses, prior_of(own, KNOWN), scatter_of(own, KNOWN))


def truth(**factors):
    return np.array([factors.get(name, 0.0) for name in FACTORS])


def test_factors_that_made_many_runs_are_found_again():
    own, factors = points(60), truth(common=0.1, data_traffic=0.4, host=-0.5)
    found = taught(own, by_shares(own).longer(factors))
    assert found.mean == pytest.approx(factors, abs=0.12)
    assert found.kept > 0.6


def test_what_was_learnt_narrows_what_is_expected_of_others():
    own, new = points(8), points(5, seed=1)
    few, many = (taught(own.take(np.arange(count)), np.full(count, 0.2)) for count in (1, 8))
    assert (left_uncertain(many, new, KNOWN)[1] < left_uncertain(few, new, KNOWN)[1]).all()


def test_runs_that_contradict_each_other_ask_for_little():
    own = points(1).take(np.array([0, 0]))
    alike, apart = (taught(own, np.array(misses)) for misses in ([0.3, 0.3], [0.3, -0.3]))
    assert abs(apart.factors).max() < 0.5 * abs(alike.factors).max()


def test_factors_stay_within_reason_whatever_runs_say():
    assert taught(points(20), np.full(20, 50.0)).mean.max() == WIDEST


def test_a_wild_run_counts_less():
    own, factors = points(20), truth(common=0.2)
    misses = by_shares(own).longer(factors)
    wild = misses + 1.5 * (np.arange(20) == 3)
    assert taught(own, wild).mean[0] == pytest.approx(taught(own, misses).mean[0], abs=0.02)


def test_the_share_that_is_followed_grows_with_evidence():
    assert kept_share(np.array([0.2]), np.array([0.04])) == 0.0
    assert kept_share(np.array([0.2]), np.array([0.001])) > kept_share(np.array([0.2]), np.array([0.01])) > 0.0
    assert kept_share(np.full(5, 0.2), np.full(5, 0.01)) > kept_share(np.array([0.2]), np.array([0.01]))


def test_slopes_are_derivatives():
    change, at = by_shares(points(4)), truth(common=0.1, host=0.3)
    for place in range(len(FACTORS)):
        moved = at + 1e-6 * (np.arange(len(FACTORS)) == place)
        assert (change.longer(moved) - change.longer(at)) / 1e-6 == pytest.approx(change.slopes(at)[:, place], abs=1e-5)


def test_the_order_of_two_strategies_is_surer_once_runs_have_told_what_sets_them_apart():
    one, other = points(1), points(1, seed=4)
    gap = np.array([0.1])
    few, many = (
        taught(points(count, seed=7), by_shares(points(count, seed=7)).longer(truth(data_traffic=0.2)))
        for count in (1, 40)
    )
    unsure, sure = (probability_faster(one, other, gap, KNOWN, each._replace(kept=1.0))[0] for each in (few, many))
    assert 0.5 < unsure < sure < 1.0
    assert probability_faster(one, other, np.zeros(1), KNOWN, many._replace(kept=1.0))[0] == pytest.approx(0.5)


def test_a_strategy_with_more_of_what_takes_longer_than_is_priced_is_the_slower_one_until_all_of_that_is_priced():
    one, other = points(1), points(1, seed=4)
    learnt = taught(points(40, seed=7), by_shares(points(40, seed=7)).longer(truth(data_traffic=0.2)))
    more = np.sign((other.shares - one.shares) @ learnt.mean[1:])[0]
    none, half = (
        probability_faster(one, other, np.zeros(1), KNOWN, learnt._replace(kept=kept))[0] for kept in (0.0, 0.5)
    )
    assert more * (none - half) > 0.0
    assert more * (half - 0.5) > 0.0
