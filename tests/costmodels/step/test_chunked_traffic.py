"""Data-parallel traffic that travels chunk by chunk under interleaving."""

import numpy as np
import pytest

from costmodels.layer.forward_backward import Passes
from costmodels.names import SCHEDULE_NAMES
from costmodels.step.traffic import step_traffic
from costmodels.strategy import strategies
from tests.scenarios import toy_scenario, toy_stack

LAYER = Passes(np.array([2e-4]), np.array([4e-4]))


def traffic(*, chunks, hidden=True, vpp=2, schedule="interleaved-1f1b"):
    behind = {"overlap_grad_reduce": hidden, "overlap_param_gather": hidden, "by_chunk": chunks}
    stack = toy_stack(**behind, compute_slowdown=0.0, bucket_exposed=0.0, zero_stages=(0, 1))
    row = strategies(
        pp=2,
        dp=4,
        vpp=vpp,
        zero_stage=1,
        sharding_degree=4,
        num_microbatches=8,
        schedule=SCHEDULE_NAMES.index(schedule),
    )
    found = step_traffic(row, toy_scenario(gpus=8, batch=32, stack=stack), LAYER)
    return float((found.gradients + found.parameters)[0])


def test_chunks_have_more_to_hide_behind():
    assert traffic(chunks=True) < traffic(chunks=False)


def test_at_most_the_outermost_chunk_is_exposed_where_the_others_have_time():
    whole = traffic(chunks=True, hidden=False)
    assert traffic(chunks=True) <= whole / 2


def test_chunks_make_no_difference_where_nothing_is_hidden_or_there_is_one():
    assert traffic(chunks=True, hidden=False) == traffic(chunks=False, hidden=False)
    assert traffic(chunks=True, vpp=1, schedule="1f1b") == pytest.approx(traffic(chunks=False, vpp=1, schedule="1f1b"))
