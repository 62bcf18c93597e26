"""What recomputation leaves out of a layer, and which products a list of operators repeats."""

import pytest

from costmodels.iteration import row_seconds
from costmodels.layer.attention import attention_matmuls
from costmodels.layer.blocks import layer_seconds
from costmodels.layer.experts import arrived_tokens, grouped_products, routed_tokens
from costmodels.layer.forward_backward import ffn_matmuls, last_product, linear, tokens_per_rank
from costmodels.layer.tensor_parallel import exposed_summing, tensor_parallel
from costmodels.memory.activations import average_activation_bytes
from costmodels.model.layer_kinds import DENSE
from costmodels.names import Recompute
from costmodels.strategy import strategies
from tests.scenarios import toy_device, toy_group, toy_model, toy_scenario, toy_stack, with_experts

FAST_MEMORY = toy_group(device=toy_device(bandwidth=1e30))
"""Machines on which arithmetic and links alone take time."""


def spared(rows, **known):
    """Seconds of one recomputed layer that a lean stack leaves out."""
    stack = known.pop("stack", {})
    whole, lean = (
        row_seconds(rows, toy_scenario(stack=toy_stack(skips_unread=yes, **stack), **known)).recompute
        for yes in (False, True)
    )
    return whole - lean


def test_a_layer_is_repeated_up_to_the_last_tensor_that_a_gradient_reads():
    rows = strategies(tp=[1, 2, 2], sequence_parallel=[0, 0, 1], recompute=int(Recompute.FULL))
    scenario = toy_scenario(group=FAST_MEMORY)
    exchanged = tensor_parallel(rows, scenario).forward
    share = [0.0, 0.5, 0.25]  # one of two sums; without its gather where sequences are split
    wanted = last_product(rows, scenario).forward + share * exchanged
    assert spared(rows, group=FAST_MEMORY) == pytest.approx(wanted)


def test_nothing_is_left_out_where_the_last_product_is_read():
    rows = strategies(recompute=int(Recompute.FULL))
    behind = toy_model().model_copy(update={"num_norms": 4})
    for known in ({"model": behind}, {"stack": {"dropout": True}}, {"model": with_experts(toy_model())}):
        assert spared(rows, **known) == pytest.approx(0.0)


def test_of_layers_that_are_repeated_together_the_last_alone_is_cut_short():
    one, four = (strategies(recompute=int(Recompute.FULL), recompute_num_layers=n) for n in (1, 4))
    assert spared(four) == pytest.approx(spared(one) / 4.0)


def test_nothing_is_spared_where_the_host_takes_longer_than_the_device():
    rows = strategies(recompute=int(Recompute.FULL))
    slow = {"launch_time": "1 s"}
    assert spared(rows, stack=slow) == pytest.approx(0.0)
    assert spared(rows, stack=slow | {"launch_blocking": True}) == pytest.approx(spared(rows))


def test_the_addition_to_the_residual_is_left_out_with_the_product():
    rows, scenario = strategies(recompute=int(Recompute.FULL)), toy_scenario()
    added = 6.0 * 1024 * tokens_per_rank(rows, scenario) / (scenario.rates.stream * scenario.rates.bandwidth)
    assert spared(rows) == pytest.approx(last_product(rows, scenario).forward + added)


LISTED = toy_stack(recompute_policy="operators")


def test_a_list_of_operators_repeats_keys_output_and_the_second_branch():
    model = toy_model().model_copy(update={"gated_ffn": True, "num_query_groups": 2})
    scenario = toy_scenario(model=model, group=FAST_MEMORY, stack=LISTED)
    rows = strategies()
    tokens, h = tokens_per_rank(rows, scenario), float(model.hidden_size)
    widths = (model.head_dim * 2, model.ffn_hidden_size)
    wanted = sum(linear(tokens, n, h, scenario).forward for n in widths)
    wanted = wanted + attention_matmuls(rows, scenario, ("output",)).forward
    layer = layer_seconds(rows, scenario)
    assert layer.second == pytest.approx(wanted)
    assert layer.repeated("operators") == pytest.approx(layer.stream.forward + wanted)
    assert wanted < layer.matmul.forward / 2.0


def test_without_a_gate_the_second_product_of_the_network_is_repeated():
    rows, scenario = strategies(), toy_scenario(group=FAST_MEMORY, stack=LISTED)
    keys_and_output = layer_seconds(rows, scenario).second - last_product(rows, scenario).forward
    assert keys_and_output == pytest.approx(attention_matmuls(rows, scenario).forward / 2.0, rel=0.01)


def test_no_list_of_operators_keeps_grouped_products_of_which_the_last_is_read_by_none():
    scenario = toy_scenario(model=with_experts(toy_model()), stack=LISTED)
    assert [kind for kind in scenario.depth.kinds if kind != DENSE]
    rows = strategies()
    layer, of_experts = layer_seconds(rows, scenario), grouped_products(rows, scenario).forward
    read = scenario.model.ffn_branches / (scenario.model.ffn_branches + 1)
    assert layer.second == pytest.approx((layer.matmul.forward - of_experts) / 2.0 + read * of_experts)


def test_a_list_without_exchanges_repeats_them_and_keeps_nothing_of_them():
    rows = strategies(ep=4, dp=4, recompute=int(Recompute.SELECTIVE))
    model = with_experts(toy_model())
    named, lacking = (
        toy_scenario(model=model, stack=toy_stack(recompute_policy="operators", saves_exchanges=yes))
        for yes in (True, False)
    )
    layer = layer_seconds(rows, named)
    more = row_seconds(rows, lacking).selective - row_seconds(rows, named).selective
    assert layer.repeated("operators", exchanges=True) - layer.repeated("operators") == pytest.approx(
        layer.ep_alone.forward
    )
    assert more > 0
    kept = average_activation_bytes(rows, named) - average_activation_bytes(rows, lacking)
    exchanged = routed_tokens(rows, named) + arrived_tokens(rows, named)
    assert kept == pytest.approx(2.0 * model.hidden_size * exchanged)


def test_side_by_side_neither_of_the_last_products_nor_their_sum_over_tensor_ranks_is_repeated():
    rows = strategies(tp=2, recompute=int(Recompute.FULL), sequence_parallel=1)
    stacks = [toy_stack(skips_unread=lean) for lean in (False, True)]
    model = toy_model().model_copy(update={"parallel_block": True})
    whole, lean = (toy_scenario(model=model, stack=one, group=FAST_MEMORY) for one in stacks)
    left_out = row_seconds(rows, whole).recompute - row_seconds(rows, lean).recompute
    products = last_product(rows, whole).forward + attention_matmuls(rows, whole, ("output",)).forward
    assert left_out == pytest.approx(products + exposed_summing(rows, whole))
    assert 2 * exposed_summing(rows, whole) == pytest.approx(tensor_parallel(rows, whole).forward)


def test_keeping_projections_alone_repeats_the_other_products_but_the_last():
    rows, scenario = strategies(tp=2), toy_scenario(group=FAST_MEMORY)
    layer = layer_seconds(rows, scenario)
    first = ffn_matmuls(rows, scenario).forward - last_product(rows, scenario).forward
    output = attention_matmuls(rows, scenario, ("output",)).forward
    stream = layer.stream.forward + layer.attention.forward
    assert layer.repeated("projections") == pytest.approx(stream + first + output)
    assert layer.repeated("attention-products") == pytest.approx(stream + first)
    assert layer.repeated("feed-forward") == pytest.approx(layer.stream.forward + first)
    assert layer.repeated("products") == pytest.approx(stream)
