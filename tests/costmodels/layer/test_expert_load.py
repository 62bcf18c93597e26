"""What experts compute, move, launch and wait for, besides their products: counted by hand on toy machines."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.iteration import row_seconds
from costmodels.layer.expert_activations import expert_activation_bytes
from costmodels.layer.experts import (
    BIAS,
    CLAMP,
    PERMUTE,
    SCORES,
    activation_seconds,
    dispatch_seconds,
    expert_layer,
    expert_load,
    expert_streams,
    grouped_products,
    router_seconds,
    shared_experts,
    small_kernels,
)
from costmodels.layer.forward_backward import Passes
from costmodels.layer.launches import BIASED, CAPACITY_SHARE, CAPTURED, CURRENT_SCALES, launch_floor
from costmodels.memory.footprint import footprint
from costmodels.memory.rows import row_bytes
from costmodels.model.layer_kinds import Kind
from costmodels.names import SCHEDULE_NAMES
from costmodels.pricing import row_assignment
from costmodels.stack.adapters import Adapters
from costmodels.step.optimizer import optimizer_seconds
from costmodels.step.traffic import step_traffic
from costmodels.strategy import strategies
from hardware.kernels import AttentionFit
from tests.costmodels.layer.test_experts import (
    ARITHMETIC,
    EXPERTS,
    INNER,
    NETWORK,
    NODE,
    PEAK,
    TOKENS,
    TOP_K,
    WIDTH,
    all_to_all,
    experts_on,
)
from tests.scenarios import ONE_F_ONE_B, toy_device, toy_group, toy_model, toy_scenario, toy_stack, with_experts

MEMORY = 1e12
"""Bytes/s of a toy device's memory, all of which kernels reach."""
ROWS = strategies(dp=4, ep=4)


def loaded(**changes):
    """Experts on four ranks of a stack with these changes."""
    return experts_on(gpus=4, stack=toy_stack(**changes))


def traffic_of(scenario, rows=ROWS):
    """Bytes a token that arrives at an expert, forward and backward."""
    seconds, arrived = expert_streams(rows, scenario), TOKENS * TOP_K
    return float(seconds.forward[0]) * MEMORY / arrived, float(seconds.backward[0]) * MEMORY / arrived


def on_toys(model=None, precision="bf16", gathering=1.0, **stack):
    device = toy_device().model_copy(update={"peak": {"bf16": PEAK, "fp8": 2 * PEAK, "fp4": 4 * PEAK}})
    fit = device.kernels.grouped.model_copy(update={"stream_efficiency": gathering})
    device = device.model_copy(update={"kernels": device.kernels.model_copy(update={"grouped": fit})})
    plain = with_experts(toy_model()).model_copy(update={"ffn_bias": False})
    scenario = toy_scenario(model=model or plain, gpus=4, group=toy_group(device=device))
    return replace(scenario, precision=precision, stack=toy_stack(**stack))


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.25])
def test_a_capacity_bounds_work_traffic_and_memory_by_its_multiple_of_the_mean(factor):
    even, capped = loaded(), loaded(expert_capacity=factor, expert_imbalance=3.0)
    pure = replace(even, group=ARITHMETIC), replace(capped, group=ARITHMETIC)
    assert grouped_products(ROWS, pure[1]).forward == pytest.approx(factor * grouped_products(ROWS, pure[0]).forward)
    assert dispatch_seconds(ROWS, capped).forward == pytest.approx(factor * dispatch_seconds(ROWS, even).forward)
    held, whole = (expert_activation_bytes(ROWS, scenario, 2.0) for scenario in (capped, even))
    assert held == pytest.approx(factor * whole)


def test_a_capacity_pads_the_experts_of_a_rank_that_has_them_all():
    alone = strategies(dp=4, ep=1)
    assert expert_load(alone, loaded(expert_capacity=1.5)).tolist() == [1.5]
    assert expert_load(alone, loaded(expert_imbalance=1.5)).tolist() == [1.0]


def test_no_rank_gets_more_than_all_tokens():
    rows = strategies(dp=8, ep=[2, 4, 8])
    assert expert_load(rows, experts_on(stack=toy_stack(expert_imbalance=4.0))).tolist() == [2.0, 4.0, 4.0]


def test_the_busiest_rank_also_moves_and_keeps_more():
    even, uneven = loaded(), loaded(expert_imbalance=1.5)
    assert expert_streams(ROWS, uneven).forward == pytest.approx(1.5 * expert_streams(ROWS, even).forward)
    more, less = (expert_activation_bytes(ROWS, scenario, 2.0) for scenario in (uneven, even))
    assert more == pytest.approx(1.5 * less)


def test_gathering_dispatch_sends_every_token_to_every_rank_whatever_it_was_routed_to():
    one, two = (dispatch_seconds(ROWS, experts_on(top_k=k, stack=toy_stack(dispatcher="allgather"))) for k in (1, 2))
    assert one.forward == pytest.approx(2 * 2 * TOKENS * WIDTH * 4 * 3 / 4 / NODE)
    assert two.forward == pytest.approx(one.forward)


def test_a_token_enters_a_node_once_where_it_is_copied_inside():
    """With eight copies to eight ranks on two nodes the plain exchange crosses the network four times as often."""
    rows = strategies(dp=8, ep=8)
    plain, once = (experts_on(top_k=8, stack=toy_stack(dispatcher=name)) for name in ("alltoall", "deepep"))
    crossing = 2 * 2 * TOKENS * WIDTH * 8 / 2 / NETWORK
    assert dispatch_seconds(rows, plain).forward == pytest.approx(crossing)
    assert dispatch_seconds(rows, once).forward == pytest.approx(crossing / 8 * 2 * (1 - 0.5**8))


def test_a_router_limited_to_a_few_groups_sends_tokens_to_few_nodes():
    """Sixteen experts on four nodes: with eight copies a token meets 3.6 nodes, in two of four groups 1.99 of 2."""
    rows, stack = strategies(dp=16, ep=16), toy_stack(dispatcher="deepep")
    free, limited = (
        experts_on(gpus=16, num_experts=16, top_k=8, stack=stack, **more)
        for more in ({}, {"router_groups": 4, "router_group_top_k": 2})
    )
    crossing = 2 * 2 * TOKENS * WIDTH * 12 / 16 / NETWORK
    assert dispatch_seconds(rows, free).forward == pytest.approx(crossing * 4 * (1 - 0.75**8))
    assert dispatch_seconds(rows, limited).forward == pytest.approx(crossing * 2 * (1 - 0.5**8))
    plain = replace(limited, stack=toy_stack())
    assert dispatch_seconds(rows, plain).forward == pytest.approx(2 * 2 * TOKENS * WIDTH * 8 * 12 / 16 / NETWORK)


def test_groups_smaller_than_a_node_may_all_lie_in_one():
    """Two nodes of four groups each: a token's two groups lie in both of them in half the cases."""
    rows, stack = strategies(dp=8, ep=8), toy_stack(dispatcher="deepep")
    limits = {"router_groups": 8, "router_group_top_k": 2}
    scenario = experts_on(num_experts=16, top_k=4, stack=stack, **limits)
    crossing = 2 * 2 * TOKENS * WIDTH / 2 / NETWORK
    assert dispatch_seconds(rows, scenario).forward == pytest.approx(crossing * 2 * (1 - 0.5**2))


def test_tokens_sent_in_eight_bits_halve_the_way_there_and_not_the_way_back():
    narrow, wide = loaded(dispatch_bytes=1.0), loaded()
    assert dispatch_seconds(ROWS, narrow).forward == pytest.approx(0.75 * dispatch_seconds(ROWS, wide).forward)


def test_an_unknown_dispatcher_is_refused():
    with pytest.raises(ValueError, match="allgather"):
        toy_stack(dispatcher="carrier-pigeon")


def test_shared_experts_hide_the_traffic_that_they_run_beside():
    shared = {"num_shared_experts": 1, "shared_expert_ffn_hidden_size": 4096}
    apart, beside = (experts_on(stack=toy_stack(shared_expert_overlap=on), **shared) for on in (False, True))
    traffic, window = dispatch_seconds(ROWS, apart), shared_experts(ROWS, apart)
    slowed = 0.126 / 1.126
    hidden = np.minimum(traffic.forward, window.forward)
    assert expert_layer(ROWS, apart).ep.forward == pytest.approx(traffic.forward)
    assert expert_layer(ROWS, beside).ep.forward == pytest.approx(traffic.forward - hidden * (1 - slowed))
    seconds = row_seconds(ROWS, beside)
    assert seconds.forward - seconds.window.forward == pytest.approx(hidden)
    assert seconds.backward - seconds.window.backward == pytest.approx(np.minimum(traffic.backward, window.backward))


def test_the_router_multiplies_in_16_bit_and_moves_its_scores_in_fp32():
    device = toy_device().model_copy(update={"peak": {"bf16": PEAK, "fp8": 2 * PEAK, "fp4": 4 * PEAK}})
    scenario = replace(experts_on(group=toy_group(device=device)), precision="fp8")
    gate = router_seconds(np.array([float(TOKENS)]), scenario).forward
    values = 2 * (TOKENS * WIDTH + WIDTH * EXPERTS + TOKENS * EXPERTS)
    product = max(2 * TOKENS * WIDTH * EXPERTS / PEAK, values / MEMORY)
    assert gate == pytest.approx(product + SCORES * TOKENS * EXPERTS / MEMORY)


def test_every_expert_has_kernels_of_its_own_where_scales_are_found_anew():
    late = 1e-5

    def seconds(precision, rows=ROWS, **stack):
        device = toy_device(overhead=late).model_copy(update={"peak": {"bf16": PEAK, "fp8": 2 * PEAK, "fp4": 4 * PEAK}})
        model = with_experts(toy_model()).model_copy(update={"ffn_bias": False})
        scenario = toy_scenario(model=model, gpus=4, group=toy_group(device=device))
        scenario = replace(scenario, precision=precision)
        return small_kernels(rows, replace(scenario, stack=toy_stack(kernels_per_local_expert=7, **stack)))

    known, anew = seconds("fp8"), seconds("mxfp8")
    assert known.forward == seconds("bf16").forward == 0.0
    assert (anew.forward, anew.backward) == (pytest.approx(2 * 7 * late), pytest.approx(2 * 2 * 7 * late))
    assert seconds("mxfp8", strategies(dp=4, ep=2)).forward == pytest.approx(4 * 7 * late)
    assert seconds("mxfp8", expert_capacity=1.0).forward == pytest.approx(CAPACITY_SHARE * anew.forward)
    assert seconds("mxfp8", fused_experts=True).forward == 0.0


def test_every_expert_adds_its_bias_in_kernels_of_its_own_unless_all_is_fused():
    late, plain = 1e-5, with_experts(toy_model()).model_copy(update={"ffn_bias": False})
    biased = plain.model_copy(update={"ffn_bias": True})

    def seconds(model, rows=ROWS, precision="bf16", **stack):
        device = toy_device(overhead=late).model_copy(update={"peak": {"bf16": PEAK, "fp8": 2 * PEAK, "fp4": 4 * PEAK}})
        scenario = toy_scenario(model=model, gpus=4, group=toy_group(device=device), stack=toy_stack(**stack))
        return small_kernels(rows, replace(scenario, precision=precision))

    added = seconds(biased)
    assert (added.forward, added.backward) == (pytest.approx(2 * BIASED * late), pytest.approx(2 * 2 * BIASED * late))
    assert seconds(biased, strategies(dp=4, ep=2)).forward == pytest.approx(4 * BIASED * late)
    assert seconds(plain).forward == seconds(biased, precision="mxfp8", fused_experts=True).forward == 0.0
    assert seconds(biased, fused_experts=True).forward == added.forward  # there is no such operation in 16 bits


def test_biases_and_clamps_of_experts_are_passes_of_their_own_unless_all_is_fused():
    plain = with_experts(toy_model(gated_ffn=True))
    biased = plain.model_copy(update={"ffn_bias": True, "clamped_activation": True})
    more, less = traffic_of(on_toys(biased)), traffic_of(on_toys(plain.model_copy(update={"ffn_bias": False})))
    assert more[0] - less[0] == pytest.approx(BIAS[0] * WIDTH + CLAMP[0] * INNER)
    assert more[1] - less[1] == pytest.approx(BIAS[1] * WIDTH + CLAMP[1] * INNER)
    assert traffic_of(on_toys(biased, fused_experts=True)) == pytest.approx(more)
    fused, bare = (
        traffic_of(on_toys(model, "mxfp8", fused_experts=True))
        for model in (biased, plain.model_copy(update={"ffn_bias": False}))
    )
    assert fused == pytest.approx(bare)


def test_gradients_of_biases_that_spill_slow_the_kernel_they_are_summed_in_and_no_other():
    """Kernel: rows * inner * width multiplications at 200 TFLOP/s, and 10 bytes a gated value at 1 TB/s."""
    biased = with_experts(toy_model(gated_ffn=True)).model_copy(update={"ffn_bias": True})

    def slowed(model=biased, precision="mxfp8", fused_experts=True, **stack):
        on = [on_toys(model, precision, fused_experts=fused_experts, bias_gradient_slowdown=s, **stack) for s in (1, 9)]
        usual, spilling = (grouped_products(ROWS, scenario) for scenario in on)
        assert spilling.forward == usual.forward
        return float(spilling.backward[0] - usual.backward[0])

    arrived = TOKENS * TOP_K
    assert slowed() == pytest.approx(8 * (2 * arrived * INNER * WIDTH / (2 * PEAK) + 10 * INNER * arrived / MEMORY))
    assert slowed(biased.model_copy(update={"ffn_bias": False})) == 0.0
    assert slowed(precision="bf16") == slowed(fused_experts=False) == slowed(adapters=Adapters(rank=8)) == 0.0


def test_few_rows_an_expert_wait_for_the_buffer_that_weight_gradients_are_added_to():
    """Each of 8 experts gets 256 tokens: operands in two bytes, a buffer of four bytes read and written."""
    scenario = experts_on(group=toy_group(device=toy_device(peak=1e30)))
    seconds = grouped_products(strategies(dp=8), scenario)
    buffer = 2 * 4 * WIDTH * INNER
    operands = 2 * 256 * (WIDTH + INNER)
    assert seconds.backward - seconds.forward == pytest.approx(8 * 2 * (buffer + operands) / MEMORY)


@pytest.mark.parametrize("clamped", [False, True])
def test_an_activation_that_is_repeated_moves_at_the_rate_it_moved_at_before(clamped):
    plain = with_experts(toy_model(gated_ffn=True)).model_copy(update={"ffn_bias": False})
    scenario = on_toys(plain.model_copy(update={"clamped_activation": clamped}), dispatcher="deepep")
    activation = (6 + CLAMP[0] * clamped) * INNER
    share = activation / (PERMUTE * WIDTH + activation)
    assert activation_seconds(ROWS, scenario) == pytest.approx(share * expert_streams(ROWS, scenario).forward)


def floor(precision="bf16", rows=ROWS, **changes):
    stack = {
        "launch_time": "1 ms",
        "kernels_per_layer": 10,
        "kernels_per_expert_layer": 100,
        "kernels_per_local_expert": 3,
    }
    return (
        launch_floor(rows, replace(on_toys(**(stack | changes)), precision=precision), Kind("global", "experts"))[0]
        * 1e3
    )


def test_a_graph_of_parts_of_a_layer_leaves_the_rest_to_the_host():
    assert floor() == pytest.approx(110)
    assert floor(cuda_graph_scope=("attn",)) == pytest.approx(100)
    assert floor(cuda_graph_scope=("moe_router",)) == pytest.approx(10 + 100 * (1 - CAPTURED["moe_router"]))
    assert floor(cuda_graph_scope=("attn", "moe_router", "moe_preprocess")) == pytest.approx(
        100 * (1 - sum(CAPTURED.values()))
    )
    assert floor(cuda_graph_scope=("attn", "moe")) == 0.0
    assert floor(cuda_graphs=True) == 0.0


def test_interleaved_passes_launch_more_of_whatever_no_graph_replays():
    assert floor(interleaved_launches=1.5) == pytest.approx(165)
    assert floor(interleaved_launches=1.5, cuda_graph_scope=("attn",)) == pytest.approx(150)
    assert floor(interleaved_launches=1.5, cuda_graphs=True) == 0.0


def test_block_scaled_formats_launch_more_for_every_expert_of_the_rank():
    assert "mxfp8" in CURRENT_SCALES
    assert floor("mxfp8") - floor() == pytest.approx(2 * 3)
    assert floor("mxfp8", strategies(dp=8, ep=8)) - floor() == pytest.approx(3)


@given(ep=st.sampled_from([1, 2, 4]), graphs=st.sets(st.sampled_from(["attn", "moe_router", "moe_preprocess", "moe"])))
def test_no_graph_ever_adds_launches(ep, graphs):
    rows = strategies(dp=4, ep=ep)
    assert 0.0 <= floor("mxfp8", rows, cuda_graph_scope=tuple(sorted(graphs))) <= floor("mxfp8", rows)


def test_experts_of_layers_that_predict_further_tokens_are_reduced_and_stepped_too():
    rows = strategies(pp=2, dp=4, ep=2, zero_stage=0, schedule=ONE_F_ONE_B, num_microbatches=2)
    none = Passes(np.zeros(1), np.zeros(1))
    plain, ahead = (toy_scenario(model=with_experts(toy_model(), mtp_layers=n), gpus=8) for n in (0, 1))
    assert step_traffic(rows, ahead, none).gradients > 1.2 * step_traffic(rows, plain, none).gradients
    assert optimizer_seconds(rows, ahead) > 1.2 * optimizer_seconds(rows, plain)


def test_all_micro_batches_of_gpipe_wait_at_the_layers_that_predict_further_tokens():
    model = with_experts(toy_model(), mtp_layers=1)
    scenario = toy_scenario(model=model, gpus=8)

    def activations(name):
        rows = strategies(pp=2, dp=4, ep=2, schedule=SCHEDULE_NAMES.index(name), num_microbatches=4)
        memory = row_bytes(rows, scenario)
        split = row_assignment(strategies(pp=2), 8)
        held = footprint(rows, memory, scenario, row=0, layers=split.layers, recomputed=split.recomputed)
        return (held.activations[-1] - memory.passing[0]) / memory.stored[0]

    assert activations("1f1b") == pytest.approx(4 + 1)
    assert activations("gpipe") == pytest.approx(4 * (4 + 1))


def test_a_head_half_as_wide_runs_at_the_share_of_the_rate_that_was_measured():
    device = toy_device()
    fit = AttentionFit(efficiency=1.0, narrow=0.5, overhead="0 s", backward_efficiency_ratio=1.0, source="toy")
    kernels = device.kernels.model_copy(update={"attention": {"flash-2": fit}})
    group = toy_group(device=device.model_copy(update={"kernels": kernels}))
    from costmodels.layer.attention import attention_core

    wide, half, quarter = (toy_model(num_heads=1024 // d, head_dim=d) for d in (128, 64, 32))
    rows = strategies()
    times = [attention_core(rows, toy_scenario(model=m, group=group)).forward[0] for m in (wide, half, quarter)]
    assert times == pytest.approx([times[0], 2 * times[0], 4 * times[0]])


def test_tensor_ranks_that_send_to_neighbours_pay_for_the_busiest_rank():
    rows = strategies(tp=2, dp=2, ep=4, sequence_parallel=1)
    even, uneven = loaded(), loaded(expert_imbalance=1.25)
    assert dispatch_seconds(rows, even).forward == pytest.approx(
        2 * all_to_all(2 * TOKENS / 2 * TOP_K * WIDTH, 4, NODE)
    )
    assert dispatch_seconds(rows, uneven).forward == pytest.approx(1.25 * dispatch_seconds(rows, even).forward)
