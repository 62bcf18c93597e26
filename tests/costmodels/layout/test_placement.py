import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.layout.placement import expert_data_group, expert_group, group_of, strides
from costmodels.names import RANK_ORDERS, SHARDING_INSIDE
from costmodels.primitives.rank_groups import ends_of, split_group
from costmodels.strategy import strategies

DIMENSIONS = ("tp", "cp", "pp", "dp")
POWERS = st.sampled_from([1, 2, 4])


def ranks_of_groups(degrees, order, names, *, sharding=1):
    """Every group along the named dimensions as a list of ranks, by counting ranks one by one.

    "sharding" in an order are the data ranks that share their states and "dp" those beyond; elsewhere all are "dp".
    """
    inner_first = [d for d in RANK_ORDERS[order].split("-") if d in (*DIMENSIONS, "sharding")]
    apart = "sharding" in inner_first
    inner = math.gcd(sharding // math.gcd(sharding, degrees["cp"]), degrees["dp"]) if apart else 1
    sizes = {**degrees, "sharding": inner, "dp": degrees["dp"] // inner}
    names = {*names, "sharding"} if "dp" in names else set(names)
    places = itertools.product(*(range(sizes[d]) for d in reversed(inner_first)))
    groups = {}
    for rank, place in enumerate(places):
        at = dict(zip(reversed(inner_first), place, strict=True))
        groups.setdefault(tuple(at[d] for d in inner_first if d not in names), []).append(rank)
    return list(groups.values())


def most_within(groups, domain):
    """Ranks of a group that share a domain, counted."""
    return {max([rank // domain for rank in group].count(rank // domain) for rank in group) for group in groups}


def test_megatron_s_default_order_places_tensor_data_and_pipeline_groups_as_its_documentation_shows():
    degrees = {"tp": 2, "cp": 1, "dp": 2, "pp": 2}
    assert ranks_of_groups(degrees, 0, {"tp"}) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert ranks_of_groups(degrees, 0, {"dp"}) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert ranks_of_groups(degrees, 0, {"pp"}) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    steps = strides(strategies(**degrees))
    assert {name: int(steps[name][0]) for name in DIMENSIONS} == {"tp": 1, "cp": 2, "dp": 2, "pp": 4}


def test_the_other_order_puts_pipeline_neighbours_next_to_each_other():
    steps = strides(strategies(tp=2, cp=1, dp=2, pp=2, rank_order=1))
    assert {name: int(steps[name][0]) for name in DIMENSIONS} == {"tp": 1, "cp": 2, "pp": 2, "dp": 4}
    assert ranks_of_groups({"tp": 2, "cp": 1, "dp": 2, "pp": 2}, 1, {"pp"}) == [[0, 2], [1, 3], [4, 6], [5, 7]]


ORDERS = st.sampled_from(range(len(RANK_ORDERS)))


@given(POWERS, POWERS, POWERS, POWERS, ORDERS, POWERS, st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_ranks_within_a_domain_are_those_that_counting_finds(tp, cp, pp, dp, order, shards, domain):
    degrees = {"tp": tp, "cp": cp, "pp": pp, "dp": dp}
    sharding = min(shards, dp * cp)
    row = strategies(**degrees, rank_order=order, zero_stage=1, sharding_degree=sharding)
    for names in (("tp",), ("cp",), ("dp",), ("pp",), ("cp", "dp"), ("tp", "cp"), ("tp", "cp", "dp")):
        group = group_of(row, *names)
        counted = ranks_of_groups(degrees, order, set(names), sharding=sharding)
        assert int(group.size[0]) == len(counted[0])
        assert {int(group.ranks_within(domain)[0])} == most_within(counted, domain)


@given(POWERS, POWERS, POWERS, POWERS, ORDERS, POWERS, st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_a_sharding_group_and_its_replicas_lie_where_counting_finds_them(tp, cp, pp, dp, order, shards, domain):
    """The nearest ranks of a data group share its states; the n-th of every such group are replicas."""
    degrees = {"tp": tp, "cp": cp, "pp": pp, "dp": dp}
    sharding = min(shards, dp * cp)
    row = strategies(**degrees, rank_order=order, zero_stage=1, sharding_degree=sharding)
    near, far = split_group(group_of(row, "cp", "dp"), row.sharding_degree)
    groups = [sorted(group) for group in ranks_of_groups(degrees, order, {"cp", "dp"}, sharding=sharding)]
    shares = [group[place : place + sharding] for group in groups for place in range(0, len(group), sharding)]
    replicas = [group[place::sharding] for group in groups for place in range(sharding)]
    assert {int(near.ranks_within(domain)[0])} == most_within(shares, domain)
    assert {int(far.ranks_within(domain)[0])} == most_within(replicas, domain)


@given(POWERS, POWERS, POWERS, POWERS, ORDERS, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_expert_ranks_are_neighbours_and_those_with_the_same_experts_lie_where_counting_finds_them(
    tp, cp, pp, dp, order, ep, domain
):
    degrees = {"tp": tp, "cp": cp, "pp": pp, "dp": dp}
    ranks = tp * cp if order else tp * cp * dp
    together = tp * cp if order else min(ep * tp, ranks)
    etp = min(tp, together)
    row = strategies(**degrees, ep=together // etp, etp=etp, rank_order=order, zero_stage=1, sharding_degree=dp * cp)
    stages = [sorted(group) for group in ranks_of_groups(degrees, order, {"tp", "cp", "dp"}, sharding=dp * cp)]
    same = [group[place::together] for group in stages for place in range(together)]
    experts = [
        group[start + place : start + together : etp]
        for group in stages
        for start in range(0, len(group), together)
        for place in range(etp)
    ]
    assert {int(expert_data_group(row).ranks_within(domain)[0])} == most_within(same, domain)
    assert {int(expert_group(row).ranks_within(domain)[0])} == most_within(experts, domain)


def test_paddle_s_order_keeps_a_sharded_copy_inside_the_pipeline_and_replicas_outside():
    """Degrees mp 2, sharding 2, pp 2, replicas 2: its hybrid topology from the inside out."""
    row = strategies(tp=2, dp=4, pp=2, rank_order=SHARDING_INSIDE, zero_stage=1, sharding_degree=2)
    steps = strides(row)
    assert {name: int(steps[name][0]) for name in ("tp", "sharding", "pp", "dp")} == {
        "tp": 1, "sharding": 2, "pp": 4, "dp": 8,
    }  # fmt: skip
    counted = ranks_of_groups({"tp": 2, "cp": 1, "dp": 4, "pp": 2}, SHARDING_INSIDE, {"dp"}, sharding=2)
    assert counted[0] == [0, 2, 8, 10]


def test_a_domain_of_zero_is_the_whole_cluster():
    group = group_of(strategies(tp=4, dp=8), "dp")
    assert group.ranks_within(0).tolist() == [8]
    assert group.ranks_within(8).tolist() == [2]


@given(
    st.sampled_from([1, 2, 3, 4, 6]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([0, 1]),
)
def test_a_group_that_straddles_two_nodes_is_not_taken_to_be_inside_one(tp, cp, pp, dp, order):
    degrees = {"tp": tp, "cp": cp, "pp": pp, "dp": dp}
    row = strategies(**degrees, rank_order=order)
    for names in (("tp",), ("dp",), ("pp",)):
        straddles = any(len({rank // 8 for rank in g}) > 1 for g in ranks_of_groups(degrees, order, set(names)))
        if straddles:
            group = group_of(row, *names)
            assert (group.ranks_within(8) < group.size).all()


@given(POWERS, POWERS, POWERS, st.sampled_from([0, 1]), st.integers(0, 4))
def test_a_group_cut_in_two_is_the_near_ranks_and_their_replicas(tp, cp, dp, order, power):
    inner = min(2**power, cp * dp)
    row = strategies(tp=tp, cp=cp, dp=dp, pp=2, rank_order=order)
    whole = group_of(row, "cp", "dp")
    near, far = split_group(whole, np.array([inner]))
    assert near.size[0] == inner
    assert near.size[0] * far.size[0] == whole.size[0]
    assert np.prod([size[0] for size, _ in near.parts]) == inner
    for domain in (1, 2, 4, 8, 0):
        assert near.ranks_within(domain)[0] <= whole.ranks_within(domain)[0]
        assert near.ranks_within(domain)[0] * far.ranks_within(domain)[0] >= whole.ranks_within(domain)[0]


def test_replicas_of_a_shard_are_as_far_apart_as_the_shard_is_wide():
    near, far = split_group(group_of(strategies(tp=2, dp=8), "cp", "dp"), np.array([4]))
    assert near.ranks_within(8).tolist() == [4]
    assert far.ranks_within(8).tolist() == [1]
    assert far.ranks_within(16).tolist() == [2]


@pytest.mark.parametrize("order", [0, 1])
def test_the_order_makes_no_difference_without_a_pipeline_or_without_data_parallelism(order):
    for degrees in ({"tp": 2, "cp": 2, "dp": 4}, {"tp": 2, "cp": 2, "pp": 4}):
        row, plain = strategies(**degrees, rank_order=order), strategies(**degrees)
        for names in (("tp",), ("cp",), ("cp", "dp"), ("pp",)):
            for domain in (1, 2, 4, 8, 16, 0):
                mine, usual = group_of(row, *names), group_of(plain, *names)
                assert mine.ranks_within(domain) == usual.ranks_within(domain)


@given(POWERS, POWERS, POWERS, st.sampled_from([1, 2, 4, 8]), ORDERS, st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_the_ends_of_a_pipeline_share_a_domain_where_counting_finds_them_together(tp, cp, dp, pp, order, domain):
    degrees = {"tp": tp, "cp": cp, "pp": pp, "dp": dp}
    found = most_within([[p[0], p[-1]] for p in ranks_of_groups(degrees, order, {"pp"}) if pp > 1] or [[0]], domain)
    assert {
        int(n) for n in ends_of(group_of(strategies(**degrees, rank_order=order), "pp")).ranks_within(domain)
    } == found


@given(POWERS, POWERS, st.sampled_from([3, 5, 6, 7, 12]), ORDERS, st.sampled_from([4, 6, 8, 12]))
def test_ends_of_a_pipeline_of_any_length_are_together_only_where_those_of_every_pipeline_are(
    tp, dp, pp, order, domain
):
    degrees = {"tp": tp, "cp": 1, "pp": pp, "dp": dp}
    pipelines = ranks_of_groups(degrees, order, {"pp"})
    said = int(ends_of(group_of(strategies(**degrees, rank_order=order), "pp")).ranks_within(domain)[0])
    assert said == 1 or all(pipeline[0] // domain == pipeline[-1] // domain for pipeline in pipelines)
