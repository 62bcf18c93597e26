import gc
from dataclasses import fields, replace
from weakref import ref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.pricing import price
from costmodels.strategy import AXES, LARGEST_TABLE, concatenate, strategies
from tests.scenarios import random_rows, toy_scenario, toy_stack

COLUMNS = st.lists(
    st.tuples(st.sampled_from([1, 2, 4, 3]), st.integers(1, 5), st.sampled_from([1.0, 2.0, 0.5])),
    min_size=1,
    max_size=40,
)


def rows_of(columns):
    tp, pp, micro = zip(*columns, strict=True)
    return strategies(tp=tp, pp=pp, micro_batch_size=micro)


def test_absent_axes_are_neutral_and_scalars_spread():
    rows = strategies(tp=[1, 2, 4], dp=8)
    assert len(rows) == 3
    assert rows.dp.tolist() == [8, 8, 8]
    assert rows.pp.tolist() == [1, 1, 1]
    assert rows.zero_stage.tolist() == [0, 0, 0]
    assert rows.micro_batch_size.dtype == np.float64
    assert rows.row(2)["tp"] == 4


def test_an_unknown_axis_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"tpp.*tp, cp, cp_kind, pp"):
        strategies(tpp=2)


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"broadcast|length"):
        strategies(tp=[1, 2], pp=[1, 2, 3])


def test_no_rows_are_strategies_too():
    none = strategies(**{axis: [] for axis in AXES})
    assert len(none) == 0
    assert none.distinct("tp", "cp")[1].tolist() == []


def test_no_rows_are_strategies_even_where_axes_are_absent():
    assert len(strategies(tp=[], pp=[])) == 0


def test_every_axis_is_a_column():
    assert set(AXES) == {field.name for field in fields(strategies()) if not field.name.startswith("_")}


@given(COLUMNS)
def test_what_is_gathered_from_distinct_rows_is_what_every_row_has(columns):
    rows = rows_of(columns)
    for names in (("tp",), ("tp", "pp"), ("micro_batch_size", "tp")):
        sub, inverse = rows.distinct(*names)
        for name in names:
            assert getattr(sub, name)[inverse].tolist() == getattr(rows, name).tolist()
        combinations = set(zip(*(getattr(rows, name).tolist() for name in names), strict=True))
        assert len(sub) == len(combinations)


def test_distinct_rows_of_a_key_too_large_for_a_table_are_gathered_exactly():
    spread = np.arange(300)
    rows = strategies(tp=spread + 1, cp=spread[::-1] + 1, dp=(spread * LARGEST_TABLE) + 1)
    sub, inverse = rows.distinct("tp", "cp", "dp")
    assert len(sub) == 300
    assert (sub.dp[inverse] == rows.dp).all()


@given(COLUMNS)
def test_combinations_of_combinations_are_those_of_all_strategies(columns):
    rows = rows_of(columns)
    wide, _ = rows.distinct("tp", "pp", "micro_batch_size")
    few, inverse = wide.distinct("tp", "pp", "dp")
    if len(rows) > 1 and len(wide) > 1:
        assert few is rows.distinct("pp", "tp")[0]
    assert few.tp[inverse].tolist() == wide.tp.tolist()
    assert few.pp[inverse].tolist() == wide.pp.tolist()


def test_combinations_outlive_the_strategies_that_they_are_of():
    few, _ = rows_of([(1, 1, 1.0), (2, 1, 1.0), (2, 3, 1.0)]).distinct("tp", "pp")
    some, inverse = few.distinct("tp")
    assert sorted(some.tp.tolist()) == [1, 2]
    assert some.tp[inverse].tolist() == few.tp.tolist()


def test_axes_that_others_tell_come_with_them():
    rows = strategies(tp=[1, 2, 4, 1], pp=[4, 2, 1, 1], dp=[1, 1, 1, 4])
    few, inverse = rows.distinct("tp", "pp")
    assert few.dp[inverse].tolist() == rows.dp.tolist()
    assert few is rows.distinct("tp", "cp", "pp", "dp")[0]


def test_strategies_that_were_priced_go_as_soon_as_nobody_has_them():
    scenario = toy_scenario(gpus=16, batch=32, stack=toy_stack(zero_stages=(0, 1, 2, 3)))
    rows = random_rows(scenario, 4096, 7)
    price(rows, scenario)
    gone = ref(rows)
    gc.disable()
    try:
        del rows
        assert gone() is None
    finally:
        gc.enable()


@given(COLUMNS, st.randoms(use_true_random=False))
def test_taking_and_joining_keep_every_row(columns, chance):
    rows = rows_of(columns)
    index = np.array([chance.randrange(len(rows)) for _ in columns])
    taken = rows.take(index)
    joined = concatenate([taken, rows])
    assert [joined.row(i) for i in range(len(joined))] == [rows.row(i) for i in [*index, *range(len(rows))]]


def test_a_changed_copy_does_not_remember_the_old_values():
    rows = strategies(tp=[1, 2, 2])
    rows.distinct("tp")
    changed = replace(rows, tp=np.array([4, 4, 8]))
    sub, inverse = changed.distinct("tp")
    assert sub.tp[inverse].tolist() == [4, 4, 8]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_price_does_not_depend_on_the_rows_beside_it(seed):
    scenario = toy_scenario(gpus=16, batch=32, stack=toy_stack(uneven_stages=True, zero_stages=(0, 1, 2, 3)))
    rows = random_rows(scenario, 24, seed)
    together = price(rows, scenario).iteration
    order = np.random.default_rng(seed).permutation(len(rows))
    assert (price(rows.take(order), scenario).iteration == together[order]).all()
