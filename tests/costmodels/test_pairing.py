"""Experts' traffic beside the computation of another micro-batch."""

import numpy as np
import pytest

from costmodels.pairing import alone_experts, further_axes, overlaps
from costmodels.strategy import SCHEDULE_NAMES, strategies
from tests.scenarios import toy_stack

LEFT = 0.25


def more(*, window=100.0, pp=1, vpp=1, num_microbatches=4):
    """What comes back of one second that was taken for exposed."""
    schedule = SCHEDULE_NAMES.index("interleaved-1f1b" if vpp > 1 else "1f1b") if pp > 1 else 0
    rows = strategies(pp=pp, vpp=vpp, num_microbatches=num_microbatches, schedule=schedule)
    stack = toy_stack(overlap={"ep": LEFT})
    return alone_experts(rows, stack, traffic=np.ones(1), window=np.full(1, window))[0]


def test_a_single_micro_batch_has_nothing_to_hide_behind():
    assert more(num_microbatches=1) == pytest.approx(1 / LEFT - 1)


def test_one_of_m_micro_batches_has_no_partner():
    assert more(num_microbatches=8) == pytest.approx((1 / LEFT - 1) / 8)


def test_passes_that_fill_the_pipeline_have_none_either_and_fewer_do_in_chunks():
    assert more(pp=4, num_microbatches=8) == pytest.approx((1 / LEFT - 1) * 4 / 11)
    assert more(pp=4, vpp=3, num_microbatches=8) == pytest.approx((1 / LEFT - 1) * 2 / 9)


def test_no_more_hides_than_there_is_computation():
    """Of four seconds one second of computation hides one; three are left where one was thought to be."""
    assert more(window=1.0, num_microbatches=10**9) == pytest.approx(2.0)


def test_only_a_stack_that_overlaps_micro_batches_prices_layers_by_their_number():
    assert overlaps(toy_stack(overlap={"ep": LEFT}))
    assert not further_axes(toy_stack(overlap={"ep": 1.0}))
    assert not further_axes(toy_stack(overlap={"ep": LEFT, "pairs": True}))
