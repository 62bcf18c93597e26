from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.iteration import even_split, row_seconds, sends_at
from costmodels.layer.forward_backward import Passes
from costmodels.layout.parameters_per_rank import (
    embedding_parameters_per_rank,
    heaviest_stage_parameters,
    layer_parameters_per_rank,
)
from costmodels.layout.stage_contents import end_sends
from costmodels.model.parameters import parameters
from costmodels.names import SCHEDULE_NAMES
from costmodels.step.optimizer import optimizer_seconds
from costmodels.step.traffic import (
    _window,
    exposed,
    gradient_collectives,
    stage_send_seconds,
    step_traffic,
    tied_embedding_seconds,
    unhidden_share,
)
from costmodels.strategy import strategies
from tests.each import each
from tests.scenarios import toy_device, toy_group, toy_link, toy_model, toy_scenario, toy_stack, toy_tiers

MESSAGE = 2 * 1024 * 1024
"""Bytes of one sequence's activations in the toy model: 1024 tokens of width 1024 in two bytes."""
INSTANT = Passes(np.array([0.0]), np.array([0.0]))
SLOW = np.array([0.3])
SECONDS = st.floats(0, 1e3)


def reduce_scatter(size, ranks, rate):
    return size * (ranks - 1) / ranks / rate


def test_traffic_once_an_iteration_hides_behind_no_more_layers_than_every_stage_has():
    layer = Passes(np.array([1.0]), np.array([2.0]))
    window = _window(strategies(pp=2), toy_scenario(model=toy_model(num_layers=5)), layer, None)
    assert (window.forward.item(), window.backward.item()) == (2.0, 4.0)


def test_a_stage_sends_an_activation_on_and_a_gradient_back():
    rows = strategies(pp=2, schedule=2)
    assert stage_send_seconds(rows, toy_scenario()) == pytest.approx(2 * MESSAGE / 100e9)


def test_stages_on_different_nodes_send_over_the_network():
    rows = strategies(pp=2, dp=4, schedule=2)
    assert stage_send_seconds(rows, toy_scenario()) == pytest.approx(2 * MESSAGE / 10e9)
    other = strategies(pp=2, dp=4, schedule=2, rank_order=1)
    assert stage_send_seconds(other, toy_scenario()) == pytest.approx(2 * MESSAGE / 100e9)


def test_every_chunk_sends_and_tensor_ranks_share_the_message():
    rows = strategies(pp=2, tp=2, vpp=[1, 3], schedule=[2, 3])
    whole, chunked = stage_send_seconds(rows, toy_scenario())
    assert whole == pytest.approx(2 * MESSAGE / 2 / 100e9)
    assert chunked == pytest.approx(3 * whole)
    alone = toy_scenario(stack=toy_stack(scatter_gather=False))
    assert stage_send_seconds(rows, alone)[0] == pytest.approx(2 * whole)
    split = strategies(pp=2, tp=2, sequence_parallel=1, schedule=2)
    assert stage_send_seconds(split, alone)[0] == pytest.approx(whole)


def test_sends_of_interleaved_chunks_are_hidden_as_their_stack_says():
    rows, stack = strategies(pp=2, vpp=[1, 2], schedule=[2, 3]), toy_stack(pp=0.5, pp_interleaved=0.25)
    hidden, open_ = (stage_send_seconds(rows, toy_scenario(stack=one)) for one in (stack, toy_stack(pp=1.0)))
    assert hidden / open_ == pytest.approx([0.5, 0.25 / toy_stack(pp=1.0).overlap.pp_interleaved])


def test_every_chunk_of_a_micro_batch_costs_the_host_its_overhead():
    scenario = toy_scenario(stack=toy_stack(micro_batch_overhead="1 ms"))
    assert row_seconds(strategies(pp=2, vpp=[1, 2], schedule=[2, 3]), scenario).host == pytest.approx([1e-3, 2e-3])


@each(
    ("schedule", "vpp", "share"),
    [("1f1b", 1, 1 / 2), ("interleaved-1f1b", 2, 3 / 4), ("breadth-first", 4, 7 / 8), ("zb-v", 2, 1 / 2),
     ("dualpipe", 1, 1 / 2), ("dualpipe-v", 2, 1 / 2)],
)  # fmt: skip
def test_the_outer_stages_send_nothing_beyond_the_ends_of_the_model(schedule, vpp, share):
    scenario = toy_scenario(gpus=4, batch=16, model=toy_model(num_layers=16))
    rows = strategies(pp=4, vpp=vpp, num_microbatches=16, schedule=SCHEDULE_NAMES.index(schedule))
    assert end_sends(rows) == pytest.approx(share)
    seconds = row_seconds(rows, scenario)
    stages = sends_at(rows, seconds, np.arange(4)[None, :])[0]
    assert stages == pytest.approx(seconds.send[0] * np.array([share, 1, 1, share]))
    _, total = even_split(rows, seconds, 16, np.zeros(1))
    assert total - even_split(rows, replace(seconds, send=np.zeros(1)), 16, np.zeros(1))[1] == pytest.approx(
        stages.sum()
    )


def test_plain_data_parallelism_reduces_every_gradient():
    scenario = toy_scenario(stack=toy_stack(reduce_bytes=4))
    rows = strategies(dp=4)
    size = heaviest_stage_parameters(rows, scenario)
    traffic = step_traffic(rows, scenario, INSTANT)
    assert traffic.gradients == pytest.approx(2 * reduce_scatter(4 * size, 4, 100e9))
    assert traffic.parameters.tolist() == [0.0]


def test_a_sharded_optimizer_scatters_gradients_and_gathers_parameters():
    scenario = toy_scenario(stack=toy_stack(reduce_bytes=4))
    rows = strategies(dp=4, zero_stage=1, sharding_degree=4)
    size = heaviest_stage_parameters(rows, scenario)
    traffic = step_traffic(rows, scenario, INSTANT)
    assert traffic.gradients == pytest.approx(reduce_scatter(4 * size, 4, 100e9))
    assert traffic.parameters == pytest.approx(reduce_scatter(2 * size, 4, 100e9))


def test_every_collective_of_a_step_pays_its_own_latency():
    late = toy_group(tiers=toy_tiers(inner=toy_link(base=1e-3)))
    rows = strategies(dp=4, zero_stage=1, sharding_degree=4)
    few, many = (
        step_traffic(rows, toy_scenario(group=late, stack=toy_stack(collectives_per_layer=n)), INSTANT).total
        for n in (0, 6)
    )
    layers = toy_model().num_layers
    assert many - few == pytest.approx(2 * (6 * layers - 1) * 1e-3)


def test_every_bucket_goes_round_the_ring_by_itself():
    """A ring of four with a millisecond a step takes three of them for every bucket, out and back."""
    late = toy_group(tiers=toy_tiers(inner=toy_link(step=1e-3)))
    rows = strategies(dp=4, zero_stage=1, sharding_degree=4)
    scenario = toy_scenario(group=late)
    buckets = np.ceil(heaviest_stage_parameters(rows, scenario) / 1e6)
    one, many = (
        step_traffic(rows, toy_scenario(group=late, stack=toy_stack(bucket_size=size)), INSTANT).total
        for size in (1e12, 1e6)
    )
    assert buckets > 2
    assert many - one == pytest.approx(2 * (buckets - 1) * 3e-3)


def test_buckets_grow_with_the_ranks_that_share_them():
    rows = strategies(dp=[4, 8], zero_stage=1, sharding_degree=[4, 8])
    scenario = toy_scenario(stack=toy_stack(bucket_size=1e6, bucket_per_rank=0.5e6))
    size = heaviest_stage_parameters(rows, scenario)
    assert gradient_collectives(rows, scenario, size).tolist() == np.ceil(size / [2e6, 4e6]).tolist()


def test_the_last_bucket_has_nothing_to_hide_behind_and_holds_the_embedding():
    rows = strategies(dp=4, zero_stage=1, sharding_degree=4)
    size = heaviest_stage_parameters(rows, toy_scenario())
    embedding = embedding_parameters_per_rank(rows, toy_scenario())
    for wanted, last in ((1.0, embedding), (0.9 * size.item(), 0.9 * size), (1e12, size)):
        stack = toy_stack(bucket_size=wanted, bucket_exposed=0.5)
        assert unhidden_share(rows, toy_scenario(stack=stack), size) == pytest.approx(last / size)
    assert unhidden_share(rows, toy_scenario(stack=toy_stack(bucket_exposed=0.5)), size) == pytest.approx(0.5)


def test_with_a_pipeline_buckets_are_left_at_one_collective():
    rows = strategies(pp=2, dp=4, schedule=2)
    scenario = toy_scenario(stack=toy_stack(bucket_size=1e3, bucket_exposed=0.5))
    size = heaviest_stage_parameters(rows, scenario)
    assert gradient_collectives(rows, scenario, size).tolist() == [1.0]
    assert unhidden_share(rows, scenario, size).tolist() == [0.5]


def test_shards_inside_a_node_are_reduced_over_their_replicas():
    scenario = toy_scenario(stack=toy_stack(reduce_bytes=4))
    rows = strategies(dp=8, zero_stage=1, sharding_degree=4)
    size = heaviest_stage_parameters(rows, scenario)
    inside = reduce_scatter(4 * size, 4, 100e9)
    between = 2 * reduce_scatter(4 * size / 4, 2, 10e9)
    assert step_traffic(rows, scenario, INSTANT).gradients == pytest.approx(inside + between)


def test_sharded_parameters_are_gathered_twice_and_scattered_once_a_micro_batch():
    """With instant memory; the copies to and from the communication buffers come on top."""
    stack, group = toy_stack(zero_stages=(3,), reduce_bytes=4), toy_group(device=toy_device(bandwidth=1e30))
    scenario = toy_scenario(stack=stack, group=group)
    rows = strategies(dp=4, zero_stage=3, sharding_degree=4, num_microbatches=3)
    layer = layer_parameters_per_rank(rows, scenario)
    traffic = step_traffic(rows, scenario, INSTANT)
    ends = heaviest_stage_parameters(rows, scenario) - 8 * layer
    gather, scatter = reduce_scatter(2 * layer, 4, 100e9), reduce_scatter(4 * layer, 4, 100e9)
    both = reduce_scatter(2 * ends, 4, 100e9), reduce_scatter(4 * ends, 4, 100e9)
    assert traffic.parameters == pytest.approx(3 * (8 * gather + both[0]))
    assert traffic.gradients == pytest.approx(3 * (8 * (gather + scatter) + both[1]))
    once = toy_scenario(stack=stack.changed({"sharding.gathers_per_micro_batch": False}), group=group)
    assert step_traffic(rows, once, INSTANT).parameters == pytest.approx(8 * gather + both[0])


def test_one_replica_has_no_data_parallel_traffic():
    for zero in (0, 3):
        traffic = step_traffic(strategies(tp=8, zero_stage=zero), toy_scenario(), INSTANT)
        assert traffic.total.tolist() == [0.0]


def test_a_tied_embedding_is_reduced_in_the_format_its_gradient_is_kept_in_whatever_data_ranks_reduce_in():
    tied, rows = toy_model().model_copy(update={"tied_embeddings": True}), strategies(pp=2, dp=2)
    formats = [{"gradient_bytes": kept, "reduce_bytes": sent} for kept, sent in ((2, 2), (2, 4), (4, 4))]
    narrow, sent_wide, wide = (
        tied_embedding_seconds(rows, toy_scenario(model=tied, stack=toy_stack(**each)))[0] for each in formats
    )
    assert narrow == sent_wide == pytest.approx(wide / 2)


def test_a_tied_embedding_is_reduced_between_the_first_and_the_last_stage_only():
    tied = toy_model().model_copy(update={"tied_embeddings": True})
    rows = strategies(pp=[1, 2, 2], tp=[1, 1, 2])
    layer = Passes(np.zeros(3), np.zeros(3))
    seconds, whole = step_traffic(rows, toy_scenario(model=tied), layer).tied, 4 * 8192 * 1024
    assert seconds == pytest.approx([0.0, *(2 * reduce_scatter(whole / tp, 2, 100e9) for tp in (1, 2))])
    loose = toy_model().model_copy(update={"tied_embeddings": False})
    assert step_traffic(rows, toy_scenario(model=loose), layer).tied.tolist() == [0.0, 0.0, 0.0]


@given(SECONDS, SECONDS, st.floats(0, 1), st.booleans())
def test_what_is_exposed_is_never_more_than_all_and_never_less_than_what_outlasts_the_window(
    seconds, window, share, hidden
):
    part = exposed(np.array([seconds]), np.array([window]), np.array([share]), slow=SLOW, hidden=hidden)[0]
    assert max(seconds - window, 0.0) * (1 - 1e-12) - 1e-12 <= part <= seconds * (1 + 1e-12)


@given(SECONDS, SECONDS, SECONDS, st.floats(0, 1))
def test_faster_computation_never_exposes_more_than_it_saves(seconds, window, faster, share):
    faster = min(window, faster)
    before, after = (
        w + exposed(np.array([seconds]), np.array([w]), np.array([share]), slow=SLOW, hidden=True)[0]
        for w in (window, faster)
    )
    assert after <= before * (1 + 1e-12)


def test_an_optimizer_steps_its_shard_and_clears_all_gradients():
    scenario = toy_scenario(stack=toy_stack(optimizer_traffic=38, gradient_bytes=4))
    rows = strategies(dp=4, zero_stage=[0, 1], sharding_degree=[1, 4])
    size = heaviest_stage_parameters(rows, scenario)
    assert optimizer_seconds(rows, scenario) == pytest.approx(size * np.array([38 + 4, 38 / 4 + 4]) / 1e12)


def test_scattered_gradients_are_cleared_where_they_are_kept():
    scenario = toy_scenario(stack=toy_stack(optimizer_traffic=38, gradient_bytes=4, zero_stages=(0, 1, 2, 3)))
    rows = strategies(dp=4, zero_stage=[2, 3], sharding_degree=4)
    size = heaviest_stage_parameters(rows, scenario)
    assert optimizer_seconds(rows, scenario) == pytest.approx(size * (38 + 4) / 4 / 1e12)


@pytest.mark.parametrize("tied", [True, False])
def test_a_single_stage_holds_the_whole_model(tied):
    model = toy_model().model_copy(update={"tied_embeddings": tied})
    held = heaviest_stage_parameters(strategies(), toy_scenario(model=model))[0]
    assert held == parameters(model)


def test_tensor_ranks_together_hold_the_model_and_only_repeat_what_is_replicated():
    scenario = toy_scenario()
    one, eight = layer_parameters_per_rank(strategies(tp=[1, 8]), scenario)
    assert one / 8 < eight < one / 8 * 1.01
