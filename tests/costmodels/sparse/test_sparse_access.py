import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.sparse.access import distinct_rows


def exact(draws, *, rows, skew, ranks):
    weights = np.arange(1, rows + 1.0) ** -skew
    missed = (1.0 - weights / weights.sum()) ** draws
    return np.cumsum(1.0 - missed)[np.array(ranks) - 1]


@pytest.mark.parametrize("skew", [0.0, 0.7, 1.0, 1.05, 1.4])
@pytest.mark.parametrize("draws", [100, 10_000, 1_000_000])
def test_the_law_is_that_of_independent_draws(skew, draws):
    known = {"rows": 100_000, "skew": skew, "ranks": [10, 1000, 100_000]}
    assert distinct_rows(draws, **known) == pytest.approx(exact(draws, **known), rel=0.03, abs=0.5)


def test_drawing_agrees():
    rows, skew, draws = 5000, 1.0, 20_000
    chance = np.arange(1, rows + 1.0) ** -skew
    drawn = np.random.default_rng(0).choice(rows, size=(20, draws), p=chance / chance.sum())
    seen = np.mean([len(np.unique(one)) for one in drawn])
    assert distinct_rows(draws, rows=rows, skew=skew, ranks=[rows])[0] == pytest.approx(seen, rel=0.02)


@given(st.floats(1.0, 1e12), st.floats(1.0, 1e14), st.floats(0.0, 2.0))
def test_there_are_no_more_distinct_rows_than_draws_or_rows(draws, rows, skew):
    shares = np.linspace(0.0, 1.0, 11)
    touched = distinct_rows(draws, rows=rows, skew=skew, ranks=shares * rows)
    assert touched[0] == 0.0
    assert touched[-1] <= min(draws, np.ceil(rows)) * (1 + 1e-9)
    gains = np.diff(touched)
    assert (gains >= 0.0).all()
    assert (np.diff(gains) <= 1e-6 * touched[-1] + 1e-9).all(), "popular rows come first"


@given(st.floats(10.0, 1e9), st.floats(0.0, 1.5))
def test_more_draws_touch_more_rows_but_fewer_each(draws, skew):
    once, twice = (distinct_rows(n, rows=1e8, skew=skew, ranks=[1e8])[0] for n in (draws, 2 * draws))
    assert once <= twice <= 2 * once * (1 + 1e-9)


def test_a_steeper_law_touches_fewer_rows():
    counts = [distinct_rows(1e6, rows=1e8, skew=skew, ranks=[1e8])[0] for skew in (0.0, 0.5, 1.0, 1.5)]
    assert counts == sorted(counts, reverse=True)
