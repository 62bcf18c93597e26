"""Layers with experts and latent attention: values counted by hand, one price for one row and many, physics."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from costmodels.iteration import row_seconds
from costmodels.layer.attention import attention_matmuls
from costmodels.layer.blocks import layer_seconds
from costmodels.layer.experts import (
    dispatch_seconds,
    expert_layer,
    grouped_products,
    mask_products,
    shared_experts,
)
from costmodels.layer.forward_backward import Passes
from costmodels.layer.tensor_parallel import tensor_parallel
from costmodels.layer.vocabulary import further_token_projection
from costmodels.layout.layers_by_kind import stage_layers
from costmodels.layout.parameters_per_rank import expert_parameters_per_rank, layer_parameters_per_rank
from costmodels.layout.placement import expert_data_group
from costmodels.memory.even_peaks import even_peaks
from costmodels.memory.footprint import footprint
from costmodels.memory.rows import row_bytes
from costmodels.model.flops import kind_matmul_weights
from costmodels.model.layer_kinds import EXPERTS as EXPERT_LAYER
from costmodels.model.parameters import expert_parameters, parameters
from costmodels.pricing import price, price_strategy, row_assignment
from costmodels.step.traffic import step_traffic
from costmodels.strategy import strategies
from tests.costmodels.priced import check_peaks, check_prices, quotes_that_add_up
from tests.costmodels.test_iteration import FILLED, IMPROVEMENTS, assert_no_slower, hides_all_it_could
from tests.drawn import drawn_expert_models, drawn_scenarios
from tests.scenarios import (
    ONE_F_ONE_B,
    random_rows,
    toy_device,
    toy_group,
    toy_model,
    toy_scenario,
    toy_stack,
    with_experts,
)

PEAK, NODE, NETWORK = 100e12, 100e9, 10e9
"""FLOP/s of a toy device, bytes/s of its links inside a node and between nodes."""
TOKENS, WIDTH, INNER, EXPERTS, TOP_K = 1024, 1024, 512, 8, 2
"""Of one sequence of the toy model with experts."""
MODEL = with_experts(toy_model())
ARITHMETIC = toy_group(device=toy_device(bandwidth=1e30))
"""Machines on which arithmetic alone takes time."""
INSTANT = Passes(np.zeros(1), np.zeros(1))
SEEDS = st.integers(0, 2**32 - 1)
SCENARIOS = drawn_scenarios(gpus=(4, 8, 16), models=drawn_expert_models)


def experts_on(*, gpus=8, group=None, stack=None, **changes):
    return toy_scenario(model=with_experts(toy_model(), **changes), gpus=gpus, group=group, stack=stack)


def all_to_all(size, ranks, rate):
    return size * (ranks - 1) / ranks / rate


@pytest.mark.parametrize(("gated", "matrices"), [(False, 2), (True, 3)])
@pytest.mark.parametrize(("ep", "etp"), [(1, 1), (8, 1), (2, 4)])
def test_experts_take_two_flops_a_weight_and_routed_token_however_they_are_spread(gated, matrices, ep, etp):
    model = with_experts(toy_model(gated_ffn=gated))
    rows = strategies(tp=4, dp=2, ep=ep, etp=etp, sequence_parallel=1)
    seconds = grouped_products(rows, toy_scenario(model=model, group=ARITHMETIC))
    flops = 2 * (TOKENS / 4 * TOP_K) * matrices * WIDTH * INNER
    assert seconds.forward == pytest.approx(flops / PEAK)
    assert seconds.backward == pytest.approx(2 * flops / PEAK)


def test_frozen_experts_have_no_gradients_of_weights():
    stack = toy_stack(adapters={"rank": 8, "modules": ["linear_qkv"]})
    seconds = grouped_products(strategies(dp=8), experts_on(group=ARITHMETIC, stack=stack))
    assert seconds.backward == pytest.approx(seconds.forward)


@pytest.mark.parametrize(("gated", "matrices"), [(False, 2), (True, 3)])
def test_shared_experts_take_two_flops_a_weight_and_token(gated, matrices):
    shared = {"num_shared_experts": 1, "shared_expert_ffn_hidden_size": INNER}
    model = with_experts(toy_model(gated_ffn=gated), **shared)
    seconds = shared_experts(strategies(tp=4, sequence_parallel=1), toy_scenario(model=model, group=ARITHMETIC))
    assert seconds.forward == pytest.approx(2 * TOKENS * matrices * WIDTH * INNER / 4 / PEAK)


def test_few_rows_an_expert_lose_arithmetic_rate_and_fewer_experts_a_rank_win_it_back():
    """Of 2048 routed tokens each of 8 experts gets 256, on two ranks each of 4 gets 512: 1 + 128 / rows."""
    group = toy_group(device=toy_device(bandwidth=1e30, rows_half=128.0))
    eight, four = grouped_products(strategies(dp=8, ep=[1, 2]), experts_on(group=group)).forward
    plain = 2 * TOKENS * TOP_K * 2 * WIDTH * INNER / PEAK
    assert eight == pytest.approx(plain * 1.5)
    assert four == pytest.approx(plain * 1.25)


def test_every_expert_of_a_rank_is_launched_for_each_of_two_products():
    group = toy_group(device=toy_device(bandwidth=1e30, peak=1e30, group="1 ms"))
    seconds = grouped_products(strategies(dp=8, ep=[1, 2, 8]), experts_on(group=group))
    assert seconds.forward == pytest.approx(2e-3 * np.array([8, 4, 1]))
    assert seconds.backward == pytest.approx(4e-3 * np.array([8, 4, 1]))


def test_where_arithmetic_is_free_every_expert_s_weights_are_still_read():
    """Of 8 experts with 256 rows each: tokens in, weights and tokens out of both products, two bytes each."""
    seconds = grouped_products(strategies(dp=8), experts_on(group=toy_group(device=toy_device(peak=1e30))))
    values = 2 * (256 * WIDTH + WIDTH * INNER + 256 * INNER)
    assert seconds.forward == pytest.approx(8 * 2 * values / 1e12)


def test_all_wait_for_the_busiest_expert_rank_unless_it_is_the_only_one():
    rows = strategies(dp=4, ep=[1, 4])
    even = experts_on(group=ARITHMETIC)
    uneven = replace(even, stack=toy_stack(expert_imbalance=1.25))
    assert grouped_products(rows, uneven).forward == pytest.approx(
        grouped_products(rows, even).forward * np.array([1.0, 1.25])
    )
    assert dispatch_seconds(rows, uneven).forward == pytest.approx(
        dispatch_seconds(rows, even).forward * np.array([1.0, 1.25])
    )


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_dispatch_and_combine_send_every_routed_token_to_its_expert_and_back(top_k):
    """Tokens x top_k x width in two bytes, 3 of 4 parts of it to other ranks, twice a pass."""
    seconds = dispatch_seconds(strategies(dp=4, ep=4), experts_on(top_k=top_k))
    once = all_to_all(2 * TOKENS * top_k * WIDTH, 4, NODE)
    assert seconds.forward == pytest.approx(2 * once)
    assert seconds.backward == pytest.approx(2 * once)


def test_one_expert_rank_dispatches_nothing():
    exposed = dispatch_seconds(strategies(dp=[1, 8], ep=1), experts_on())
    assert [*exposed.forward, *exposed.backward] == [0.0] * 4


def test_ranks_of_other_nodes_get_their_half_of_the_tokens_over_the_network():
    seconds = dispatch_seconds(strategies(dp=8, ep=8), experts_on())
    assert seconds.forward == pytest.approx(2 * 2 * TOKENS * TOP_K * WIDTH / 2 / NETWORK)


def test_tensor_ranks_each_send_their_slice_of_the_sequence():
    rows = strategies(tp=2, dp=2, ep=4, sequence_parallel=1)
    seconds = dispatch_seconds(rows, experts_on())
    assert seconds.forward == pytest.approx(2 * all_to_all(2 * TOKENS / 2 * TOP_K * WIDTH, 4, NODE))


def test_ranks_that_split_an_expert_gather_each_other_s_tokens():
    """What arrives at two ranks, twice as much, is gathered before the expert and scattered behind it."""
    rows = strategies(tp=2, ep=1, etp=2, sequence_parallel=1)
    size = 2 * TOKENS / 2 * TOP_K * WIDTH
    assert dispatch_seconds(rows, experts_on()).forward == pytest.approx(2 * 2 * size / 2 / NODE)


def test_experts_behind_a_narrow_projection_are_sent_narrow_tokens():
    rows = strategies(dp=4, ep=4)
    wide, narrow = dispatch_seconds(rows, experts_on()), dispatch_seconds(rows, experts_on(latent_size=WIDTH // 4))
    assert narrow.forward == pytest.approx(wide.forward / 4)


def test_what_the_stack_hides_of_dispatch_is_not_exposed():
    rows = strategies(dp=4, ep=4)
    hidden = experts_on(stack=toy_stack(overlap={"ep": 0.25, "paired_passes": True}, communication_efficiency=0.5))
    assert dispatch_seconds(rows, hidden).forward == pytest.approx(
        dispatch_seconds(rows, experts_on()).forward * 0.25 / 0.5
    )


def test_masks_multiply_every_token_of_a_sequence_with_every_place_of_its_experts():
    model, rows = with_experts(toy_model()), strategies(micro_batch_size=2)
    arithmetic = toy_group(device=toy_device(bandwidth=1e30))
    none, some, more = (
        toy_scenario(model=model, group=arithmetic, stack=toy_stack(dispatch_masks=on, expert_capacity=capacity))
        for on, capacity in ((False, 1.0), (True, 1.0), (True, 2.0))
    )
    assert mask_products(rows, none).forward == 0.0
    once, twice = mask_products(rows, some), mask_products(rows, more)
    rate = some.rates.head.efficiency * some.rates.head_peak
    products = 2 * 2 * 2 * (model.moe.top_k * 1024) * 1024 * model.hidden_size / rate
    assert once.forward == pytest.approx(products, rel=0.2)
    assert once.backward == pytest.approx(1.5 * once.forward)
    assert 1.8 < twice.forward / once.forward < 2.0 + 1e-9
    added = expert_layer(rows, some).matmul + -1.0 * expert_layer(rows, none).matmul
    assert added.forward == pytest.approx(once.forward)


def test_router_and_shared_experts_multiply_every_token():
    shared = {"num_shared_experts": 1, "shared_expert_ffn_hidden_size": 256}
    scenario = experts_on(group=ARITHMETIC, **shared)
    layer, attention = expert_layer(strategies(), scenario), attention_matmuls(strategies(), scenario)
    weights = kind_matmul_weights(scenario.model, EXPERT_LAYER)
    assert layer.matmul.forward + attention.forward == pytest.approx(2 * weights * TOKENS / PEAK)
    assert weights == 4 * WIDTH**2 + EXPERTS * WIDTH + 2 * WIDTH * (TOP_K * INNER + 256)


def test_routed_experts_save_the_feed_forward_network_s_half_of_the_tensor_parallel_traffic():
    rows = strategies(tp=4, sequence_parallel=1)
    shared = {"num_shared_experts": 1, "shared_expert_ffn_hidden_size": 256}
    usual = tensor_parallel(rows, toy_scenario()).forward
    assert layer_seconds(rows, experts_on()).tp.forward == pytest.approx(usual / 2)
    assert layer_seconds(rows, experts_on(**shared)).tp.forward == pytest.approx(usual)


def test_experts_of_a_rank_fall_with_expert_ranks_and_with_tensor_ranks_inside_an_expert():
    rows = strategies(tp=4, dp=2, ep=[1, 2, 8, 2], etp=[1, 1, 1, 4])
    held = expert_parameters_per_rank(rows, experts_on())
    assert held == pytest.approx(EXPERTS * expert_parameters(MODEL) / np.array([1, 2, 8, 8]))
    assert expert_parameters(MODEL) == (2 * WIDTH * INNER + INNER + WIDTH)


def test_the_average_layer_holds_the_experts_of_the_share_of_layers_that_have_them():
    half = experts_on(moe_every=2)
    assert half.model.num_moe_layers == 4
    assert expert_parameters_per_rank(strategies(), half) == pytest.approx(
        expert_parameters_per_rank(strategies(), experts_on()) / 2
    )


def test_a_single_rank_holds_all_of_a_model_with_experts_and_dense_layers():
    scenario = experts_on(moe_every=2, num_shared_experts=1, shared_expert_ffn_hidden_size=256)
    memory = row_bytes(strategies(), scenario)
    layer = memory.layer_parameters + memory.expert_parameters
    ends = memory.embedding_parameters + memory.head_parameters
    assert 8 * layer + ends == pytest.approx(parameters(scenario.model))


@given(*(st.sampled_from([1, 2, 4, 8]) for _ in range(5)))
def test_what_expert_ranks_leave_of_tensor_context_and_data_ranks_holds_the_same_experts(tp, cp, dp, ep, etp):
    assume((tp * cp * dp) % (ep * etp) == 0)
    group = expert_data_group(strategies(tp=tp, cp=cp, dp=dp, ep=ep, etp=etp))
    assert group.size.tolist() == [tp * cp * dp // (ep * etp)]


def test_the_same_experts_are_as_far_apart_as_the_rank_order_puts_data_ranks():
    """Two tensor ranks hold an expert's halves, four data ranks repeat them: two apart, or behind two stages four."""
    group = expert_data_group(strategies(tp=2, pp=2, dp=4, etp=2, schedule=ONE_F_ONE_B, rank_order=[0, 1]))
    assert group.size.tolist() == [4, 4]
    assert group.ranks_within(8).tolist() == [4, 2]


def test_states_of_experts_are_sharded_over_the_ranks_that_hold_the_same_ones():
    """16 data ranks in 8 groups of experts: two ranks share 12 bytes, and sixteen share those of the rest."""
    memory = row_bytes(strategies(dp=16, ep=[1, 8, 8], zero_stage=[1, 1, 0], sharding_degree=[16, 16, 1]), experts_on())
    assert memory.expert_state.optimizer == pytest.approx([12 / 16, 12 / 2, 12])
    assert memory.state.optimizer == pytest.approx([12 / 16, 12 / 16, 12])
    assert memory.expert_state.weights == pytest.approx([2, 2, 2])


def test_gradients_of_experts_are_reduced_among_the_ranks_that_hold_the_same_ones():
    """Eight ranks, ep 4: pairs four ranks apart, thus across nodes; with ep 8 nobody holds the same."""
    stack = toy_stack(reduce_bytes=4)
    scenario = experts_on(stack=stack)
    alone, pairs = (step_traffic(strategies(dp=8, ep=ep), scenario, INSTANT).gradients for ep in (8, 4))
    size = 4 * 8 * EXPERTS * expert_parameters(MODEL) / 4
    assert pairs - alone == pytest.approx(2 * size / 2 / NETWORK)


def test_sharded_weights_of_experts_are_gathered_among_the_ranks_that_hold_the_same_ones():
    """Of 4 ranks two hold the same experts; every layer is gathered forward and backward, at instant memory."""
    stack, group = toy_stack(zero_stages=(3,), reduce_bytes=4), toy_group(device=toy_device(bandwidth=1e30))
    rows = strategies(dp=4, ep=2, zero_stage=3, sharding_degree=4)
    scenario = experts_on(gpus=4, stack=stack, group=group)
    few = replace(scenario, model=scenario.model.model_copy(update={"num_layers": 4}))
    ends, traffic = (step_traffic(rows, one, INSTANT) for one in (few, scenario))  # embedding and head travel in both
    layer = layer_parameters_per_rank(rows, scenario)
    experts = EXPERTS * expert_parameters(MODEL) / 2
    gather = all_to_all(2 * layer, 4, NODE) + all_to_all(2 * experts, 2, NODE)
    assert traffic.parameters - ends.parameters == pytest.approx(4 * gather)
    assert traffic.gradients - ends.gradients == pytest.approx(4 * (gather + 2 * gather))


def test_dense_gradients_and_those_of_experts_hide_behind_the_same_computation_once():
    """A window just long enough for one of the two leaves the other exposed."""
    overlap = toy_stack(overlap_grad_reduce=True, bucket_exposed=0.0, compute_slowdown=0.0)
    rows, scenario = strategies(dp=8, ep=2), experts_on(stack=overlap)
    shown = step_traffic(rows, replace(scenario, stack=toy_stack()), INSTANT).gradients[0]
    half = Passes(np.zeros(1), np.array([shown / 2 / 8]))
    assert step_traffic(rows, scenario, half).gradients == pytest.approx(shown / 2)


def test_a_further_token_costs_a_layer_its_projection_and_a_pass_of_the_head_on_the_last_stage():
    rows = strategies(pp=2, dp=4, ep=4, schedule=ONE_F_ONE_B)
    plain, ahead = (row_seconds(rows, experts_on(mtp_layers=n)) for n in (0, 1))
    assert ahead.layer == pytest.approx(plain.layer)
    joined = further_token_projection(rows, experts_on(mtp_layers=1))
    assert ahead.head == pytest.approx(2 * plain.head + plain.layer + joined.forward + joined.backward)
    assert ahead.embedding == pytest.approx(plain.embedding)


def test_a_layer_for_a_further_token_holds_its_experts_and_activations_on_the_last_stage():
    rows, split = strategies(pp=2, dp=4, ep=4, schedule=ONE_F_ONE_B), row_assignment(strategies(pp=2), 8)
    stages = []
    for n in (0, 1):
        scenario = experts_on(mtp_layers=n)
        memory = row_bytes(rows, scenario)
        stages.append(footprint(rows, memory, scenario, row=0, layers=split.layers, recomputed=split.recomputed))
    plain, ahead = stages
    layer = memory.layer_parameters[0] + 2 * WIDTH**2 + 3 * 2 * WIDTH
    added = 2 * (layer + EXPERTS * expert_parameters(MODEL) / 4)
    assert (ahead.weights - plain.weights).tolist() == pytest.approx([0.0, added])
    assert (ahead.activations - plain.activations).tolist() == pytest.approx([0.0, memory.stored[0]])


def test_a_model_none_of_whose_layers_has_experts_costs_what_a_dense_one_does():
    """Exactly, in seconds and in bytes: the share of layers with experts is 0, not merely small."""
    none = MODEL.model_copy(update={"moe": MODEL.moe.model_copy(update={"dense_layers": 8})})
    assert none.num_moe_layers == 0
    dense, hollow = toy_scenario(), toy_scenario(model=none)
    rows = random_rows(dense, 60, seed=1)
    assert price(rows, hollow).iteration.tolist() == price(rows, dense).iteration.tolist()
    held = [even_peaks(rows, row_bytes(rows, scenario), 8).tolist() for scenario in (hollow, dense)]
    assert held[0] == held[1]


@settings(max_examples=60, deadline=None)
@given(SCENARIOS, SEEDS)
def test_the_price_of_many_rows_with_experts_is_the_quote_of_each(scenario, seed):
    check_prices(random_rows(scenario, 8, seed), scenario)


@settings(max_examples=60, deadline=None)
@given(SCENARIOS, SEEDS)
def test_the_terms_of_any_split_with_experts_add_up_to_the_iteration(scenario, seed):
    for one, split, priced in quotes_that_add_up(scenario, seed, 8):
        slow, kinds = int(np.argmax(priced.stage_seconds)), priced.seconds.kinds
        held = stage_layers(one, scenario.depth, split.layers, split.recomputed)[0][slow]
        each = priced.seconds.layer_ep if kinds is None else kinds.each("layer_ep")[:, 0]
        batches = one.row(0)["num_microbatches"]
        assert priced.breakdown["ep"] == pytest.approx(batches * held @ each, rel=1e-12)


def test_expert_ranks_have_a_term_of_their_own():
    rows = strategies(dp=8, ep=[1, 8], num_microbatches=2)
    alone, spread = (
        price_strategy(rows, experts_on(), row_assignment(strategies(), 8), row=row).breakdown for row in (0, 1)
    )
    assert alone["ep"] == 0.0
    assert spread["ep"] == pytest.approx(2 * 8 * 4 * 2 * TOKENS * TOP_K * WIDTH / 2 / NETWORK)


@settings(max_examples=100, deadline=None)
@given(SCENARIOS, SEEDS)
def test_the_even_peak_with_experts_is_the_fullest_stage_of_the_even_split(scenario, seed):
    check_peaks(random_rows(scenario, 10, seed), scenario)


@settings(max_examples=60, deadline=None)
@given(SCENARIOS, SEEDS)
def test_more_experts_never_need_less_memory(scenario, seed):
    rows, moe = random_rows(scenario, 10, seed), scenario.model.moe
    twice = scenario.model.model_copy(update={"moe": moe.model_copy(update={"num_experts": 2 * moe.num_experts})})
    few, many = (
        even_peaks(rows, row_bytes(rows, each), each.model.num_layers)
        for each in (scenario, replace(scenario, model=twice))
    )
    assert (many >= few).all()
    assert (many > few)[rows.pp == 1].all()


@settings(max_examples=60, deadline=None)
@given(SCENARIOS, SEEDS)
def test_more_expert_ranks_never_hold_more_weights(scenario, seed):
    rows = random_rows(scenario, 10, seed)
    alone = replace(rows, ep=np.ones_like(rows.ep), etp=np.ones_like(rows.etp))
    assert (expert_parameters_per_rank(rows, scenario) <= expert_parameters_per_rank(alone, scenario)).all()


@pytest.mark.parametrize("improvement", IMPROVEMENTS.values(), ids=IMPROVEMENTS)
@settings(max_examples=30, deadline=None)
@given(SCENARIOS, SEEDS, st.sampled_from([1.1, 2.0, 100.0]))
def test_a_better_machine_never_trains_experts_slower(improvement, scenario, seed, factor):
    rows = random_rows(scenario, 20, seed)
    rows = rows.take(~np.isin(rows.schedule, FILLED))  # their bubble grows where weight gradients shrink
    before, after = price(rows, scenario), price(rows, improvement(scenario, factor))
    # Traffic hides behind the stage with the most parameters, which need not be the slowest.
    assert_no_slower(before, after, hides_all_it_could(rows, scenario) & (rows.pp == 1))


@settings(max_examples=60, deadline=None)
@given(SCENARIOS, SEEDS)
def test_an_expert_layer_is_never_faster_than_its_flops_at_peak(scenario, seed):
    rows, model = random_rows(scenario, 20, seed), scenario.model
    share, shape = model.num_moe_layers / model.num_layers, model.moe
    weights = shape.top_k * shape.expert_ffn_hidden_size * model.expert_hidden_size * (model.ffn_branches + 1)
    tokens = rows.micro_batch_size * scenario.seq_length / (rows.cp * rows.tp)
    ideal = share * 2 * weights * tokens / scenario.group.accelerator.peak_rate("bf16")
    layer = layer_seconds(rows, scenario)
    assert (layer.compute.forward >= ideal * (1 - 1e-9)).all()
    assert (layer.compute.backward >= (1 if scenario.frozen else 2) * ideal * (1 - 1e-9)).all()
    assert np.isfinite(layer.ep.forward).all()
    assert (layer.ep.forward >= 0).all()
