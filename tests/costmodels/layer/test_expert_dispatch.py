"""How tokens travel to experts: sorted, padded, gathered, with the weights that go with them."""

from dataclasses import replace

import pytest

from costmodels.layer.experts import HYBRID_REACH, PAD, PERMUTE, SORT, dispatch_seconds, gathered_routes
from costmodels.strategy import strategies
from tests.costmodels.layer.test_expert_load import ROWS, loaded, on_toys, traffic_of
from tests.costmodels.layer.test_experts import (
    EXPERTS,
    INNER,
    NETWORK,
    NODE,
    TOKENS,
    TOP_K,
    WIDTH,
    all_to_all,
    experts_on,
)
from tests.scenarios import toy_stack


def test_what_is_dispatched_in_8_bits_comes_back_in_16_in_both_passes():
    rows = strategies(dp=4, ep=4)
    wide, narrow = (dispatch_seconds(rows, experts_on(stack=toy_stack(dispatch_bytes=n))) for n in (2.0, 1.0))
    assert narrow.forward == pytest.approx(wide.forward * 3 / 4)
    assert narrow.backward == pytest.approx(wide.backward * 3 / 4)


def test_a_plain_exchange_sorts_tokens_once_more_unless_a_rank_has_one_expert():
    scenario = on_toys(dispatcher="alltoall")
    several, single = traffic_of(scenario)[0], traffic_of(scenario, strategies(dp=8, ep=8))[0]
    assert several - single == pytest.approx(SORT * WIDTH)
    assert traffic_of(on_toys(dispatcher="deepep"))[0] == pytest.approx(single)
    assert single == pytest.approx(PERMUTE * WIDTH + 4 * INNER)


def test_reduced_precision_pads_tokens():
    wide, narrow = traffic_of(on_toys()), traffic_of(on_toys(precision="fp8"))
    assert narrow[0] - wide[0] == pytest.approx(PAD * WIDTH)
    assert narrow[1] - wide[1] == pytest.approx(PAD * WIDTH)


def test_dispatchers_that_permute_pad_in_passing_and_a_fixed_capacity_needs_no_padding():
    sent = {"dispatcher": "deepep"}
    assert traffic_of(on_toys(precision="fp8", **sent))[0] == pytest.approx(traffic_of(on_toys(**sent))[0])
    fixed = {"expert_capacity": 1.0}
    assert traffic_of(on_toys(precision="fp8", **fixed))[0] == pytest.approx(traffic_of(on_toys(**fixed))[0])


def test_what_is_sorted_and_padded_behind_a_plain_exchange_is_copied_and_not_gathered():
    known = {"precision": "fp8", "gathering": 0.5}
    scattered = 2 * (PERMUTE * WIDTH + 4 * INNER)
    assert traffic_of(on_toys(**known))[0] == pytest.approx(scattered + (SORT + PAD) * WIDTH)
    fixed = traffic_of(on_toys(expert_capacity=1.0, **known))[0]
    assert fixed == pytest.approx(scattered + 2 * SORT * WIDTH), "single values are turned"


def test_hybridep_gathers_a_byte_per_token_and_expert_before_tokens_travel():
    plain, mapped = (loaded(dispatcher=name) for name in ("deepep", "hybridep"))
    rows = strategies(tp=2, dp=2, ep=4, sequence_parallel=1)
    assert gathered_routes(rows, mapped) == pytest.approx(all_to_all(TOKENS / 2 * 4 * EXPERTS, 4, NODE))
    alone = strategies(dp=4)
    assert gathered_routes(rows, plain) == gathered_routes(alone, mapped) == 0.0
    assert dispatch_seconds(alone, mapped).forward == 0.0
    assert gathered_routes(rows, loaded(dispatcher="alltoall")) == 0.0


def test_hybridep_sends_the_weights_of_all_near_experts_beside_a_token_and_moves_at_a_share_of_its_own():
    """Four ranks in one node: a token meets 4 (1 - (3 / 4)^k) of them, itself in one of four cases."""
    there, back = HYBRID_REACH
    scenario = loaded(dispatcher="hybridep")
    copies, values, weights = TOKENS * 4 * (1 - 0.75**TOP_K) * 3 / 4, 2 * WIDTH, 4 * EXPERTS
    seconds, routes = dispatch_seconds(ROWS, scenario), gathered_routes(ROWS, scenario)
    ahead = copies / NODE * ((values + weights) / there + values / back)
    assert seconds.forward == pytest.approx(ahead + routes)
    assert seconds.backward == pytest.approx(copies / NODE * (values / there + (values + weights) / back))


def test_across_nodes_hybridep_sends_the_weights_of_the_experts_that_a_node_holds():
    rows, scenario = strategies(dp=8, ep=8), experts_on(top_k=8, stack=toy_stack(dispatcher="deepep"))
    routed = replace(scenario, stack=toy_stack(dispatcher="hybridep"))
    nodes = 2 * (1 - 0.5**8)
    more = TOKENS * nodes / 2 * 4 * EXPERTS / 8 * 4 / NETWORK
    assert dispatch_seconds(rows, routed).backward - dispatch_seconds(rows, scenario).backward == pytest.approx(more)
