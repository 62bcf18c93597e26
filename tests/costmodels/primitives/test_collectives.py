import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.layout.placement import group_of
from costmodels.primitives.collectives import (
    CHUNK,
    TREE_BANDWIDTH,
    all_reduce_seconds,
    all_to_all_seconds,
    broadcast_seconds,
    gather_seconds,
    send_seconds,
)
from costmodels.primitives.rank_groups import Group
from costmodels.strategy import strategies
from hardware.catalogue import cluster
from tests.drawn import drawn_groups
from tests.scenarios import toy_link, toy_tiers

GIGABYTE = np.array([1e9])
OPERATIONS = (gather_seconds, all_reduce_seconds, all_to_all_seconds)


def tensor_group(size):
    return group_of(strategies(tp=size), "tp")


def test_an_all_gather_inside_a_node_moves_three_quarters_through_one_lane():
    assert gather_seconds(GIGABYTE, tensor_group(4), toy_tiers()) == pytest.approx(1e9 * 3 / 4 / 100e9)


def test_an_all_gather_over_two_nodes_is_as_slow_as_the_slower_tier():
    """Four rings, one for every lane out of the node, each with a quarter of seven eighths."""
    inner = 1e9 * 7 / 8 / 100e9
    outer = 1e9 * 7 / 8 / 4 / 10e9
    assert outer > inner
    assert gather_seconds(GIGABYTE, tensor_group(8), toy_tiers()) == pytest.approx(outer)
    fast = toy_tiers(outer=toy_link(bandwidth=80e9))
    assert gather_seconds(GIGABYTE, tensor_group(8), fast) == pytest.approx(inner)


def test_a_group_with_one_rank_per_node_has_one_lane():
    group = group_of(strategies(tp=4, dp=2), "dp")
    assert gather_seconds(GIGABYTE, group, toy_tiers()) == pytest.approx(1e9 / 2 / 10e9)


def test_latency_is_the_steps_of_every_tier_and_the_base_of_the_outermost():
    tiers = toy_tiers(inner=toy_link(base=0.01, step=0.1), outer=toy_link(bandwidth=10e9, base=0.02, step=1.0))
    nothing = np.array([0.0])
    assert gather_seconds(nothing, tensor_group(4), tiers) == pytest.approx(0.01 + 3 * 0.1)
    assert gather_seconds(nothing, tensor_group(8), tiers) == pytest.approx(0.02 + 6 * 0.1 + 1 * 1.0)
    assert gather_seconds(nothing, group_of(strategies(tp=4, dp=2), "dp"), tiers) == pytest.approx(0.02 + 1.0)


def test_an_all_reduce_is_two_passes_of_the_ring_where_bandwidth_decides():
    ring = all_reduce_seconds(GIGABYTE, tensor_group(8), toy_tiers())
    assert ring == pytest.approx(2 * gather_seconds(GIGABYTE, tensor_group(8), toy_tiers()))


def test_a_large_all_reduce_waits_for_every_step_of_both_passes():
    tiers = toy_tiers(inner=toy_link(base=1e-5, step=1e-6))
    moving = 2 * 1e9 * 3 / 4 / 100e9
    assert all_reduce_seconds(GIGABYTE, tensor_group(4), tiers) == pytest.approx(2 * (1e-5 + 3e-6) + moving, rel=1e-9)


def test_a_message_takes_its_latency_and_what_a_pair_of_ranks_reaches_of_the_link():
    half = toy_link(base=1e-3).model_copy(update={"point_to_point": 0.5})
    one, two = np.ones(1), np.full(1, 2.0)
    assert send_seconds(GIGABYTE, one, two, toy_tiers(inner=half)) == pytest.approx(1e-3 + 1e9 / 50e9, rel=1e-9)


def test_a_small_all_reduce_over_many_nodes_takes_the_tree():
    tiers = toy_tiers(node=1, outer=toy_link(bandwidth=10e9, step=1e-5))
    small, group = np.array([1e3]), tensor_group(64)
    depth = 2 * np.log2(64) * 1e-5
    moving = 2 * 1e3 * 63 / 64 / 10e9 / TREE_BANDWIDTH
    assert all_reduce_seconds(small, group, tiers) == pytest.approx(depth + moving)
    assert all_reduce_seconds(small, group, tiers) < 2 * gather_seconds(small, group, tiers)


def test_switches_that_add_up_serve_the_all_reduce_only_and_only_large_groups():
    gaining = toy_tiers(inner=toy_link(gain=1.6, gain_ranks=4))
    assert all_reduce_seconds(GIGABYTE, tensor_group(4), gaining) == pytest.approx(
        all_reduce_seconds(GIGABYTE, tensor_group(4), toy_tiers()) / 1.6
    )
    for operation, size in ((all_reduce_seconds, 2), (gather_seconds, 4)):
        same = operation(GIGABYTE, tensor_group(size), toy_tiers())
        assert operation(GIGABYTE, tensor_group(size), gaining) == same


@pytest.mark.parametrize(("ranks", "share"), [(2, 1 / 2), (4, 1 / 2), (8, 3 / 4), (16, 1.0)])
def test_a_group_along_one_axis_of_a_torus_has_the_links_of_that_axis(ranks, share):
    torus = toy_tiers(node=16, inner=toy_link(axes=2))
    plain = toy_tiers(node=16)
    assert gather_seconds(GIGABYTE, tensor_group(ranks), torus) == pytest.approx(
        gather_seconds(GIGABYTE, tensor_group(ranks), plain) / share
    )


@pytest.mark.parametrize(("size", "links"), [(2, 1), (4, 3)])
def test_ranks_of_a_mesh_use_the_links_between_them_alone(size, links):
    mesh = toy_tiers(inner=toy_link(mesh=4))
    for operation in (gather_seconds, all_reduce_seconds, all_to_all_seconds):
        switched = operation(GIGABYTE, tensor_group(size), toy_tiers())
        assert operation(GIGABYTE, tensor_group(size), mesh) == pytest.approx(switched * 3 / links)


def test_a_group_that_leaves_a_node_by_one_card_gains_nothing_from_more_ranks_there():
    slow = toy_tiers(outer=toy_link(bandwidth=10e9, one_way=20e9))
    volume = 1e9 * 7 / 8
    assert gather_seconds(GIGABYTE, tensor_group(8), toy_tiers()) == pytest.approx(volume / 40e9)
    assert gather_seconds(GIGABYTE, tensor_group(8), slow) == pytest.approx(volume / 20e9)
    assert all_reduce_seconds(GIGABYTE, tensor_group(8), slow) == pytest.approx(2 * volume / 20e9)
    assert gather_seconds(GIGABYTE, tensor_group(4), slow) == gather_seconds(GIGABYTE, tensor_group(4), toy_tiers())
    assert slow[-1].link.times(2.0) == toy_link(bandwidth=20e9, one_way=40e9)


@pytest.mark.parametrize(("ranks", "stride", "rate"), [(2, 4, 4e9), (4, 2, 20e9), (8, 1, 40e9)])
def test_a_ring_with_one_rank_in_a_node_takes_less_out_of_it_than_one_that_shares_its_way(ranks, stride, rate):
    held = toy_tiers(outer=toy_link(bandwidth=10e9, lone=4e9))
    group = Group(np.array([ranks]), ((np.array([ranks]), np.array([stride])),))
    volume = 1e9 * (ranks - 1) / ranks
    assert gather_seconds(GIGABYTE, group, held) == pytest.approx(volume / rate)
    assert all_reduce_seconds(GIGABYTE, group, held) == pytest.approx(2 * volume / rate)
    assert all_to_all_seconds(GIGABYTE, group, held) == all_to_all_seconds(GIGABYTE, group, toy_tiers())
    assert held[-1].link.times(2.0) == toy_link(bandwidth=20e9, lone=8e9)


def test_a_ring_alone_in_its_node_is_no_faster_than_its_link():
    slow, free = (toy_tiers(outer=toy_link(bandwidth=10e9, lone=lone)) for lone in (25e9, None))
    group = Group(np.array([2]), ((np.array([2]), np.array([4])),))
    assert gather_seconds(GIGABYTE, group, slow) == gather_seconds(GIGABYTE, group, free)


def test_what_one_group_takes_out_of_a_domain_nears_its_peak_like_any_other_transfer():
    near = {"bandwidth": 10e9, "saturation": 1e8}
    both = [toy_tiers(outer=toy_link(**near, one_way=one)) for one in (None, 20e9)]
    shared, alone = (gather_seconds(GIGABYTE, tensor_group(8), tiers) for tiers in both)
    assert alone == pytest.approx(2 * shared)


@pytest.mark.parametrize(("stride", "ranks", "bus"), [(1, 8, 12.5), (2, 4, 8.0), (4, 2, 4.0)])
def test_groups_that_cross_pcie_sockets_at_once_get_more_of_the_way_than_one_that_crosses_alone(stride, ranks, bus):
    """Measured over eight A100 behind two sockets: 11.1 to 13.5, 7 to 7.65 and 3.9 to 4 GB/s [simumax]."""
    size, group = np.array([64e9]), group_of(strategies(tp=stride, dp=ranks), "dp")
    seconds = gather_seconds(size, group, cluster("a100-80gb-pcie").groups[0].tiers)
    assert size * (ranks - 1) / ranks / seconds / 1e9 == pytest.approx(bus, rel=0.02)


def test_an_all_to_all_crosses_by_every_rank_where_a_ring_crosses_by_one():
    gaining = toy_link(bandwidth=10e9).model_copy(update={"all_to_all_gain": 1.5})
    tiers, plain = toy_tiers(outer=gaining), toy_tiers()
    for same in (gather_seconds, all_reduce_seconds, broadcast_seconds):
        assert same(GIGABYTE, tensor_group(8), tiers) == same(GIGABYTE, tensor_group(8), plain)
    slower = all_to_all_seconds(GIGABYTE, tensor_group(8), plain)
    assert all_to_all_seconds(GIGABYTE, tensor_group(8), tiers) == pytest.approx(slower / 1.5)


def test_owners_that_broadcast_in_turn_enter_every_node_once():
    """Half a gigabyte comes from the other node, shared by four lanes; eight chains of seven hops fill first."""
    hops = 6 / 100e9 + 1 / 10e9
    expected = 1e9 / 2 / 4 / 10e9 + 8 * CHUNK * hops
    assert broadcast_seconds(GIGABYTE, tensor_group(8), toy_tiers()) == pytest.approx(expected)


def test_the_latency_of_broadcasts_in_turn_grows_with_the_square_of_the_ranks():
    late = toy_tiers(inner=toy_link(step=1e-3, bandwidth=1e13), outer=toy_link(step=1e-3, bandwidth=1e13))
    few, many = (broadcast_seconds(np.array([1e3]), tensor_group(n), late)[0] for n in (8, 16))
    assert (few, many) == (pytest.approx(8 * 7e-3, rel=1e-4), pytest.approx(16 * 15e-3, rel=1e-4))


def test_a_message_of_the_saturation_size_takes_twice_as_long():
    volume = 1e9 * 3 / 4
    tiers = toy_tiers(inner=toy_link(saturation=volume))
    assert gather_seconds(GIGABYTE, tensor_group(4), tiers) == pytest.approx(2 * volume / 100e9)


def test_every_rank_of_an_all_to_all_has_its_own_traffic_out_of_the_node():
    assert all_to_all_seconds(GIGABYTE, tensor_group(8), toy_tiers()) == pytest.approx(1e9 * 4 / 8 / 10e9)


def test_a_chain_sends_over_the_innermost_tier_that_holds_all_of_it():
    tiers, step = toy_tiers(), np.array([2.0])
    assert send_seconds(GIGABYTE, step, np.array([2.0]), tiers) == pytest.approx(1e9 / 100e9)
    assert send_seconds(GIGABYTE, step, np.array([3.0]), tiers) == pytest.approx(1e9 / 10e9)
    assert send_seconds(GIGABYTE, step, np.array([1.0]), tiers) == 0.0


@pytest.mark.parametrize("ranks", [1, 4, 64])
def test_buffers_of_one_group_are_gathered_as_each_of_them_alone(ranks):
    group, sizes = tensor_group(ranks), np.array([[1e6], [3e9]])
    together = gather_seconds(sizes, group, toy_tiers())
    assert together.tolist() == [gather_seconds(size, group, toy_tiers()).tolist() for size in sizes]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_group_of_one_takes_no_time(operation):
    tiers = toy_tiers(inner=toy_link(base=1.0, step=1.0), outer=toy_link(base=1.0, step=1.0))
    assert operation(GIGABYTE, tensor_group(1), tiers).tolist() == [0.0]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_without_latency_a_doubled_message_takes_twice_as_long(operation, ranks):
    once = operation(GIGABYTE, tensor_group(ranks), toy_tiers())
    assert operation(2 * GIGABYTE, tensor_group(ranks), toy_tiers()) == pytest.approx(2 * once)


@given(drawn_groups(), st.sampled_from([2, 4, 8, 16]), st.floats(1.0, 1e10), st.floats(1.0, 1e10))
def test_two_messages_are_never_faster_than_one_with_both(machines, ranks, first, second):
    for operation in OPERATIONS:
        apart = [operation(np.array([x]), tensor_group(ranks), machines.tiers)[0] for x in (first, second)]
        joined = operation(np.array([first + second]), tensor_group(ranks), machines.tiers)[0]
        assert max(apart) * (1 - 1e-12) <= joined <= sum(apart) * (1 + 1e-12)


@given(drawn_groups(), st.sampled_from([2, 4, 8, 16]), st.floats(1.0, 1e10))
def test_an_all_reduce_is_never_slower_than_scatter_and_gather(machines, ranks, size):
    size = np.array([size])
    both = 2 * gather_seconds(size, tensor_group(ranks), machines.tiers)
    assert all_reduce_seconds(size, tensor_group(ranks), machines.tiers)[0] <= both[0] * (1 + 1e-12)


@given(drawn_groups(), st.sampled_from([2, 4, 8, 16]), st.floats(1e3, 1e10))
def test_nothing_is_faster_than_the_wires(machines, ranks, size):
    moved = size * (ranks - 1) / ranks
    fastest = max(tier.link.bandwidth for tier in machines.tiers)
    assert gather_seconds(np.array([size]), tensor_group(ranks), machines.tiers)[0] >= moved / ranks / fastest


def test_a_token_that_enters_a_domain_once_crosses_the_network_less_often():
    """Eight copies to any of two nodes: on average 1 - 1/2^8 of two nodes are entered, instead of eight times."""
    size, group = np.array([GIGABYTE]).ravel(), group_of(strategies(dp=8), "dp")
    tiers = toy_tiers()
    every, once = (all_to_all_seconds(size, group, tiers, copies=copies) for copies in (1, 8))
    assert once == pytest.approx(every * 2 * (1 - 0.5**8) / 8)


def test_one_copy_is_the_plain_all_to_all():
    group = group_of(strategies(dp=8), "dp")
    plain = all_to_all_seconds(np.array([1e6]), group, toy_tiers())
    assert all_to_all_seconds(np.array([1e6]), group, toy_tiers(), copies=1) == plain


def test_groups_that_leave_a_node_at_once_share_its_way_out():
    """A link's bandwidth is one device's share: a group has as many as it has ranks in a node, and no other's."""
    apart = gather_seconds(GIGABYTE, group_of(strategies(tp=4, dp=2), "dp"), toy_tiers())
    pairs = gather_seconds(GIGABYTE, group_of(strategies(tp=2, dp=4), "dp"), toy_tiers())
    whole = gather_seconds(GIGABYTE, group_of(strategies(dp=8), "dp"), toy_tiers())
    for seconds, ranks, lanes in ((apart, 2, 1), (pairs, 4, 2), (whole, 8, 4)):
        assert seconds == pytest.approx(1e9 * (ranks - 1) / ranks / lanes / 10e9)


def test_a_node_with_half_the_cards_takes_twice_as_long_for_every_group():
    half = toy_tiers(outer=toy_link(bandwidth=5e9))
    for degrees in ({"tp": 4, "dp": 2}, {"tp": 2, "dp": 4}, {"dp": 8}):
        group = group_of(strategies(**degrees), "dp")
        for operation in OPERATIONS:
            whole = operation(GIGABYTE, group, toy_tiers())
            assert operation(GIGABYTE, group, half) == pytest.approx(2 * whole)


def spine(oversubscription):
    """Nodes of four, two of them below a leaf switch, leaves below an oversubscribed spine."""
    node, net = toy_tiers()
    leaf = net.model_copy(update={"name": "leaf", "domain": 8})
    return (node, leaf, net.model_copy(update={"oversubscription": oversubscription}))


def test_an_oversubscribed_spine_slows_those_who_cross_it_alone_and_not_those_with_many_ranks_below_a_leaf():
    """One rank a leaf sends all it has over the spine; of eight below a leaf each sends an eighth."""
    alone, together = (group_of(strategies(**degrees), "dp") for degrees in ({"tp": 8, "dp": 4}, {"dp": 32}))
    assert gather_seconds(GIGABYTE, alone, spine(4.0)) == pytest.approx(4 * gather_seconds(GIGABYTE, alone, spine(1.0)))
    assert gather_seconds(GIGABYTE, together, spine(1.5)) == pytest.approx(
        gather_seconds(GIGABYTE, together, spine(1.0))
    )
    message, step, reach = np.array([1e9]), np.array([8.0]), np.array([4.0])
    assert send_seconds(message, step, reach, spine(4.0)) == pytest.approx(4 * 1e9 / 10e9)
    assert send_seconds(message, step / 8, reach, spine(4.0)) == pytest.approx(1e9 / 100e9)
