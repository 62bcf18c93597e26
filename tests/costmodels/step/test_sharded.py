"""Traffic of sharded gradients and parameters, counted by hand with nothing to hide behind and instant memory."""

import numpy as np
import pytest

from costmodels.iteration import core_seconds, row_seconds, with_step
from costmodels.layer.forward_backward import Passes
from costmodels.layout.parameters_per_rank import (
    embedding_parameters_per_rank,
    head_parameters_per_rank,
    heaviest_stage_parameters,
    layer_parameters_per_rank,
)
from costmodels.layout.placement import group_of
from costmodels.memory.rows import row_bytes
from costmodels.names import RANK_ORDERS, SCHEDULE_NAMES, SHARDING_INSIDE, Recompute
from costmodels.stack.stack import stack
from costmodels.step.sharded import compute_slowdown, every_micro_batch, second_shards, weights_per_layer
from costmodels.step.traffic import _experts_once, stage_send_seconds, step_traffic
from costmodels.strategy import strategies
from planner import PlanRequest, predict
from tests.scenarios import (
    ONE_F_ONE_B,
    toy_device,
    toy_group,
    toy_link,
    toy_model,
    toy_scenario,
    toy_stack,
    toy_tiers,
    with_experts,
)

INSTANT = Passes(np.zeros(1), np.zeros(1))
LAYERS, BATCHES = 8, 3
HIDING = {"overlap_grad_reduce": True, "overlap_param_gather": True}
LAYOUT = {
    1: {"sharding_degree": 4, "num_microbatches": BATCHES},
    2: {"sharding_degree": 2, "num_microbatches": BATCHES, "schedule": ONE_F_ONE_B},
}
"""By the number of stages of four devices."""


def sharded(stage, *, gpus=4, degree=None, **changes):
    """(traffic, bytes of a layer, scenario) of three micro-batches on so many devices."""
    stack = toy_stack(zero_stages=(0, 1, 2, 3), reduce_bytes=4, **changes)
    scenario = toy_scenario(stack=stack, group=toy_group(device=toy_device(bandwidth=1e30)))
    rows = strategies(dp=gpus, zero_stage=stage, sharding_degree=degree or gpus, num_microbatches=BATCHES)
    return step_traffic(rows, scenario, INSTANT), layer_parameters_per_rank(rows, scenario), rows, scenario


def scattered(size, ranks, rate=100e9):
    return size * (ranks - 1) / ranks / rate


def whole(rows, scenario):
    """Parameters of the model with its embedding and head."""
    return heaviest_stage_parameters(rows, scenario)


def test_a_sharded_optimizer_scatters_gradients_of_experts_and_gathers_them():
    scenario = toy_scenario(model=with_experts(toy_model()), gpus=8, stack=toy_stack(reduce_bytes=4))
    rows = strategies(dp=8, ep=2, zero_stage=[0, 1], sharding_degree=[1, 8], rank_order=0)
    reduced, gathered = _experts_once(rows, scenario)
    assert reduced[1] == pytest.approx(reduced[0] / 2)
    assert gathered == pytest.approx([0.0, reduced[1] / 2])


def test_sharded_gradients_are_scattered_in_every_micro_batch_and_parameters_gathered_once():
    traffic, _, rows, scenario = sharded(2)
    assert traffic.gradients == pytest.approx(BATCHES * scattered(4 * whole(rows, scenario), 4))
    assert traffic.parameters == pytest.approx(scattered(2 * heaviest_stage_parameters(rows, scenario), 4))


def test_a_host_that_lists_the_parts_of_every_weight_takes_its_time_per_rank_weight_and_collective():
    listing = {ranks: sharded(3, gpus=ranks, copy_time_per_rank="1 ms")[0] for ranks in (2, 4)}
    for ranks, traffic in listing.items():
        plain = sharded(3, gpus=ranks)[0]
        once = BATCHES * LAYERS * 4 * ranks * 1e-3
        assert traffic.parameters - plain.parameters == pytest.approx(once)
        assert traffic.gradients - plain.gradients == pytest.approx(2 * once)
    assert sharded(2, copy_time_per_rank="1 ms")[0].total == pytest.approx(sharded(2)[0].total)


def test_parameters_gathered_into_a_list_are_copied_tensor_by_tensor_and_rank_by_rank():
    listing = {stage: sharded(stage, copy_time_per_rank="1 ms", parameter_exchange="listed")[0] for stage in (0, 1)}
    tensors = 2 + 2 + 2  # projections of attention, matrices of the feed-forward network, norms
    assert listing[1].parameters - sharded(1)[0].parameters == pytest.approx(LAYERS * tensors * 4 * 1e-3)
    assert listing[0].total == pytest.approx(sharded(0)[0].total)


def test_gradients_that_every_rank_adds_up_travel_twice_although_states_are_sharded():
    everywhere, _, rows, scenario = sharded(1, gradient_exchange="all-reduce")
    owners = sharded(1)[0]
    whole = 4 * heaviest_stage_parameters(rows, scenario)
    assert owners.gradients == pytest.approx(scattered(whole, 4))
    assert everywhere.gradients == pytest.approx(2 * owners.gradients)
    assert everywhere.parameters == pytest.approx(owners.parameters)


def test_breadth_first_gathers_and_scatters_a_stage_s_layers_once_an_iteration():
    """For both passes, whatever the number of micro-batches; copied once too."""
    layer, scenario = sharded(3)[1], sharded(3, gathers_per_micro_batch=True)[3]
    schedule = SCHEDULE_NAMES.index("breadth-first")
    known = {"dp": 4, "pp": 2, "vpp": 2, "schedule": schedule, "zero_stage": 3, "sharding_degree": 4}
    for batches in (3, 30):
        rows = strategies(**known, num_microbatches=batches)
        traffic, first = step_traffic(rows, scenario, INSTANT), embedding_parameters_per_rank(rows, scenario)
        assert traffic.parameters == pytest.approx(scattered(2 * (LAYERS / 2 * layer + first), 4))
        assert traffic.gradients == pytest.approx(scattered(LAYERS / 2 * 6 * layer + 4 * first, 4))


def test_parameters_kept_from_forward_to_backward_are_gathered_once_a_micro_batch():
    """What reshard_after_forward=False does: half of the gathers of stage 3, with whole parameters in memory."""
    kept, layer, rows, scenario = sharded(2, fsdp_stage2=True)
    again = sharded(3, fsdp_stage2=True)[0]
    assert kept.parameters == pytest.approx(BATCHES * scattered(2 * whole(rows, scenario), 4))
    assert kept.parameters == pytest.approx(again.parameters)
    assert again.gradients - kept.gradients == pytest.approx(BATCHES * LAYERS * scattered(2 * layer, 4))
    assert row_bytes(rows, scenario).state.weights.tolist() == [2.0]


def test_a_model_that_passes_forward_again_gathers_again():
    once, again = (sharded(3, **task)[0].parameters for task in ({}, {"task": "dpo", "reference_model": "copy"}))
    assert again == pytest.approx(2 * once)


def test_a_head_in_the_unit_of_the_embedding_has_nothing_to_hide_behind():
    """A head in a unit of its own travels during the last layer, where the time of that allows."""
    layers = Passes(np.full(1, 1e3), np.full(1, 1e3))
    known = {"fsdp_stage2": True, "switches": HIDING, "compute_slowdown": 0.0}
    scenarios = [sharded(3, root_unit=root, **known)[3] for root in (False, True)]
    rows = sharded(3, **known)[2]
    head = head_parameters_per_rank(rows, scenarios[0])
    (backward, forward), (later, longer) = (every_micro_batch(rows, one, layers) for one in scenarios)
    assert longer - forward == pytest.approx(BATCHES * scattered(2 * head, 4))
    assert later - backward == pytest.approx(BATCHES * scattered(4 * head, 4))


def test_a_pipeline_keeps_gradients_whole_until_the_last_micro_batch():
    scenario = toy_scenario(stack=toy_stack(zero_stages=(0, 1, 2)))
    rows = strategies(pp=2, dp=4, schedule=ONE_F_ONE_B, zero_stage=[1, 2], sharding_degree=4, num_microbatches=4)
    nothing = Passes(np.zeros(2), np.zeros(2))
    first, second = step_traffic(rows, scenario, nothing).gradients
    assert first == second


@pytest.mark.parametrize(("once", "times"), [(False, BATCHES), (True, 1)])
def test_shards_are_reduced_over_replicas_in_every_micro_batch_or_once(once, times):
    traffic, layer, rows, scenario = sharded(3, gpus=8, degree=4, replicas_reduce_once=once)
    total = whole(rows, scenario)
    near = BATCHES * (LAYERS * scattered(2 * layer, 4) + scattered(4 * total, 4))
    far = times * 2 * scattered(4 * total / 4, 2, 10e9)
    assert traffic.gradients == pytest.approx(near + far)


def test_a_second_shard_in_the_node_spares_the_network_in_the_backward_pass_and_costs_memory():
    """ZeRO++: eight ranks on two nodes; backward each node gathers from its own four."""
    plain, layer, rows, scenario = sharded(3, gpus=8)
    second, _, same, doubled = sharded(3, gpus=8, zero_hpz=True)
    assert second_shards(rows, scenario).tolist() == [4]
    assert second.parameters == pytest.approx(plain.parameters)
    over_nodes, inside = 2 * layer * 7 / 8 / 4 / 10e9, scattered(2 * layer, 4)
    assert plain.gradients - second.gradients == pytest.approx(BATCHES * LAYERS * (over_nodes - inside))
    extra = row_bytes(same, doubled).everywhere - row_bytes(rows, scenario).everywhere
    assert extra == pytest.approx(2 * LAYERS * layer / 4)


def test_stages_lie_as_far_apart_as_the_ranks_that_share_states_between_them():
    """Four data ranks, two of which share states: those two, then the stages, then the other copy."""
    scenario = toy_scenario(stack=toy_stack(rank_orders=RANK_ORDERS))
    known = {"pp": 2, "dp": 4, "schedule": ONE_F_ONE_B, "rank_order": SHARDING_INSIDE, "zero_stage": 1}
    near, far = strategies(sharding_degree=2, **known), strategies(sharding_degree=4, **known)
    assert far.dp.tolist() == near.dp.tolist()
    assert stage_send_seconds(far, scenario) == pytest.approx(10 * stage_send_seconds(near, scenario))


def test_how_far_stages_lie_apart_is_known_once_the_sharding_is():
    scenario = toy_scenario(stack=toy_stack(rank_orders=RANK_ORDERS))
    rows = strategies(
        pp=2, dp=4, schedule=ONE_F_ONE_B, rank_order=SHARDING_INSIDE, zero_stage=1, sharding_degree=[2, 4]
    )
    cores = strategies(pp=2, dp=4, schedule=ONE_F_ONE_B, rank_order=SHARDING_INSIDE).take(np.zeros(2, dtype=np.int64))
    late = with_step(rows, scenario, core_seconds(cores, scenario)).send
    assert late.tolist() == row_seconds(rows, scenario).send.tolist()
    assert late[0] < late[1]


def test_the_head_travels_behind_the_layers_and_the_embedding_has_nothing_to_hide_behind():
    _, layer, rows, scenario = sharded(3, overlap_grad_reduce=True, overlap_param_gather=True, compute_slowdown=0.0)
    long = step_traffic(rows, scenario, Passes(np.ones(1), np.ones(1)))
    first = embedding_parameters_per_rank(rows, scenario)
    assert long.parameters == pytest.approx(BATCHES * scattered(2 * (layer + first), 4))
    assert long.gradients == pytest.approx(BATCHES * scattered(6 * layer + 4 * first, 4))


def test_stage_3_may_hide_what_lower_stages_do_not():
    ahead, window = {"overlap_zero3": True, "compute_slowdown": 0.0}, Passes(np.ones(1), np.ones(1))
    for stage, hides in ((2, False), (3, True)):
        _, _, rows, scenario = sharded(stage, **ahead)
        shown = step_traffic(rows, scenario, window)
        every = step_traffic(rows, scenario, INSTANT)
        assert bool(shown.gradients[0] < every.gradients[0]) is hides
        assert bool(shown.parameters[0] < every.parameters[0]) is hides
    _, _, rows, scenario = sharded(3, **ahead)
    _, _, _, always = sharded(3, overlap_grad_reduce=True, overlap_param_gather=True, compute_slowdown=0.0)
    assert step_traffic(rows, scenario, window).total == pytest.approx(step_traffic(rows, always, window).total)


def test_deepspeed_hides_traffic_at_stage_3_alone():
    known = stack("deepspeed").switches
    assert (known.overlap_grad_reduce, known.overlap_param_gather, known.overlap_zero3) == (False, False, True)


@pytest.mark.parametrize(("stage", "pp"), [(3, 1), (2, 1), (1, 2)])
def test_what_every_backward_pass_computes_again_hides_what_travels_in_every_micro_batch(stage, pp):
    """A network so slow that nothing is hidden whole: each second of computation more hides a second of traffic.

    That of all layers but the one that nothing comes before, and of the head.
    """
    slow = toy_group(device=toy_device(bandwidth=1e30), tiers=toy_tiers(inner=toy_link(bandwidth=1e6)))
    stack = toy_stack(zero_stages=(0, 1, 2, 3), switches=HIDING, compute_slowdown=0.0, bucket_exposed=0.0)
    scenario = toy_scenario(stack=stack, group=slow)
    plain, again, partly = (
        row_seconds(strategies(pp=pp, dp=4 // pp, **LAYOUT[pp], zero_stage=stage, recompute=kind), scenario)
        for kind in (Recompute.NONE, Recompute.FULL, Recompute.PARTIAL)
    )
    hidden, repeated = plain.data_parallel - again.data_parallel, again.recompute
    assert hidden == pytest.approx(repeated * (BATCHES * LAYERS if stage > 1 else 0.0))
    assert partly.data_parallel == plain.data_parallel  # how many layers is not settled yet


def test_what_hides_the_experts_of_another_micro_batch_hides_none_of_what_travels_in_every_one():
    """Of two seconds of either pass the partner's experts take half, or all."""
    _, layer, rows, scenario = sharded(3, overlap_grad_reduce=True, overlap_param_gather=True, compute_slowdown=0.0)
    seconds = scattered(2 * layer, 4)
    half, all_of_it = Passes(seconds, 2 * seconds), Passes(seconds / 2, seconds)
    beside = step_traffic(rows, scenario, half, paired=Passes(seconds / 2, seconds))
    alone = step_traffic(rows, scenario, all_of_it)
    assert beside.parameters == pytest.approx(alone.parameters)
    assert beside.gradients == pytest.approx(alone.gradients)
    assert beside.parameters > step_traffic(rows, scenario, half).parameters
    taken = step_traffic(rows, scenario, half, paired=half)
    assert taken.total == pytest.approx(step_traffic(rows, scenario, INSTANT).total)


def test_what_travels_once_an_iteration_passes_beside_a_micro_batch_without_a_partner():
    _, _, rows, scenario = sharded(1, overlap_grad_reduce=True, overlap_param_gather=True)
    window = Passes(np.ones(1), np.ones(1))
    assert step_traffic(rows, scenario, window, paired=window) == step_traffic(rows, scenario, window)


@pytest.mark.parametrize(("holds", "alike"), [(True, True), (False, False)])
def test_so_does_what_a_pipeline_gathers_once_and_holds(holds, alike):
    stack = toy_stack(zero_stages=(0, 1, 2, 3), pipeline_keeps_gathered=holds, switches=HIDING)
    scenario = toy_scenario(stack=stack)
    rows = strategies(pp=2, dp=4, zero_stage=3, sharding_degree=4, num_microbatches=BATCHES, schedule=ONE_F_ONE_B)
    window = Passes(np.ones(1), np.ones(1))
    paired, free = (step_traffic(rows, scenario, window, paired=beside).total for beside in (window, None))
    assert (paired == free) == alike


def test_gradients_that_a_pipeline_holds_travel_when_all_passes_are_over():
    """PyTorch's stages reduce behind their last backward pass and wait for it, whatever a layer could hide."""
    rows = strategies(pp=2, dp=4, zero_stage=3, sharding_degree=4, num_microbatches=BATCHES, schedule=ONE_F_ONE_B)
    ask = {"zero_stages": (0, 1, 2, 3), "pipeline_keeps_gathered": True}
    hiding, waiting = (
        toy_scenario(stack=toy_stack(**ask, overlap_grad_reduce=gradients, overlap_param_gather=True))
        for gradients in (True, False)
    )
    long = Passes(np.full(1, 1e3), np.full(1, 1e3))
    assert every_micro_batch(rows, hiding, long) == every_micro_batch(rows, waiting, long)


def test_a_pipeline_that_gathers_again_does_so_for_every_backward_pass():
    extra = []
    for batches in (BATCHES, 2 * BATCHES):
        rows = strategies(pp=2, dp=4, zero_stage=3, sharding_degree=4, num_microbatches=batches, schedule=ONE_F_ONE_B)
        held, again = (
            every_micro_batch(rows, toy_scenario(stack=toy_stack(**known)), INSTANT)
            for known in (
                {"pipeline_keeps_gathered": True},
                {"pipeline_keeps_gathered": True, "pipeline_reshards": True},
            )
        )
        assert again[1] == held[1]
        extra.append(again[0] - held[0])
    assert extra[1] == pytest.approx(2 * extra[0])
    assert 0 < extra[0] <= BATCHES * held[1]


@pytest.mark.parametrize(
    ("known", "out", "into"),
    [
        ({}, 4, 6),
        ({"gradient_copy_speed": 0.5}, 4, 12),
        ({"gradient_copy_speed": 0.5, "reduce_bytes": 2}, 4, 4),
        ({"state_copies": "gradients"}, 0, 4),
        ({"state_copies": "none"}, 0, 0),
    ],
)
def test_copies_around_the_collectives_of_one_micro_batch_move_so_many_bytes_a_parameter(known, out, into):
    """Out for either pass at stage 3; gradients are cast to the width of their reduction, or joined as they are."""
    rows = strategies(dp=4, zero_stage=3, sharding_degree=4)
    copying, instant = (
        toy_scenario(
            stack=toy_stack(zero_stages=(3,), **{"reduce_bytes": 4} | known),
            group=toy_group(device=toy_device(bandwidth=bandwidth)),
        )
        for bandwidth in (1e12, 1e30)
    )
    (backward, forward), (later, first) = (every_micro_batch(rows, one, INSTANT) for one in (copying, instant))
    moved = whole(rows, copying) / copying.rates.stream / 1e12
    assert forward - first == pytest.approx(out * moved)
    assert backward - later == pytest.approx((out + into) * moved)


@pytest.mark.parametrize(
    ("known", "inside", "across"),
    [({}, 0.35, 0.1), ({"nccl_ub": True}, 0.1, 0.1), ({"compute_slowdown": 0.0}, 0.0, 0.0)],
)
def test_collectives_that_stay_in_a_node_slow_computation_as_their_link_says(known, inside, across):
    tiers = toy_tiers(node=4, inner=toy_link(slowdown=0.35), outer=toy_link(slowdown=0.9))
    stack = toy_stack(**{"compute_slowdown": 0.1} | known)
    scenario = toy_scenario(stack=stack, group=toy_group(tiers=tiers))
    assert compute_slowdown(group_of(strategies(dp=[4, 8]), "dp"), scenario) == pytest.approx([inside, across])


def test_what_is_hidden_within_a_node_costs_more_than_beside_an_unknown_link():
    rows, window = strategies(dp=4, zero_stage=3, sharding_degree=4), Passes(np.ones(1), np.ones(1))
    known, plain = (
        toy_scenario(
            stack=toy_stack(zero_stages=(3,), reduce_bytes=4, switches=HIDING),
            group=toy_group(device=toy_device(bandwidth=1e30), tiers=toy_tiers(inner=toy_link(slowdown=rate))),
        )
        for rate in (0.35, None)
    )
    layer = layer_parameters_per_rank(rows, known)
    behind = scattered(8 * (LAYERS - 1) * layer, 4) + scattered(6 * head_parameters_per_rank(rows, known), 4)
    more = step_traffic(rows, known, window).total - step_traffic(rows, plain, window).total
    assert more == pytest.approx(behind * (0.35 / 1.35 - 0.126 / 1.126))


def over_hosts(hosts, *, degree, gathers="matrix", **changes):
    """Exposed (backward, forward) seconds of two nodes with endless windows, whose network takes 0.3 s to go around."""
    far = toy_link(bandwidth=1e14, base=0.2, step=0.1).model_copy(update={"through_hosts": hosts})
    group = toy_group(tiers=toy_tiers(inner=toy_link(bandwidth=1e14), outer=far), device=toy_device(bandwidth=1e30))
    stack = toy_stack(zero_stages=(0, 1, 2, 3), switches=HIDING, gather_unit=gathers, **changes)
    rows = strategies(dp=8, zero_stage=3, sharding_degree=degree, num_microbatches=BATCHES)
    endless = Passes(np.full(1, 1e6), np.full(1, 1e6))
    return np.ravel(every_micro_batch(rows, toy_scenario(stack=stack, group=group), endless))


@pytest.mark.parametrize(("gathers", "times"), [("matrix", 8), ("layer", 1)])
def test_what_collectives_wait_for_hosts_is_not_hidden_and_counts_for_every_weight_of_a_compiler(gathers, times):
    """Copies on two nodes meet once an iteration, there and back; shards over both, in every pass."""
    meeting = over_hosts(True, degree=4, gathers=gathers, replicas_reduce_once=True)
    hidden = over_hosts(False, degree=4, gathers=gathers, replicas_reduce_once=True)
    assert meeting - hidden == pytest.approx([LAYERS * times * 2 * 0.3, 0.0])
    sharing, alone = (over_hosts(told, degree=8, gathers=gathers) for told in (True, False))
    assert sharing - alone == pytest.approx([2 * BATCHES * LAYERS * times * 0.3, BATCHES * LAYERS * times * 0.3])


def test_the_weights_of_a_layer_are_counted_as_a_compiler_sees_them():
    assert weights_per_layer(toy_model(gated_ffn=True)) == 4 + 3 + 2
    assert weights_per_layer(toy_model().model_copy(update={"parallel_block": True})) == 4 + 2 + 1


@pytest.mark.parametrize("model", ["llama3-8b", "qwen3-30b-a3b"])
def test_what_a_layer_repeats_in_part_hides_full_sharding_as_what_it_repeats_whole(model):
    def priced(recompute):
        pins = {"zero_stage": 3, "dp": 64, "micro_batch_size": 1, "recompute": recompute}
        asked = PlanRequest(model=model, cluster="ethernet-h100", gpus=64, stack="torchtitan", framework="any")
        changes = {"seq_length": 2048, "global_batch_size": 64, "pins": pins}
        found = predict(asked.model_copy(update=changes))
        return found.prediction.iteration_seconds, found.breakdown_seconds["dp"]

    none, some, whole = (priced(kind) for kind in ("none", "selective", "full"))
    assert none[0] < some[0] < whole[0]
    assert none[1] > some[1] > whole[1]
