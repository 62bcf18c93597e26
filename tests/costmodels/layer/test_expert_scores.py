"""Scores that weigh experts' outputs operation by operation in fp32, counted by hand on a toy machine."""

import pytest

from costmodels.layer.expert_activations import expert_activation_bytes, weighed_bytes
from costmodels.layer.experts import WEIGHED, expert_streams
from costmodels.memory.peaks import momentary_bytes
from costmodels.strategy import strategies
from tests.costmodels.layer.test_experts import TOKENS, TOP_K, WIDTH, experts_on
from tests.scenarios import toy_stack

ROWS = strategies(dp=4, ep=4)
VALUES = TOKENS * TOP_K * WIDTH
"""Values that come back from the experts of one layer."""


def weighed(by_operation):
    """Experts on four ranks, their scores applied by one kernel or by operations."""
    return experts_on(gpus=4, stack=toy_stack(scores_in_fp32=by_operation))


def test_what_experts_return_is_kept_in_fp32():
    fused, apart = (expert_activation_bytes(ROWS, weighed(flag), 2.0) for flag in (False, True))
    assert apart - fused == pytest.approx(4.0 * VALUES)
    assert weighed_bytes(ROWS, weighed(by_operation=False)).tolist() == [0.0]


def test_a_cast_a_product_and_a_cast_move_every_value_ten_times_forward():
    fused, apart = (expert_streams(ROWS, weighed(flag)) for flag in (False, True))
    rates = weighed(by_operation=True).rates
    assert WEIGHED[0] == (2 + 4) + (4 + 4) + (4 + 2)
    assert apart.forward - fused.forward == pytest.approx(rates.stream_seconds(WEIGHED[0] * VALUES))
    assert apart.backward - fused.backward == pytest.approx(rates.stream_seconds(WEIGHED[1] * VALUES))


def test_the_backward_pass_begins_with_three_copies_in_fp32_and_one_in_16_bits():
    scenario = weighed(by_operation=True)
    assert momentary_bytes(ROWS, scenario) == pytest.approx(2.0 * TOKENS * WIDTH + (3 * 4 + 2) * VALUES)
    assert momentary_bytes(ROWS, weighed(by_operation=False)) < momentary_bytes(ROWS, scenario)
