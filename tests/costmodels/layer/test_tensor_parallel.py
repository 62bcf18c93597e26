import numpy as np
import pytest

from costmodels.layer.tensor_parallel import input_reductions, tensor_parallel
from costmodels.layer.vocabulary import head_seconds
from costmodels.model.layer_kinds import EXPERTS
from costmodels.strategy import strategies
from tests.scenarios import toy_model, toy_scenario, toy_stack


def backward(rows, *, gated=True, **stack):
    scenario = toy_scenario(model=toy_model(gated_ffn=gated), stack=toy_stack(**stack))
    return float(tensor_parallel(rows, scenario).backward[0])


def both(rows, **stack):
    passes = head_seconds(rows, toy_scenario(stack=toy_stack(**stack)))
    return float((passes.forward + passes.backward)[0])


def test_a_gate_of_its_own_reduces_one_gradient_more_where_the_network_is_gated():
    rows = strategies(tp=4)
    assert backward(rows, separate_reductions=("gate",)) == pytest.approx(1.5 * backward(rows))
    assert backward(rows, gated=False, separate_reductions=("gate",)) == pytest.approx(backward(rows, gated=False))


def test_queries_keys_and_values_of_their_own_reduce_two_gradients_more():
    rows = strategies(tp=4)
    assert backward(rows, separate_reductions=("qkv",)) == pytest.approx(2.0 * backward(rows))


def test_experts_have_no_gate_that_tensor_ranks_reduce():
    assert input_reductions(EXPERTS, toy_scenario(stack=toy_stack(separate_reductions=("qkv", "gate")))) == 2.0


def test_a_norm_that_gathers_has_one_scatter_for_all_products_behind_it():
    rows = strategies(tp=4, sequence_parallel=1)
    assert backward(rows, separate_reductions=("qkv", "gate"), norm_gathers=True) == pytest.approx(backward(rows))
    assert backward(rows, separate_reductions=("qkv", "gate")) > backward(rows)


def test_inputs_that_are_kept_as_gathered_are_not_gathered_again():
    rows = strategies(tp=4, sequence_parallel=1)
    assert backward(rows, keeps_gathered_inputs=True) == pytest.approx(2.0 / 3.0 * backward(rows), rel=0.01)


def test_gathered_logits_cost_the_same_loss_on_every_tensor_rank():
    split, whole = (both(strategies(tp=8), gathered_logits=yes) for yes in (False, True))
    assert whole > split
    alone = [both(strategies(tp=1), gathered_logits=yes) for yes in (False, True)]
    assert alone[0] == alone[1]


def test_a_whole_head_takes_on_every_tensor_rank_what_it_takes_on_one():
    stack = {"gathered_logits": True, "whole_vocabulary": ("embedding", "head")}
    many, one = (both(strategies(tp=degree), **stack) for degree in (8, 1))
    assert many == pytest.approx(one)


def test_nothing_is_added_without_tensor_ranks():
    rows = strategies(tp=1)
    assert np.all(
        tensor_parallel(rows, toy_scenario(stack=toy_stack(separate_reductions=("qkv", "gate")))).backward == 0.0
    )
