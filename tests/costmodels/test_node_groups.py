"""Stages on several node groups take the figures of the group that they stand on."""

from dataclasses import replace

import numpy as np
import pytest

from costmodels.iteration import row_seconds
from costmodels.layout.split import Assignment
from costmodels.memory.limits import memory_limit
from costmodels.node_groups import Mixed, MixedStrategies, mixed_bytes, mixed_seconds, price_mixed
from costmodels.step.traffic import stage_send_seconds, tied_embedding_seconds
from costmodels.strategy import strategies
from hardware.records import Between, Cluster
from tests.scenarios import (
    INTERLEAVED,
    ONE_F_ONE_B,
    toy_device,
    toy_group,
    toy_link,
    toy_model,
    toy_scenario,
    toy_tiers,
)

SLOW, FAST = 0, 1


def mixed(*, between=(), model=None, straggler=0.0):
    """Eight slow toy devices with little memory, and eight of four times their rate on a slower network."""
    slow = toy_group(device=toy_device(peak=50e12, memory=40e9)).model_copy(update={"name": "slow", "nodes": 2})
    tiers = toy_tiers(outer=toy_link(bandwidth=5e9))
    fast = toy_group(device=toy_device(peak=200e12), tiers=tiers).model_copy(update={"name": "fast", "nodes": 2})
    cluster = Cluster(name="mixed", title="", groups=(slow, fast), between=between, sources={})
    base = toy_scenario(model=model or toy_model(vocab_size=64000))
    base = replace(base, stack=base.stack.changed({"calibrated.straggler": straggler}))
    return Mixed(cluster, tuple(replace(base, group=group, gpus=8) for group in cluster.groups))


def rows(*, tp=(2, 2), dp=(2, 2), order=(SLOW, FAST), vpp=1, zero=1):
    stages = [8 // (t * d) for t, d in zip(tp, dp, strict=True)]
    groups = tuple(
        strategies(
            tp=t,
            dp=d,
            pp=sum(stages),
            vpp=vpp,
            zero_stage=zero,
            sharding_degree=d if zero else 1,
            micro_batch_size=4 // d,
            num_microbatches=4,
            schedule=INTERLEAVED if vpp > 1 else ONE_F_ONE_B,
        )
        for t, d in zip(tp, dp, strict=True)
    )
    return MixedStrategies.of(groups, np.array([stages]), np.array([order]))


@pytest.mark.parametrize("order", [(SLOW, FAST), (FAST, SLOW)])
def test_a_stage_costs_what_its_group_says(order):
    question, row = mixed(), rows(order=order)
    seconds, memory = mixed_seconds(row, question), mixed_bytes(row, question)
    alone = [row_seconds(group, one) for group, one in zip(row.groups, question.scenarios, strict=True)]
    at = [order[0]] * 2 + [order[1]] * 2
    assert row.group_at()[0].tolist() == at
    assert seconds.layer[0].tolist() == [alone[group].layer[0] for group in at]
    assert memory.limit[0].tolist() == [memory_limit(question.scenarios[group], row.groups[group])[0] for group in at]
    beside = seconds.extra[0] - seconds.send[0]
    assert beside[0] == pytest.approx(alone[order[0]].embedding[0])
    assert beside[-1] == pytest.approx(alone[order[1]].head[0])


def expected_link(question, row, one, other):
    sides = zip((one, other), question.crossing(one, other), strict=True)
    return max(stage_send_seconds(replace(row.groups[g], pp=np.array([2])), part)[0] for g, part in sides)


def test_a_hop_between_groups_takes_the_slower_way_out():
    question, row = mixed(), rows(tp=(2, 2), dp=(1, 1))  # four stages on each group, two a node
    hop = mixed_seconds(row, question).send[0]
    inside = [
        stage_send_seconds(replace(group, pp=np.array([4])), one)[0]
        for group, one in zip(row.groups, question.scenarios, strict=True)
    ]
    across = expected_link(question, row, SLOW, FAST)
    assert across >= max(inside)
    middle = [inside[0]] * 2 + [(inside[0] + across) / 2, (across + inside[1]) / 2] + [inside[1]] * 2
    expected = [inside[0] / 2, *middle, inside[1] / 2]  # the ends have one neighbour
    assert hop.tolist() == pytest.approx(expected)


def test_a_link_between_the_groups_is_taken_where_one_is_given():
    link = Between(groups=("fast", "slow"), link=toy_link(bandwidth=1e8))
    plain, joined = (mixed_seconds(rows(), mixed(between=between)).send[0] for between in ((), (link,)))
    assert joined[1] > 10 * plain[1]
    assert joined[0] == pytest.approx(plain[0])


def test_an_interleaved_pipeline_crosses_back_from_its_last_group_to_its_first():
    link = Between(groups=("fast", "slow"), link=toy_link(bandwidth=1e8))
    hop = mixed_seconds(rows(vpp=2), mixed(between=(link,))).send[0]
    assert hop[0] == pytest.approx(hop[1] / 2, rel=0.05)  # one of its two chunks goes on to the other group
    assert hop[-1] == pytest.approx(hop[-2] / 2, rel=0.05)


def test_the_rank_with_more_to_send_sets_the_time_of_a_hop():
    question, row = mixed(), rows(tp=(4, 1), dp=(1, 4))
    hop = mixed_seconds(row, question).send[0]
    assert expected_link(question, row, SLOW, FAST) > 0
    assert hop[2] == hop[1] or hop[2] > 0
    assert len(hop) == 4


def test_the_iteration_waits_for_the_group_whose_gradients_and_optimizer_take_longest():
    """The fast device is four times as fast, so that its stages hold four fifths of the layers, or nearly."""
    question, row = mixed(), rows()
    slow, fast = (row_seconds(group, one) for group, one in zip(row.groups, question.scenarios, strict=True))
    depth = 2 + 2 * fast.layer[0] / slow.layer[0]
    alike = replace(row.groups[FAST], pp=np.array([round(depth)]))
    deep = row_seconds(alike, question.scenarios[FAST])
    together = mixed_seconds(row, question).groups[0]
    own = deep.data_parallel[0] + deep.optimizer[0]
    assert depth < 3
    assert own > fast.data_parallel[0] + fast.optimizer[0]
    assert together.data_parallel[0] + together.optimizer[0] == pytest.approx(own)


def test_a_tied_embedding_is_reduced_between_the_first_and_the_last_group():
    tied, loose = (
        toy_model(vocab_size=64000).model_copy(update={"tied_embeddings": shared}) for shared in (True, False)
    )
    question, row = mixed(model=tied), rows()
    pair = zip((SLOW, FAST), question.crossing(SLOW, FAST), strict=True)
    across = max(tied_embedding_seconds(row.groups[g], part)[0] for g, part in pair)
    more, less = (mixed_seconds(row, mixed(model=model)).groups[0].data_parallel[0] for model in (tied, loose))
    assert across > 0
    assert more == pytest.approx(less + across)


def test_the_breakdown_adds_up_and_memory_is_each_group_s():
    question, row = mixed(straggler=0.02), rows(order=(FAST, SLOW), dp=(1, 2), tp=(4, 2))
    split = Assignment(np.array([3, 3, 1, 1]), np.array([0, 1, 0, 0]))
    priced = price_mixed(row, question, split)
    assert sum(priced.breakdown.values()) == pytest.approx(priced.iteration)
    assert priced.iteration > 4 * priced.stage_seconds.max()
    memory = mixed_bytes(row, question)
    n, r = split.layers, split.recomputed
    used = memory.fixed + n * memory.layer + (n - r) * memory.activation + r * memory.checkpoint
    used = used + (r > 0) * memory.working
    assert priced.footprint.allocated.tolist() == pytest.approx(used[0].tolist())


def test_rows_of_different_depth_are_priced_as_each_alone():
    question = mixed()
    deep, flat = rows(tp=(2, 2), dp=(1, 1)), rows(tp=(2, 2), dp=(4, 4))
    both = MixedStrategies.of(
        tuple(
            strategies(**{name: np.concatenate([getattr(a, name), getattr(b, name)]) for name in a.row(0)})
            for a, b in zip(deep.groups, flat.groups, strict=True)
        ),
        np.concatenate([deep.stages, flat.stages]),
        np.concatenate([deep.order, flat.order]),
    )
    together = mixed_seconds(both, question)
    for place, one in enumerate((deep, flat)):
        alone, pp = mixed_seconds(one, question), int(one.pp[0])
        assert together.extra[place, :pp].tolist() == pytest.approx(alone.extra[0, :pp].tolist())
        assert together.layer[place, :pp].tolist() == alone.layer[0, :pp].tolist()
