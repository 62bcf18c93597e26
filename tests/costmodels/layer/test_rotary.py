"""Rotary positions: fused, with a factor, or in passes of their own."""

import pytest

from costmodels.layer.elementwise import UNFUSED_ROTARY, stream_traffic
from tests.scenarios import toy_model, toy_scenario, toy_stack


def test_rotary_positions_with_a_factor_are_written_out_where_the_fused_kernel_knows_none():
    plain = toy_model().model_copy(update={"position": "rotary"})
    scaled = plain.model_copy(update={"rotary_scaled": True})

    def moved(model, **stack):
        return stream_traffic(toy_scenario(model=model, stack=toy_stack(fused_elementwise=True, **stack)))

    once, apart = moved(plain, fused_scaled_rotary=False), moved(scaled, fused_scaled_rotary=False)
    width = plain.attention_width + plain.key_value_width
    for one, other in zip(once, apart, strict=True):
        assert other[1] - one[1] == pytest.approx((UNFUSED_ROTARY - 1) * 4 * width)
        assert other[0] == one[0]
    assert moved(scaled) == once


def test_rotary_positions_that_no_compiler_fuses_make_passes_of_their_own_where_the_rest_is_fused():
    model = toy_model().model_copy(update={"position": "rotary"})
    once, often, plain = (
        stream_traffic(toy_scenario(model=model, stack=toy_stack(fused_elementwise=fused, rotary_traffic=passes)))
        for fused, passes in ((True, 1.0), (True, 5.0), (False, 5.0))
    )
    width = model.attention_width + model.key_value_width
    for one, other in zip(once, often, strict=True):
        assert other[1] - one[1] == pytest.approx(4 * 4 * width)
        assert other[0] == one[0]
    assert plain == stream_traffic(toy_scenario(model=model, stack=toy_stack(fused_elementwise=False)))
