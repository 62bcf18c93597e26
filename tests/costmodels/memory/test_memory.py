import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.layer.context import exchange_bytes
from costmodels.layout.split import Assignment
from costmodels.layout.stage_contents import in_flight
from costmodels.memory.activations import average_activation_bytes, layer_checkpoint_bytes
from costmodels.memory.even_peaks import even_peaks
from costmodels.memory.footprint import footprint, readings
from costmodels.memory.limits import device_limit, memory_limit
from costmodels.memory.peaks import loss_peak, standing_bytes
from costmodels.memory.rows import row_bytes
from costmodels.memory.states import state_bytes
from costmodels.model.parameters import parameters
from costmodels.names import CP_KINDS, SCHEDULE_NAMES, Recompute
from costmodels.pricing import row_assignment, stage_bytes
from costmodels.stack.stack import stack
from costmodels.strategy import strategies
from tests.costmodels.priced import check_peaks
from tests.drawn import drawn_scenarios
from tests.scenarios import (
    GPIPE,
    INTERLEAVED,
    ONE_F_ONE_B,
    changed_device,
    random_rows,
    toy_device,
    toy_group,
    toy_model,
    toy_scenario,
    toy_stack,
)

GIB = 2.0**30


def korthikanti(*, s, b, h, a, t):
    """Bytes of a layer's activations, and with sequence parallelism: equations 2 and 4 of arXiv 2205.05198."""
    return s * b * h * (10 + 24 / t + 5 * a * s / (h * t)), s * b * h / t * (34 + 5 * a * s / h)


def test_replicas_reduce_in_buckets_that_stay_beside_their_gradients():
    rows = strategies(dp=[1, 4, 4], zero_stage=[0, 0, 1], sharding_degree=[1, 1, 4])
    plain, buckets = (state_bytes(rows, toy_scenario(stack=toy_stack(ddp_bucket_bytes=n))) for n in (0, 2))
    assert (buckets.gradients - plain.gradients).tolist() == [0.0, 2.0, 0.0]


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("micro", [1, 3])
def test_activations_of_a_gpt_layer_are_those_of_korthikanti_to_the_byte(tp, micro):
    scenario = toy_scenario(stack=stack("megatron-lm-2022"))
    rows = strategies(tp=tp, micro_batch_size=micro, sequence_parallel=[0, 1])
    plain, split = korthikanti(s=1024, b=micro, h=1024, a=8, t=tp)
    whole, divided = average_activation_bytes(rows, scenario)
    assert whole == plain
    assert divided == split


def test_selective_recomputation_keeps_no_scores():
    scenario = toy_scenario(stack=stack("megatron-lm-2022"))
    rows = strategies(tp=4, sequence_parallel=1, recompute=[Recompute.NONE, Recompute.SELECTIVE])
    kept, dropped = average_activation_bytes(rows, scenario)
    assert dropped == 34 * 1024 * 1024 / 4
    assert kept - dropped == 5 * 8 * 1024 * 1024 / 4


def test_a_recomputed_layer_keeps_its_input():
    memory = row_bytes(strategies(tp=4, sequence_parallel=[0, 1]), toy_scenario())
    assert memory.checkpoint.tolist() == [2 * 1024 * 1024, 2 * 1024 * 1024 / 4]


@given(st.sampled_from([1, 2, 4, 8, 64]))
def test_mixed_precision_adam_holds_six_bytes_and_its_shard_of_twelve_a_parameter(degree):
    """16-bit weights and 32-bit gradients on every rank, 32-bit weights and moments sharded: 6 + 12/d."""
    scenario = toy_scenario(stack=stack("megatron-core"))
    zero = int(degree > 1)
    state = state_bytes(strategies(zero_stage=zero, sharding_degree=degree, dp=degree), scenario)
    assert state.total == pytest.approx(6 + 12 / degree)


@pytest.mark.parametrize(("optimizer", "word", "sharded"), [("adam-bf16", 2, 2 + 4), ("adam", 4, 4 + 8)])
def test_full_sharding_that_keeps_what_it_gathered_holds_its_shard_beside_it(optimizer, word, sharded):
    states = {"optimizer": optimizer, "weight_bytes": word, "optimizer_bytes": 8 if word == 2 else 12}
    rows = strategies(dp=8, zero_stage=2, sharding_degree=8)
    held = state_bytes(rows, toy_scenario(stack=toy_stack(fsdp_stage2=True, zero_stages=(0, 1, 2, 3), **states)))
    assert held.weights + held.optimizer == pytest.approx(2 + sharded / 8)


def test_zero_stages_shard_optimizer_then_gradients_then_weights():
    state = state_bytes(strategies(dp=8, zero_stage=[0, 1, 2, 3], sharding_degree=[1, 8, 8, 8]), toy_scenario())
    assert state.optimizer == pytest.approx([12, 12 / 8, 12 / 8, 12 / 8])
    assert state.gradients == pytest.approx([4, 4, 4 / 8, 4 / 8])
    assert state.weights == pytest.approx([2, 2, 2, 2 / 8])


def test_two_pieces_of_a_model_on_a_stage_are_replicas_that_share_what_is_sharded():
    rows = strategies(pp=2, dp=4, zero_stage=1, sharding_degree=4, schedule=[1, SCHEDULE_NAMES.index("dualpipe")])
    assert state_bytes(rows, toy_scenario()).optimizer == pytest.approx([12 / 4, 12 / 8])


def test_what_context_ranks_exchange_is_held_on_every_stage():
    rows = strategies(cp=2, cp_kind=[CP_KINDS.index(kind) for kind in ("p2p", "a2a")])
    needed, held = exchange_bytes(rows, toy_scenario()), row_bytes(rows, toy_scenario()).everywhere
    assert needed[0] > needed[1]
    assert held[0] - held[1] == pytest.approx(needed[0] - needed[1])


def test_single_precision_has_no_copies():
    state = state_bytes(strategies(), toy_scenario(precision="fp32"))
    assert state.total == pytest.approx(4 + 4 + 8)


@settings(max_examples=40, deadline=None)
@given(drawn_scenarios(gpus=(8,)), st.sampled_from([2, 4, 8]))
def test_a_higher_zero_stage_and_a_wider_group_never_hold_more_state(scenario, degree):
    """Save that stage 2 of full sharding steps on shards besides what it keeps gathered; stage 1 steps in place."""
    totals = state_bytes(
        strategies(dp=8, zero_stage=[0, 1, 2, 3], sharding_degree=[1, degree, degree, degree]), scenario
    ).total
    beside = scenario.stack.states.weight_bytes / degree if scenario.stack.sharding.fsdp_stage2 else 0
    assert (np.diff(totals) <= [0, beside, 0]).all()
    wider = state_bytes(strategies(dp=8, zero_stage=1, sharding_degree=[2, 4, 8]), scenario).total
    assert (np.diff(wider) < 0).all()


@pytest.mark.parametrize(
    ("row", "held"),
    [
        ({"pp": 1, "num_microbatches": 8}, [1]),
        ({"pp": 4, "num_microbatches": 8, "schedule": ONE_F_ONE_B}, [4, 3, 2, 1]),
        ({"pp": 4, "num_microbatches": 2, "schedule": ONE_F_ONE_B}, [2, 2, 2, 1]),
        ({"pp": 4, "num_microbatches": 8, "schedule": GPIPE}, [8, 8, 8, 8]),
        ({"pp": 4, "num_microbatches": 8, "vpp": 2, "schedule": INTERLEAVED}, [5.5, 4.5, 3.5, 2.5]),
    ],
)
def test_micro_batches_in_flight_are_those_of_the_papers(row, held):
    rows = strategies(**row)
    stages = np.arange(row["pp"])
    assert in_flight(rows.take(np.zeros(row["pp"], dtype=int)), stages).tolist() == held


@settings(max_examples=150, deadline=None)
@given(drawn_scenarios(gpus=(1, 4, 8, 16)), st.integers(0, 2**32 - 1))
def test_the_even_peak_is_the_fullest_stage_of_the_even_split(scenario, seed):
    check_peaks(random_rows(scenario, 12, seed), scenario)


@settings(max_examples=60, deadline=None)
@given(drawn_scenarios(gpus=(4, 8)), st.integers(0, 2**32 - 1))
def test_the_limit_admits_exactly_what_the_device_can_hold(scenario, seed):
    rows = random_rows(scenario, 12, seed)
    layers, memory = scenario.model.num_layers, row_bytes(rows, scenario)
    scenario = changed_device(scenario, usable_memory=float(np.median(even_peaks(rows, memory, layers))) * 1.01)
    for index in range(len(rows)):
        split = row_assignment(rows.take(np.array([index])), layers)
        stages = footprint(rows, memory, scenario, row=index, layers=split.layers, recomputed=split.recomputed)
        held, limit = stages.handed_out.max(), device_limit(scenario, rows)[index]
        if abs(held / limit - 1) > 1e-9:
            assert (even_peaks(rows, memory, layers)[index] <= memory_limit(scenario, rows)[index]) == (held <= limit)


@settings(max_examples=60, deadline=None)
@given(drawn_scenarios(gpus=(4, 8)), st.integers(0, 2**32 - 1))
def test_recomputing_one_more_layer_never_holds_more(scenario, seed):
    rows = random_rows(scenario, 6, seed)
    memory = row_bytes(rows, scenario)
    for index in range(len(rows)):
        split = row_assignment(rows.take(np.array([index])), scenario.model.num_layers)
        layers = split.layers
        used = [
            footprint(rows, memory, scenario, row=index, layers=layers, recomputed=np.minimum(layers, r)).allocated
            for r in range(1, layers.max() + 1)
        ]
        assert (np.diff(used, axis=0) <= 1e-6).all()


def test_the_states_of_all_ranks_add_up_to_the_model():
    model = toy_model().model_copy(update={"tied_embeddings": False})
    scenario = toy_scenario(model=model, stack=toy_stack(zero_stages=(0,)))
    rows = strategies(pp=4, schedule=ONE_F_ONE_B)
    split = row_assignment(strategies(pp=4), 8)
    stages = footprint(
        rows, row_bytes(rows, scenario), scenario, row=0, layers=split.layers, recomputed=split.recomputed
    )
    assert (stages.weights + stages.gradients + stages.optimizer).sum() == pytest.approx(18 * parameters(model))


def test_slack_and_reserve_come_on_top_of_what_is_allocated():
    scenario = toy_scenario(
        stack=toy_stack(fragmentation=0.25, reserved="2 GiB"), group=toy_group(device=toy_device(memory=12 * GIB))
    )
    rows, split = strategies(), row_assignment(strategies(), 8)
    stages = footprint(
        rows, row_bytes(rows, scenario), scenario, row=0, layers=split.layers, recomputed=split.recomputed
    )
    assert stages.total == pytest.approx(1.25 * stages.allocated + 2 * GIB)
    assert memory_limit(scenario, rows) == pytest.approx(8 * GIB)


def test_tensor_parallelism_has_a_slack_of_its_own_where_the_stack_says_so():
    stack = toy_stack(fragmentation=0.0, tensor_fragmentation=0.25)
    scenario = toy_scenario(stack=stack, group=toy_group(device=toy_device(memory=12 * GIB)))
    assert memory_limit(scenario, strategies(tp=1)) == pytest.approx(12 * GIB)
    assert memory_limit(scenario, strategies(tp=2)) == pytest.approx(9.6 * GIB)


@pytest.mark.parametrize(("schedule", "both"), [("1f1b", False), ("gpipe", True)])
def test_a_layer_is_recomputed_after_the_logits_are_let_go(schedule, both):
    rows = strategies(pp=2, num_microbatches=4, recompute=Recompute.FULL, schedule=SCHEDULE_NAMES.index(schedule))
    memory = row_bytes(rows, toy_scenario())
    extra = memory.logits + memory.working_at(np.array([True]))
    whole = memory.logits + memory.working if both else np.maximum(memory.logits, memory.working)
    assert extra == pytest.approx(whole)
    assert memory.working_at(np.array([False])) == pytest.approx(memory.working)


def test_block_wise_cross_entropy_holds_the_logits_of_one_block():
    rows = strategies(micro_batch_size=4)
    whole, block = (loss_peak(rows, toy_scenario(stack=toy_stack(loss_block=size))) for size in (0, 512))
    assert whole - block == pytest.approx((4 * 1024 - 512) * 8192 * 6)


def test_parameters_gathered_for_the_moment_are_counted_under_stage_three():
    scenario = toy_scenario(stack=toy_stack(zero_stages=(3,)))
    rows, split = strategies(dp=4, zero_stage=3, sharding_degree=4), row_assignment(strategies(), 8)
    memory = row_bytes(rows, scenario)
    stages = footprint(rows, memory, scenario, row=0, layers=split.layers, recomputed=split.recomputed)
    shard = 2 / 4 * parameters(scenario.model)
    assert stages.weights[0] - shard >= 2 * 2 * memory.layer_parameters[0] * 0.99


def test_a_device_shows_what_the_allocator_took_once_and_never_more_than_it_has():
    parts = {"stack": toy_stack(cached_share=0.5, fragmentation=0.1, reserved="1 GiB")}
    rows, split = strategies(), row_assignment(strategies(), 8)
    roomy, full = (toy_scenario(group=toy_group(device=toy_device(memory=gib * GIB)), **parts) for gib in (80, 4))
    stages = footprint(rows, row_bytes(rows, roomy), roomy, row=0, layers=split.layers, recomputed=split.recomputed)
    cached, shown = readings(stages, roomy)
    assert cached == pytest.approx(1.5 * stages.allocated)
    assert shown == pytest.approx(1.5 * stages.allocated + GIB)
    assert stages.total == pytest.approx(1.1 * stages.allocated + GIB)
    assert stages.total[0] < 4 * GIB < shown[0]
    assert readings(stages, full)[1] == pytest.approx(4 * GIB)


def test_gradients_that_are_scattered_only_at_the_end_are_held_whole():
    rows = strategies(dp=8, zero_stage=3, sharding_degree=8)
    often, late = (
        state_bytes(rows, toy_scenario(stack=toy_stack(scatters_each_micro_batch=yes))) for yes in (True, False)
    )
    assert late.gradients == 8 * often.gradients
    assert late.weights == often.weights


def test_plain_products_keep_the_weights_that_stage_three_gathered():
    rows = strategies(dp=8, zero_stage=[2, 3], sharding_degree=8)
    plain, own = (row_bytes(rows, toy_scenario(stack=toy_stack(saved_tensors=keeps))) for keeps in (("gathered",), ()))
    assert plain.stored - own.stored == pytest.approx([0.0, 2.0 * own.layer_parameters[1]])


@pytest.mark.parametrize(("groups", "beside"), [(8, 1.0), (2, 0.0)])
def test_rotated_queries_and_keys_lie_beside_their_projection_unless_values_are_copied_out_of_it(groups, beside):
    rows, model = strategies(), toy_model(num_query_groups=groups).model_copy(update={"position": "rotary"})
    kept = (("key-values",), ("key-values", "rotated"))
    plain, turned = (row_bytes(rows, toy_scenario(model=model, stack=toy_stack(saved_tensors=keeps))) for keeps in kept)
    both = 2 * 1024 * (model.attention_width + model.key_value_width)
    assert turned.stored - plain.stored == pytest.approx(beside * both)


@pytest.mark.parametrize(("keeps", "word"), [((), 2), (("norm",), 2 + 4), (("norm-16",), 2 + 2)])
def test_norms_of_queries_and_keys_keep_what_they_read_beside_what_attention_does(keeps, word):
    rows, model = strategies(tp=[1, 4]), toy_model(num_query_groups=4)
    normed = model.model_copy(update={"qk_norm": "head"})
    own = toy_stack(saved_tensors=keeps)
    plain, more = (row_bytes(rows, toy_scenario(model=each, stack=own)) for each in (model, normed))
    width = 1024 * (model.attention_width + model.key_value_width)
    assert more.stored - plain.stored == pytest.approx(np.array([1, 1 / 4]) * word * width)


@pytest.mark.parametrize(("passes", "beside"), [(1, 0), (2, 1)])
def test_keys_and_values_that_a_model_returns_are_held_once_for_every_pass(passes, beside):
    rows, model = strategies(tp=[1, 4], recompute=Recompute.FULL), toy_model(num_query_groups=4)
    kept = ((), ("cache",) * passes)
    plain, returned = (
        row_bytes(rows, toy_scenario(model=model, stack=toy_stack(saved_tensors=keeps))) for keeps in kept
    )
    once = np.array([1, 1 / 4]) * 2 * 1024 * 2 * model.key_value_width
    assert returned.checkpoint - plain.checkpoint == pytest.approx(passes * once)
    assert returned.stored - plain.stored == pytest.approx(beside * once)  # attention keeps those of its own pass


@pytest.mark.parametrize(("behind", "buffers"), [(False, [0, 1, 1, 1]), (True, [0, 2, 2, 1])])
def test_gradients_are_reduced_in_buffers_two_where_they_travel_behind_the_pass(behind, buffers):
    rows = strategies(dp=8, zero_stage=[0, 1, 2, 3], sharding_degree=[1, 8, 8, 8])
    known = {"overlap_grad_reduce": behind}
    held, none = (
        standing_bytes(rows, toy_scenario(stack=toy_stack(reduce_bucket_size=b, **known))) for b in ("1 GiB", "0 GB")
    )
    assert held - none == pytest.approx(GIB * np.array(buffers))


@pytest.mark.parametrize("recomputed", [0, 1, 2])
def test_a_vocabulary_over_all_stages_holds_a_micro_batch_for_every_wait(recomputed):
    rows = strategies(pp=4, vocabulary=1, schedule=ONE_F_ONE_B, num_microbatches=8, recompute=int(Recompute.PARTIAL))
    scenarios = [toy_scenario(stack=toy_stack(vocabulary_in_flight=n)) for n in (1.0, 2.0)]
    split = Assignment(np.full(4, 2), np.full(4, recomputed))
    one, two = (stage_bytes(rows, scenario, split).allocated for scenario in scenarios)
    layer = row_bytes(rows, scenarios[0])
    output = 2.0 * 1024 * toy_model().hidden_size  # of the embedding, in 16 bits
    kept = (2 - recomputed) * layer.stored + recomputed * layer.checkpoint
    assert two - one == pytest.approx(np.full(4, kept + output) + np.array([1, 0, 0, 0]) * layer.embedding_activation)


def test_a_vocabulary_over_all_stages_has_the_logits_of_one_micro_batch_at_a_time():
    rows = strategies(pp=4, vocabulary=1, schedule=ONE_F_ONE_B, num_microbatches=8)
    at_ends = row_bytes(strategies(pp=4, schedule=ONE_F_ONE_B, num_microbatches=8), toy_scenario())
    spread = row_bytes(rows, toy_scenario(stack=toy_stack(vocabulary_in_flight=0.0)))
    shares = (at_ends.embedding_parameters + at_ends.head_parameters) * at_ends.state.total + at_ends.logits
    passing = (2.0 * 4 + 3 * 2.0 + 4.0) * 1024 * toy_model().hidden_size
    assert spread.everywhere - at_ends.everywhere == pytest.approx(shares / 4 + passing)


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.PARTIAL, Recompute.FULL])
def test_gpipe_needs_no_less_than_1f1b_at_the_optimizer_s_step(recompute):
    """Else a plan could fit that a search, which never looks at GPipe, does not see."""
    stack = toy_stack(flattened_copy=True, zero_stages=(0,))
    known = {"pp": 4, "num_microbatches": 8, "recompute": int(recompute)}
    rows = [strategies(**known, schedule=schedule) for schedule in (GPIPE, ONE_F_ONE_B)]
    scenario = toy_scenario(gpus=4, batch=8, stack=stack, model=toy_model(seq_length=128))
    first, second = (row_bytes(row, scenario).first_peak[0] for row in rows)
    assert first >= second > 0


def test_a_pipeline_that_holds_what_it_gathered_has_parameters_and_gradients_whole():
    rows = strategies(dp=4, pp=[1, 2], zero_stage=3, sharding_degree=4, schedule=[0, ONE_F_ONE_B])
    freed, held = (
        toy_scenario(stack=toy_stack(zero_stages=(3,), gradient_bytes=4, weight_bytes=4, pipeline_keeps_gathered=holds))
        for holds in (False, True)
    )
    let_go, kept = state_bytes(rows, freed), state_bytes(rows, held)
    assert let_go.weights.tolist() == [1.0, 1.0]
    assert kept.weights.tolist() == [1.0, 3.0]
    assert kept.gradients.tolist() == [1.0, 4.0]
    assert row_bytes(rows, held).everywhere[1] < row_bytes(rows, freed).everywhere[1]


def test_an_embedding_that_is_not_split_is_whole_on_every_tensor_rank():
    rows = strategies(tp=[1, 4])
    split, whole = (
        row_bytes(rows, toy_scenario(stack=toy_stack(whole_vocabulary=kept))) for kept in ((), ("embedding",))
    )
    assert whole.embedding_parameters[0] == whole.embedding_parameters[1] == split.embedding_parameters[0]
    assert split.embedding_parameters[1] < split.embedding_parameters[0] / 2
    assert whole.head_parameters.tolist() == split.head_parameters.tolist()


def test_training_in_fp32_keeps_four_bytes_of_every_value():
    rows = strategies(micro_batch_size=2)
    single, half = (toy_scenario(precision=name, stack=toy_stack(gradient_bytes=2)) for name in ("fp32", "bf16"))
    kept = [average_activation_bytes(rows, one)[0] for one in (single, half)]
    per_head = 4.0 * half.model.num_heads * 2 * 1024  # of fused attention, in fp32 either way
    assert kept[0] - per_head == pytest.approx(2 * (kept[1] - per_head))
    assert state_bytes(rows, single).gradients[0] == 4.0
    assert layer_checkpoint_bytes(rows, single)[0] == 2 * layer_checkpoint_bytes(rows, half)[0]


def test_gradients_that_stay_beside_their_sum_come_on_top_of_it():
    rows = strategies(dp=4, zero_stage=1, sharding_degree=4)
    stacks = (toy_stack(gradient_bytes=4, micro_batch_gradient_bytes=n) for n in (0, 2))
    alone, beside = (state_bytes(rows, toy_scenario(stack=one)) for one in stacks)
    assert beside.gradients[0] - alone.gradients[0] == 2.0
    assert beside.total[0] - alone.total[0] == 2.0


def test_relu_keeps_one_tensor_where_gelu_keeps_two():
    rows = strategies()
    smooth, cut = (toy_scenario(model=toy_model().model_copy(update={"activation": name})) for name in ("gelu", "relu"))
    less = average_activation_bytes(rows, smooth) - average_activation_bytes(rows, cut)
    assert less[0] == pytest.approx(2.0 * 1024 * smooth.model.ffn_hidden_size)
