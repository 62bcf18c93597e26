from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.layer.attention import attended_pairs, attention_core, attention_matmuls
from costmodels.layer.blocks import layer_seconds
from costmodels.layer.context import context_parallel
from costmodels.layer.elementwise import stream_traffic
from costmodels.layer.forward_backward import ffn_matmuls, region_tokens, tokens_per_rank
from costmodels.layer.launches import launch_floor, small_kernels, tensor_collectives
from costmodels.layer.tensor_parallel import tensor_parallel
from costmodels.layer.vocabulary import head_seconds
from costmodels.layout.parameters_per_rank import layer_parameters_per_rank, padded_vocabulary_rows
from costmodels.model.flops import attention_flops, kind_matmul_weights
from costmodels.model.layer_kinds import DENSE, Kind
from costmodels.strategy import strategies
from tests.drawn import drawn_scenarios
from tests.scenarios import (
    changed_device,
    changed_link,
    random_rows,
    toy_device,
    toy_group,
    toy_model,
    toy_scenario,
    toy_stack,
)

FAST_MEMORY = toy_group(device=toy_device(bandwidth=1e30))
"""Machines on which arithmetic alone takes time."""


def both_matmuls(rows, scenario):
    return attention_matmuls(rows, scenario) + ffn_matmuls(rows, scenario)


def test_an_rmsnorm_that_nothing_fuses_moves_36_bytes_a_value_forward_and_84_backward():
    eager, model = toy_stack(fused_elementwise=False), toy_model()
    one, two = (
        stream_traffic(toy_scenario(model=model.model_copy(update={"norm": norm}), stack=eager))
        for norm in ("rmsnorm", "layernorm")
    )
    values = 2 * 1024
    assert one[0][0] - two[0][0] == pytest.approx(values * (36.0 - 4.0 * 1.6))
    assert one[1][0] - two[1][0] == pytest.approx(values * (84.0 - 6.0 / 0.5))  # a toy reaches half the bandwidth there


def test_pytorch_s_own_rmsnorm_is_close_to_a_fused_one_where_nothing_fuses():
    model = toy_model().model_copy(update={"norm": "rmsnorm"})
    fused, own, written = (
        stream_traffic(toy_scenario(model=model, stack=toy_stack(**switches)))
        for switches in ({}, {"fused_norms": False, "pytorch_rms_norm": True}, {"fused_norms": False})
    )
    assert own[0][0] - fused[0][0] == pytest.approx(0.2 * 2 * 4 * 1024)  # forward, two norms
    assert written[0][0] > 3.0 * own[0][0]
    assert fused[1] == own[1] < written[1]  # a toy's norms are slow backward either way


def test_tokens_are_split_over_context_ranks_and_in_norms_over_tensor_ranks():
    rows = strategies(tp=4, cp=2, micro_batch_size=[1, 3, 3], sequence_parallel=[0, 0, 1])
    assert tokens_per_rank(rows, toy_scenario()).tolist() == [512, 1536, 1536]
    assert region_tokens(rows, toy_scenario()).tolist() == [512, 1536, 384]


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("changes", [{}, {"num_query_groups": 8, "gated_ffn": True}])
def test_the_products_of_a_layer_take_two_flops_a_weight_and_token_and_twice_that_backward(tp, changes):
    model = toy_model(**changes)
    rows = strategies(tp=tp, micro_batch_size=4)
    products = both_matmuls(rows, toy_scenario(model=model, group=FAST_MEMORY))
    flops = 2.0 * kind_matmul_weights(model, DENSE) * 4096 / tp
    assert products.forward == pytest.approx(flops / 100e12)
    assert products.backward == pytest.approx(2 * flops / 100e12)


def test_more_tensor_ranks_than_query_groups_repeat_keys_and_values():
    model = toy_model(num_query_groups=2)
    rows = strategies(tp=[2, 8])
    two, eight = both_matmuls(rows, toy_scenario(model=model, group=FAST_MEMORY)).forward
    kept = kind_matmul_weights(model, DENSE) - 2 * model.key_value_width * model.hidden_size
    keys = 2 * model.head_dim * model.hidden_size
    assert eight / two == pytest.approx((kept / 8 + keys) / (kept / 2 + keys))


def test_fused_attention_computes_the_causal_half():
    model = toy_model()
    seconds = layer_seconds(strategies(micro_batch_size=2), toy_scenario(model=model)).attention
    flops = attention_flops(model, seq_length=1024, causal=True) / model.num_layers * 2048
    assert seconds.forward == pytest.approx(flops / 100e12)
    assert seconds.backward == pytest.approx(2.5 * flops / 100e12)


def test_a_sliding_window_leaves_pairs_out():
    everything = attended_pairs(toy_model(), 1024.0)
    local = toy_model().model_copy(update={"sliding_window": 256})
    assert everything == 1024**2 / 2
    near = Kind("local", "dense")
    assert attended_pairs(local, 1024.0, near) == 1024 * 256 - 256**2 / 2
    assert attended_pairs(local, 1024.0, DENSE) == everything
    assert attended_pairs(local.model_copy(update={"sliding_window": 4096}), 1024.0, near) == everything


def test_rows_that_matrix_units_do_not_take_run_beside_them():
    """A head of 96 is a multiple of 8 values, one of 100 is not; a fused kernel has it as one of 128."""
    seconds = {}
    for width in (96, 100):
        device = toy_device(bandwidth=1e30)
        device = device.model_copy(update={"peak": device.peak | {"fp32": device.peak["bf16"] / 16}})
        model = toy_model(head_dim=width)
        for kernel in ("unfused", "flash-2"):
            scenario = toy_scenario(
                model=model, group=toy_group(device=device), stack=toy_stack(attention_backend=(kernel,))
            )
            seconds[kernel, width] = attention_core(strategies(), scenario).forward[0] / width
    assert seconds["unfused", 100] == pytest.approx(16 * seconds["unfused", 96])
    assert seconds["flash-2", 100] == pytest.approx(1.28 * seconds["flash-2", 96])


def test_branches_apart_are_added_one_by_one_and_reduce_two_gradients():
    model = toy_model().model_copy(update={"parallel_block": True})
    joined, apart = (toy_scenario(model=model, stack=toy_stack(separate_branches=yes)) for yes in (False, True))
    (before, _), (after, _) = (stream_traffic(scenario)[0] for scenario in (joined, apart))
    assert after - before == 6 * 1024
    rows = strategies(tp=4)
    one, two = (tensor_parallel(rows, scenario) for scenario in (joined, apart))
    assert two.forward == pytest.approx(one.forward)
    assert two.backward == pytest.approx(2 * one.backward)


def test_norms_of_pytorch_cost_more_than_fused_ones():
    stock = toy_scenario(stack=toy_stack(fused_norms=False))
    assert stream_traffic(stock)[0][0] - stream_traffic(toy_scenario())[0][0] == pytest.approx(0.6 * 2 * 4 * 1024)


def test_gradients_are_added_up_once_a_micro_batch_where_products_do_not():
    stack = toy_stack(accumulate_traffic=6)
    rows = strategies(tp=[1, 4], micro_batch_size=[1, 1])
    plain, adding = layer_seconds(rows, toy_scenario()), layer_seconds(rows, toy_scenario(stack=stack))
    size = layer_parameters_per_rank(rows, toy_scenario())
    assert adding.compute.backward - plain.compute.backward == pytest.approx(6 * size / 1e12)
    assert adding.compute.forward == pytest.approx(plain.compute.forward)


def test_tensor_parallelism_reduces_the_activations_twice_a_pass():
    """Two all-reduces of s b h two-byte values each way: 2 (t-1)/t of them through one lane of 100 GB/s."""
    scenario = toy_scenario()
    exposed = tensor_parallel(strategies(tp=4, micro_batch_size=3), scenario)
    values = 3 * 1024 * 1024
    assert exposed.forward == pytest.approx(2 * (2 * 3 / 4 * 2 * values) / 100e9)
    assert exposed.backward == pytest.approx(exposed.forward)


def test_sequence_parallelism_moves_as_much_forward_and_half_as_much_again_backward():
    rows = strategies(tp=4, sequence_parallel=[0, 1])
    exposed = tensor_parallel(rows, toy_scenario())
    assert exposed.forward[1] == pytest.approx(exposed.forward[0])
    assert exposed.backward[1] == pytest.approx(1.5 * exposed.backward[0])


def test_overlap_hides_its_share_and_slow_collectives_take_longer():
    rows = strategies(tp=4, sequence_parallel=[0, 1])
    usual = tensor_parallel(rows, toy_scenario())
    stack = toy_stack(communication_efficiency=0.5, overlap={"tp_forward": 0.25, "tp_backward": 0.75})
    other = tensor_parallel(rows, toy_scenario(stack=stack))
    assert other.forward == pytest.approx(usual.forward * 0.25 / 0.5)
    assert other.backward == pytest.approx(usual.backward * 0.75 / 0.5)


def test_a_parallel_block_reduces_once_a_pass():
    once = toy_model().model_copy(update={"parallel_block": True})
    rows = strategies(tp=4, sequence_parallel=[0, 1])
    single, usual = tensor_parallel(rows, toy_scenario(model=once)), tensor_parallel(rows, toy_scenario())
    assert single.forward == pytest.approx(usual.forward / 2)
    assert single.backward == pytest.approx(usual.backward / 2)


def test_one_tensor_rank_and_one_context_rank_exchange_nothing():
    layer = layer_seconds(strategies(), changed_link(toy_scenario(), 0, base_latency=1.0))
    assert layer.communication.forward.tolist() == [0.0]
    assert layer.communication.backward.tolist() == [0.0]


def test_ring_attention_sends_keys_and_values_to_all_but_one_rank_and_hides_behind_attention():
    scenario, model = toy_scenario(stack=toy_stack(overlap={"cp": 0.0})), toy_model()
    rows = strategies(cp=4)
    attention = layer_seconds(rows, scenario).attention
    hop = 2 * 2 * (1024 / 4) * model.key_value_width / 100e9
    hidden = attention.forward * 3 / 4
    assert context_parallel(rows, scenario, attention).forward == pytest.approx(np.maximum(3 * hop - hidden, 0))
    slow = changed_link(scenario, 0, bandwidth=1e6)
    seconds = context_parallel(rows, slow, attention).forward
    assert seconds == pytest.approx(3 * 2 * 2 * 256 * model.key_value_width / 1e6 - hidden)


def test_a_layer_is_never_faster_than_its_launches():
    stack = toy_stack(launch_time="1 ms", kernels_per_layer=10)
    scenario = toy_scenario(stack=stack)
    rows = strategies(tp=[1, 8])
    layer = layer_seconds(rows, scenario)
    assert launch_floor(rows, scenario, DENSE) == pytest.approx([10e-3, 20e-3])  # two collectives, five calls each
    assert ((layer.compute + layer.tp).forward >= 10e-3 * (1 - 1e-12)).all()
    assert ((layer.compute + layer.tp).backward >= 20e-3 * (1 - 1e-12)).all()
    assert launch_floor(rows, toy_scenario(stack=stack.changed({"switches.cuda_graphs": True})), DENSE).tolist() == [
        0.0,
        0.0,
    ]


def test_collectives_take_calls_of_the_host_twice_as_many_under_sequence_parallelism():
    scenario = toy_scenario(stack=toy_stack(launch_time="1 ms", kernels_per_layer=10))
    rows = strategies(tp=[8, 8], sequence_parallel=[0, 1])
    assert launch_floor(rows, scenario, DENSE) == pytest.approx([20e-3, 30e-3])
    assert tensor_collectives(rows, scenario, DENSE).tolist() == [2.0, 4.0]
    alone = toy_scenario(stack=toy_stack(launch_time="1 ms", kernels_per_layer=10, cuda_graph_scope=["attn"]))
    assert launch_floor(rows, alone, DENSE).tolist() == [0.0, 0.0]


def test_an_odd_vocabulary_on_a_rank_misses_the_fast_kernels():
    def head(vocabulary):
        model = toy_model(vocab_size=vocabulary).model_copy(update={"padded_vocab_size": vocabulary})
        scenario = toy_scenario(model=model, stack=toy_stack(cross_entropy_traffic=0.0))
        return head_seconds(strategies(tp=[1]), scenario).forward[0]

    assert head(50258) == pytest.approx(head(50256), rel=1e-3)
    assert head(50257) > 1.5 * head(50258)


def test_the_host_launches_on_while_tensor_ranks_exchange():
    """Where the host is behind anyway, what the device sends meanwhile takes no longer."""
    rows = strategies(tp=8)
    layer = layer_seconds(rows, toy_scenario(stack=toy_stack(launch_time="1 ms", kernels_per_layer=10)))
    assert layer.tp.forward > 0
    assert layer.compute.forward + layer.tp.forward == pytest.approx(20e-3)
    assert layer.compute.backward + layer.tp.backward == pytest.approx(40e-3)


def test_launches_that_wait_for_every_kernel_are_hidden_by_none():
    """Ten kernels of a millisecond forward, twenty backward, besides what the layer computes; ten calls for tp."""
    free, waits = (
        layer_seconds(
            strategies(tp=[1, 8], micro_batch_size=64),
            toy_scenario(stack=toy_stack(launch_time="1 ms", kernels_per_layer=10, launch_blocking=blocking)),
        )
        for blocking in (False, True)
    )
    idle = np.asarray(free.launch.forward)
    assert (idle < 10e-3).all()
    assert waits.launch.forward == pytest.approx([10e-3, 20e-3])
    assert waits.compute.forward - free.compute.forward == pytest.approx(np.array([10e-3, 20e-3]) - idle)
    assert waits.launch.backward == pytest.approx([20e-3, 40e-3])


def test_a_norm_and_two_residuals_move_what_their_kernels_read_and_write():
    """Two norms of 4h, two bias-dropout-residuals of 6h and a GELU of 4f bytes a token."""
    (split, width), _ = stream_traffic(toy_scenario())
    assert split == 2 * 4 * 1024 + 2 * 6 * 1024
    assert width == 4 * 4096


def test_the_vocabulary_is_padded_to_whole_rows_of_128_on_every_tensor_rank():
    scenario = toy_scenario(model=toy_model(vocab_size=50257))
    rows = strategies(tp=[1, 2, 8])
    assert padded_vocabulary_rows(rows, scenario).tolist() == [50304, 50432, 51200]
    assert (padded_vocabulary_rows(rows, scenario) % rows.tp == 0).all()
    stated = scenario.model.model_copy(update={"padded_vocab_size": 50260})
    assert padded_vocabulary_rows(rows, replace(scenario, model=stated)).tolist() == [50260, 50260, 51200]


def test_the_head_is_split_over_tensor_ranks():
    seconds = head_seconds(strategies(tp=[1, 2, 4]), toy_scenario(group=FAST_MEMORY))
    free = toy_scenario(group=FAST_MEMORY)
    for index in range(2):
        free = changed_link(free, index, bandwidth=1e30)
    split = head_seconds(strategies(tp=[1, 2, 4]), free)
    assert split.forward == pytest.approx(split.forward[0] / np.array([1, 2, 4]))
    assert (seconds.forward >= split.forward).all()


@settings(max_examples=60, deadline=None)
@given(drawn_scenarios(gpus=(8, 16)), st.integers(0, 2**32 - 1))
def test_every_term_of_a_layer_is_finite_and_not_negative(scenario, seed):
    layer = layer_seconds(random_rows(scenario, 20, seed), scenario)
    for part in (layer.matmul, layer.attention, layer.stream, layer.launch, layer.tp, layer.cp):
        for seconds in (part.forward, part.backward):
            assert np.isfinite(seconds).all()
            assert (seconds >= 0).all()


@settings(max_examples=60, deadline=None)
@given(drawn_scenarios(gpus=(8,)), st.integers(0, 2**32 - 1))
def test_a_layer_is_never_faster_than_its_flops_at_peak(scenario, seed):
    rows = random_rows(scenario, 20, seed)
    layer, model = layer_seconds(rows, scenario), scenario.model
    causal = attended_pairs(model, float(scenario.seq_length)) * 4.0 * model.attention_width
    products = 2.0 * kind_matmul_weights(model, DENSE) * scenario.seq_length
    share = rows.micro_batch_size / (rows.tp * rows.cp) / scenario.group.accelerator.peak_rate("bf16")
    again = 1 if scenario.frozen else 2
    assert (layer.compute.forward >= (products + causal) * share * (1 - 1e-9)).all()
    assert (layer.compute.backward >= (again * products + 2 * causal) * share * (1 - 1e-9)).all()


def test_memory_bandwidth_matters_to_memory_bound_kernels_only():
    rows, fast = strategies(), changed_device(toy_scenario(), memory_bandwidth=2e12)
    usual, faster = layer_seconds(rows, toy_scenario()), layer_seconds(rows, fast)
    assert faster.stream.forward == pytest.approx(usual.stream.forward / 2)
    assert faster.attention.forward == usual.attention.forward


@pytest.mark.parametrize(("full", "slower"), [(64.0, 1.0), (128.0, 2.0), (256.0, 4.0)])
def test_heads_narrower_than_the_matrix_unit_fill_a_part_of_it(full, slower):
    scenario = toy_scenario(model=toy_model(num_heads=32, hidden_size=2048, head_dim=64), group=FAST_MEMORY)
    kernels = scenario.group.accelerator.kernels
    fit = kernels.attention["flash-2"].model_copy(update={"narrow": 0.5, "full_width": full})
    padded = changed_device(scenario, kernels=kernels.model_copy(update={"attention": {"flash-2": fit}}))
    whole, part = (attention_core(strategies(), one).forward for one in (scenario, padded))
    assert part == pytest.approx(slower * whole)


def test_what_is_gathered_along_the_second_dimension_is_copied_into_place():
    rows = strategies(tp=4, sequence_parallel=[0, 1])
    first, second = (
        tensor_parallel(rows, toy_scenario(stack=toy_stack(batch_first=turned))) for turned in (False, True)
    )
    size = 2.0 * 1024 * toy_model().hidden_size
    once = 2.0 * size / toy_scenario().rates.bandwidth
    assert second.forward - first.forward == pytest.approx([0.0, 4 * once])
    assert second.backward - first.backward == pytest.approx([0.0, 6 * once])


def test_blackwell_may_prefer_another_attention_kernel():
    stack = toy_stack(attention_backend=("flash-2", "cudnn"), blackwell_attention=("cudnn", "flash-2"))
    scenario = toy_scenario(stack=stack)
    kernels = scenario.group.accelerator.kernels
    both = dict.fromkeys(("flash-2", "cudnn"), kernels.attention["flash-2"])
    known = {"kernels": kernels.model_copy(update={"attention": both})}
    names = [changed_device(scenario, architecture=a, **known).rates.attention_name for a in ("Hopper", "Blackwell")]
    assert names == ["flash-2", "cudnn"]


def test_every_kernel_beside_the_products_takes_its_start_and_drain():
    rows = strategies()
    late = toy_group(device=toy_device(overhead=3e-6))
    few, many = (toy_scenario(group=late, stack=toy_stack(kernels_per_layer=n, launch_time="0 s")) for n in (5, 25))
    drain = 3e-6
    grown = [small_kernels(rows, s, DENSE) for s in (few, many)]
    assert grown[0].forward == pytest.approx(0.0)
    assert grown[1].forward == pytest.approx(20 * drain)
    assert grown[1].backward == pytest.approx(40 * drain)
    layers = [layer_seconds(rows, s) for s in (few, many)]
    assert layers[1].stream.forward - layers[0].stream.forward == pytest.approx(20 * drain)


def test_the_output_head_runs_at_the_tables_rate_whatever_a_stack_loses_in_its_layers():
    rows = strategies()
    fast, slow = (toy_scenario(stack=toy_stack(kernel_efficiency=e)) for e in (1.0, 0.5))
    assert head_seconds(rows, slow).forward == pytest.approx(head_seconds(rows, fast).forward)
    assert layer_seconds(rows, slow).matmul.forward > 1.5 * layer_seconds(rows, fast).matmul.forward


def test_norms_of_queries_and_keys_are_read_and_written_like_others():
    plain = toy_model()
    normed = plain.model_copy(update={"qk_norm": "head"})
    scenario = toy_scenario(model=plain)
    slow = scenario.rates.stream / scenario.rates.norm_backward
    width = plain.attention_width + plain.key_value_width
    once, more = (stream_traffic(toy_scenario(model=model)) for model in (plain, normed))
    assert [other[1] - one[1] for one, other in zip(once, more, strict=True)] == pytest.approx(
        [4 * width, 6 * width * max(slow, 1.0)]
    )
    assert [other[0] for other in more] == [one[0] for one in once]
