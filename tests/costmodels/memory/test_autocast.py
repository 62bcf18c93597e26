"""What autocast keeps beyond 16 bits, counted by hand."""

import pytest

from costmodels.memory.activations import average_activation_bytes, layer_checkpoint_bytes
from costmodels.memory.limits import late_bytes
from costmodels.memory.states import state_bytes
from costmodels.names import Recompute
from costmodels.strategy import strategies
from tests.scenarios import toy_model, toy_scenario, toy_stack

T, H, A = 1024, 1024, 8
"""Tokens, width and heads of the toy model."""


def more(under, rows=None, **changes):
    """Bytes that a layer keeps beyond those of the same program with weights in 16 bits."""
    rows = strategies() if rows is None else rows
    wide, plain = (toy_scenario(model=under, stack=toy_stack(weight_bytes=n, **changes)) for n in (4, 2))
    return (average_activation_bytes(rows, wide) - average_activation_bytes(rows, plain)).tolist()


def test_both_norms_read_fp32_and_every_product_of_their_outputs_keeps_a_cast():
    eager = {"fused_elementwise": False}
    gated = toy_model(gated_ffn=True)
    assert more(gated, **eager) == [2 * 2 * T * H]
    assert more(gated, own_model=True, **eager) == [2 * 2 * T * H + 3 * 2 * T * H]
    assert more(gated, split_projections=("qkv", "gate"), **eager) == [2 * 2 * T * H + 3 * 2 * T * H]
    assert more(toy_model(), split_projections=("qkv", "gate"), **eager) == [2 * 2 * T * H + 2 * 2 * T * H]


def test_a_compiler_keeps_one_wide_tensor_of_a_layer():
    assert more(toy_model(), split_projections=("qkv", "gate"), fused_elementwise=True) == [2 * T * H]


@pytest.mark.parametrize(("dropout", "further"), [(True, 2), (False, 4)])
def test_a_softmax_in_fp32_is_kept_besides_its_cast(dropout, further):
    unfused = {"fused_elementwise": False, "attention_backend": ("unfused",), "dropout": dropout}
    assert more(toy_model(), **unfused) == [2 * 2 * T * H + further * A * T * T]


def test_full_sharding_casts_weights_itself_and_keeps_no_more():
    rows = strategies(dp=2, zero_stage=[0, 1, 2, 3], sharding_degree=[1, 2, 2, 2])
    wide = 2 * 2 * T * H
    assert more(toy_model(), rows, fused_elementwise=False) == [wide, wide, 0, 0]
    assert more(toy_model(), rows, fused_elementwise=False, fsdp_stage2=True) == [wide, 0, 0, 0]


def test_a_program_may_cast_so_on_one_rank_of_tensors_and_pipeline_alone_or_nowhere():
    rows = strategies(tp=[1, 2, 1], pp=[1, 1, 2])
    kept = {where: more(toy_model(), rows, fused_elementwise=False, autocast=where) for where in ("unsplit", "never")}
    assert kept == {"unsplit": [2 * 2 * T * H, 0, 0], "never": [0, 0, 0]}


def test_a_recomputed_layer_keeps_its_input_in_fp32():
    rows = strategies(recompute=Recompute.FULL)
    kept = [layer_checkpoint_bytes(rows, toy_scenario(stack=toy_stack(weight_bytes=n))) for n in (2, 4)]
    assert [x.tolist() for x in kept] == [[2 * T * H], [4 * T * H]]


def test_gradients_are_as_wide_as_weights_and_take_the_room_of_their_casts():
    wide, plain = (toy_scenario(stack=toy_stack(weight_bytes=n, gradient_bytes=2, set_to_none=True)) for n in (4, 2))
    rows = strategies()
    assert state_bytes(rows, wide).gradients == [4.0]
    assert state_bytes(rows, plain).gradients == [2.0]
    counted = {"kept": 1e4, "parameters": 100.0, "gradients": 1e9}
    assert late_bytes(rows, wide, **counted) - late_bytes(rows, plain, **counted) == [2 * 100.0]
