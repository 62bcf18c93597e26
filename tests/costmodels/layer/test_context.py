"""What context ranks exchange, at which shapes their attention runs, and what they hold meanwhile."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.layer.attention import attention_core
from costmodels.layer.blocks import layer_seconds
from costmodels.layer.context import (
    context_parallel,
    exchange_bytes,
    exchanged_key_values,
    near_ranks,
    repeated_bytes,
    ring_ranks,
    ulysses_ranks,
)
from costmodels.layer.forward_backward import Passes
from costmodels.memory.peaks import momentary_bytes, standing_bytes
from costmodels.memory.rows import row_bytes
from costmodels.names import CP_KINDS
from costmodels.strategy import strategies
from tests.drawn import drawn_scenarios
from tests.each import each
from tests.scenarios import (
    toy_device,
    toy_group,
    toy_link,
    toy_model,
    toy_scenario,
    toy_stack,
    toy_tiers,
    with_latent_attention,
)

P2P, A2A, GATHER, BOTH = range(len(CP_KINDS))
WIDTH, TOKENS = 1024, 1024
"""Of the toy model: hidden size, sequence."""
INSTANT = Passes(np.zeros(1), np.zeros(1))


def exchanged(kind, cp, *, scenario=None, attention=INSTANT, **axes):
    rows = strategies(cp=cp, cp_kind=kind, **axes)
    return context_parallel(rows, scenario or toy_scenario(), attention)


def test_an_all_to_all_moves_queries_keys_values_and_outputs_and_their_gradients_back():
    each = 2 * TOKENS / 4 * WIDTH * 3 / 4 / 100e9
    seconds = exchanged(A2A, 4)
    assert seconds.forward == pytest.approx(4 * each)
    assert seconds.backward == pytest.approx(4 * each)


def test_an_all_to_all_splits_its_heads_over_tensor_ranks_too():
    assert exchanged(A2A, 2, tp=2).forward == pytest.approx(4 * 2 * TOKENS / 2 * WIDTH / 2 / 2 / 100e9)


def test_few_keys_and_values_are_repeated_where_ranks_outnumber_them():
    """Two query groups of width 128 on four ranks: as many copies as make a head for each of them."""
    few = toy_scenario(model=toy_model(num_query_groups=2))
    queries, keys = (2 * TOKENS / 4 * width * 3 / 4 / 100e9 for width in (WIDTH, 4 * 128))
    assert exchanged(A2A, 4, scenario=few).forward == pytest.approx(2 * queries + 2 * keys)
    rows = strategies(cp=4, cp_kind=A2A)
    assert exchanged_key_values(rows, few) == pytest.approx(2 * TOKENS * 2 * 128)
    assert repeated_bytes(rows, few) == pytest.approx(2 * TOKENS * 2 * 128 - 2 * TOKENS / 4 * 2 * 256)
    assert repeated_bytes(rows, toy_scenario()) == pytest.approx(0.0)


def test_all_keys_and_values_are_gathered_forward_and_backward_and_their_gradients_scattered():
    once = 2 * TOKENS * 2 * WIDTH * 3 / 4 / 100e9
    seconds = exchanged(GATHER, 4)
    assert seconds.forward == pytest.approx(once)
    assert seconds.backward == pytest.approx(2 * once)


def test_nothing_hides_a_collective_but_what_the_stack_says_of_it():
    long = Passes(np.ones(1), np.ones(1))
    half = toy_scenario(stack=toy_stack(overlap={"cp_collective": 0.5}))
    for kind in (A2A, GATHER):
        alone = exchanged(kind, 4).forward
        assert exchanged(kind, 4, attention=long).forward == alone
        assert exchanged(kind, 4, scenario=half).forward == pytest.approx(alone / 2)
    assert exchanged(P2P, 4, attention=long).forward == pytest.approx(0.3 * exchanged(P2P, 4).forward)


def test_the_mixture_exchanges_heads_inside_a_node_and_passes_keys_between_nodes():
    """Eight ranks on two nodes of four: u = 4 in a node, a ring of two groups over the network."""
    rows, scenario = strategies(cp=8, cp_kind=BOTH), toy_scenario()
    assert ulysses_ranks(rows, scenario).tolist() == [4]
    assert ring_ranks(rows, scenario).tolist() == [2]
    inside = 4 * 2 * TOKENS / 8 * WIDTH * 3 / 4 / 100e9
    between = 2 * TOKENS / 8 * 2 * WIDTH / 10e9
    assert exchanged(BOTH, 8).forward == pytest.approx(inside + between)


@each(
    ("tp", "cp", "model", "near"),
    [
        (1, 8, {}, 4),
        (2, 8, {}, 2),
        (4, 8, {}, 1),
        (1, 8, {"num_query_groups": 2}, 2),
        (1, 2, {}, 2),
        (1, 6, {"num_heads": 6, "hidden_size": 768}, 2),
    ],
)
def test_near_ranks_share_a_node_and_divide_the_heads(tp, cp, model, near):
    assert near_ranks(np.array([cp]), np.array([tp]), toy_scenario(model=toy_model(**model))).tolist() == [near]


def test_repeating_keys_and_values_lets_more_ranks_exchange():
    stack = toy_stack(repeats_key_values=True)
    scenario = toy_scenario(model=toy_model(num_query_groups=2), stack=stack)
    assert near_ranks(np.array([8]), np.array([1]), scenario).tolist() == [4]


def test_every_kind_multiplies_as_much_as_the_others():
    """Without losses of small kernels, and with instant memory, the causal half is shared evenly."""
    scenario = toy_scenario(group=toy_group(device=toy_device(bandwidth=1e30)))
    whole = attention_core(strategies(), scenario)
    for kind in range(len(CP_KINDS)):
        part = attention_core(strategies(cp=4, cp_kind=kind), scenario)
        assert part.forward == pytest.approx(whole.forward / 4)
        assert part.backward == pytest.approx(whole.backward / 4)


def test_a_ring_calls_its_kernel_at_every_step_and_gathered_keys_are_attended_to_in_two_calls():
    slow, fast = (
        toy_scenario(group=toy_group(device=toy_device(bandwidth=1e30, overhead=late))) for late in (1e-3, 0.0)
    )
    rows = strategies(cp=4, cp_kind=[P2P, A2A, GATHER, BOTH])
    late = attention_core(rows, slow).forward - attention_core(rows, fast).forward
    assert late == pytest.approx(1e-3 * np.array([4, 1, 2, 1]))


def test_short_blocks_of_a_ring_fill_the_device_less():
    device = toy_device(bandwidth=1e30, occupancy=1.0)
    scenario = toy_scenario(group=toy_group(device=device))
    ring, whole = attention_core(strategies(cp=4, cp_kind=[P2P, A2A]), scenario).forward
    tiles = 128 * 100 / (8 * TOKENS / 4)
    assert ring / whole == pytest.approx((1 + tiles + 3 * (1 + 2 * tiles)) / 4 / (1 + tiles))


def test_steps_of_a_ring_are_added_up_through_memory():
    seconds = [attention_core(strategies(cp=4), toy_scenario(group=toy_group(device=toy_device(bandwidth=b))))
               for b in (1e12, 1e30)]  # fmt: skip
    merged = 3 * 3 * 2 * TOKENS / 4 / 2 / 1e12
    assert seconds[0].forward - seconds[1].forward == pytest.approx(merged * WIDTH)
    assert seconds[0].backward - seconds[1].backward == pytest.approx(merged * 3 * WIDTH)


def test_a_rank_holds_two_buffers_a_second_copy_or_everything():
    rows = strategies(cp=4, cp_kind=[P2P, A2A, GATHER])
    keys = 2 * TOKENS / 4 * 2 * WIDTH
    assert exchange_bytes(rows, toy_scenario()) == pytest.approx([4 * keys, 1.5 * keys, 2 * 4 * keys])
    assert exchange_bytes(strategies(cp_kind=[P2P, GATHER]), toy_scenario()).tolist() == [0.0, 0.0]
    memory = row_bytes(rows, toy_scenario())
    moment = momentary_bytes(rows, toy_scenario()) + standing_bytes(rows, toy_scenario())
    assert memory.everywhere == pytest.approx(exchange_bytes(rows, toy_scenario()) + moment)


def test_latent_attention_passes_whole_keys_and_values():
    model = with_latent_attention(toy_model())
    keys = 2 * TOKENS / 2 * 8 * (192 + 128)
    assert exchanged_key_values(strategies(cp=2), toy_scenario(model=model)) == pytest.approx(keys)


def test_a_ring_is_as_slow_as_its_slowest_hop_and_an_all_to_all_as_its_slowest_tier():
    tiers = toy_tiers(inner=toy_link(bandwidth=1e14))
    scenario = toy_scenario(group=toy_group(tiers=tiers))
    ring = 7 * 2 * TOKENS / 8 * 2 * WIDTH / 10e9
    every = 4 * 2 * TOKENS / 8 * WIDTH * 4 / 8 / 10e9
    assert exchanged(P2P, 8, scenario=scenario).forward == pytest.approx(ring)
    assert exchanged(A2A, 8, scenario=scenario).forward == pytest.approx(every)


@settings(max_examples=60, deadline=None)
@given(drawn_scenarios(gpus=(8, 16)), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]))
def test_one_context_rank_costs_the_same_whatever_its_kind(scenario, tp, micro):
    rows = strategies(tp=tp, cp_kind=range(len(CP_KINDS)), micro_batch_size=micro)
    layer, memory = layer_seconds(rows, scenario), row_bytes(rows, scenario)
    for column in (layer.attention.forward, layer.attention.backward, layer.cp.forward, memory.everywhere):
        assert np.unique(column).size == 1


@settings(max_examples=60, deadline=None)
@given(drawn_scenarios(gpus=(8, 16)), st.sampled_from([1, 2]), st.sampled_from([2, 4, 8]))
def test_no_kind_costs_less_than_nothing(scenario, tp, cp):
    rows = strategies(tp=tp, cp=cp, cp_kind=range(len(CP_KINDS)))
    layer, memory = layer_seconds(rows, scenario), row_bytes(rows, scenario)
    for column in (layer.cp.forward, layer.cp.backward, layer.attention.forward, memory.stored, memory.everywhere):
        assert np.isfinite(column).all()
        assert (column >= 0).all()
