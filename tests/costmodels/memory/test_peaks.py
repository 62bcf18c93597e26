"""What lives for a moment, counted by hand."""

import pytest

from costmodels.layer.blocks import layer_seconds
from costmodels.memory.activations import average_activation_bytes, layer_checkpoint_bytes
from costmodels.memory.peaks import WORKSPACES, loss_peak, momentary_bytes, standing_bytes, step_bytes
from costmodels.memory.rows import row_bytes
from costmodels.memory.states import state_bytes
from costmodels.names import Recompute
from costmodels.strategy import strategies
from tests.each import each
from tests.scenarios import (
    ONE_F_ONE_B,
    toy_device,
    toy_group,
    toy_hybrid,
    toy_model,
    toy_scenario,
    toy_stack,
    with_experts,
)

T, H, F, V = 1024, 1024, 4096, 8192
GATED = {"gated_ffn": True, "ffn_hidden_size": F}
SHARED = {"num_shared_experts": 1, "shared_expert_ffn_hidden_size": 256}


def test_behind_a_gated_activation_stand_its_two_gradients_less_what_it_let_go():
    scenario = toy_scenario(model=toy_model(**GATED), stack=toy_stack(dummy_gradients=True))
    peak = momentary_bytes(strategies(), scenario)
    assert peak == pytest.approx(2 * T * H + 2 * T * 2 * F + 2 * T * F - 2 * T * F)


def test_a_gradient_that_is_made_anew_stands_beside_the_first_matrix():
    wide = toy_model(**(GATED | {"seq_length": 128}))
    idle, anew = (toy_scenario(model=wide, stack=toy_stack(dummy_gradients=yes)) for yes in (True, False))
    t = 128
    assert momentary_bytes(strategies(), anew) == pytest.approx(
        2 * t * H + 2 * t * 2 * F + 2 * t * H + 2 * 2 * F * H - (2 * t * 2 * F + 2 * t * F)
    )
    shapes = 3 * H * H + H * H + 2 * F * H + F * H
    kept = standing_bytes(strategies(tp=2), idle) - standing_bytes(strategies(tp=2), anew)
    assert kept == pytest.approx(2 * shapes / 2)
    assert standing_bytes(strategies(), anew) == WORKSPACES


def test_experts_that_every_token_meets_have_idle_gradients_of_their_own():
    models = (with_experts(toy_model(**GATED), **sizes) for sizes in ({}, SHARED))
    few, more = (toy_scenario(model=model, stack=toy_stack(dummy_gradients=True)) for model in models)
    rows = strategies(tp=2)
    assert standing_bytes(rows, more) - standing_bytes(rows, few) == pytest.approx(2 * 3 * 256 * H / 2)


def test_unfused_attention_holds_the_gradient_of_its_scores():
    scenario = toy_scenario(stack=toy_stack(attention_backend=("unfused",)), model=toy_model(seq_length=8192))
    t = 8192
    let_go = 2 * t * F * 2 + 2 * 2 * t * H
    assert momentary_bytes(strategies(), scenario) == pytest.approx(2 * t * H + 2 * 8 * t * t - let_go)
    cut = toy_scenario(
        stack=toy_stack(attention_backend=("unfused",), attention_block=7168), model=toy_model(seq_length=8192)
    )
    assert momentary_bytes(strategies(), cut) == pytest.approx(2 * t * H + 2 * 8 * 7168**2 - let_go)


def test_the_loss_peaks_at_its_softmax_or_at_the_gradient_of_the_head():
    long, short = (toy_scenario(model=toy_model(seq_length=s)) for s in (8192, 128))
    assert loss_peak(strategies(), long) == pytest.approx(6 * 8192 * V + 4 * 8192 * H)
    assert loss_peak(strategies(), short) == pytest.approx(2 * (128 * V + V * H + 128 * H) + 4 * 128 * H)


def test_gathered_logits_are_whole_on_every_tensor_rank():
    split, whole = (toy_scenario(stack=toy_stack(gathered_logits=yes)) for yes in (False, True))
    rows = strategies(tp=4)
    assert loss_peak(rows, whole) - loss_peak(rows, split) == pytest.approx(6 * T * V * 3 / 4)


def test_what_the_last_layer_needs_does_not_add_to_the_loss():
    memory = row_bytes(strategies(), toy_scenario())
    both = memory.logits + momentary_bytes(strategies(), toy_scenario())
    assert both == pytest.approx(loss_peak(strategies(), toy_scenario()))


def test_a_large_first_peaks_when_its_gradient_is_made():
    rows = strategies(pp=8, schedule=ONE_F_ONE_B, num_microbatches=8)
    scenario = toy_scenario(model=toy_model(vocab_size=2**20))
    memory = row_bytes(rows, scenario)
    moment = momentary_bytes(rows, scenario)
    assert memory.first_peak == pytest.approx(2 * 2**20 * H - moment - memory.stored)
    assert memory.first == pytest.approx(memory.embedding_parameters * memory.state.total + memory.first_peak)
    assert row_bytes(rows, toy_scenario()).first_peak == 0


def test_a_step_copies_gradients_when_nothing_else_is_held():
    model = toy_model(seq_length=128)
    wide, narrow, flat = (
        toy_scenario(model=model, stack=toy_stack(gradient_bytes=width, flattened_copy=yes))
        for width, yes in ((4, False), (2, False), (2, True))
    )
    rows = strategies(dp=4, zero_stage=[0, 1], sharding_degree=[1, 4])
    assert step_bytes(rows, wide).tolist() == [0, 0]
    assert step_bytes(rows, narrow).tolist() == [4, 1]
    assert step_bytes(rows, flat).tolist() == [6, 3]
    memory = row_bytes(rows, flat)
    parameters = 8 * memory.layer_parameters + memory.embedding_parameters
    kept = momentary_bytes(rows, flat) + 8 * memory.stored + loss_peak(rows, flat)
    assert memory.first_peak == pytest.approx(step_bytes(rows, flat) * parameters - kept)


def test_full_sharding_keeps_embedding_and_head_gathered_through_both_passes():
    rows = strategies(dp=4, zero_stage=3, sharding_degree=4)
    sharding = {"unsharded": {}, "units": {"fsdp_stage2": True}, "root": {"fsdp_stage2": True, "root_unit": True}}
    often, units, root = (row_bytes(rows, toy_scenario(stack=toy_stack(**known))) for known in sharding.values())
    assert root.first - often.first == pytest.approx(2 * root.embedding_parameters)
    assert units.first == often.first
    for outer in (units, root):
        assert outer.last - often.last == pytest.approx(2 * outer.head_parameters)


def test_recomputed_operators_keep_what_attention_returns_unless_the_list_lacks_it():
    device = toy_device()
    kernels = device.kernels.model_copy(update={"attention": {"cudnn": device.kernels.attention["flash-2"]}})
    group = toy_group(device=device.model_copy(update={"kernels": kernels}))
    rows = strategies(recompute=Recompute.SELECTIVE)
    known = {"attention_backend": ("cudnn",), "recompute_policy": "operators"}
    saved, lost = (toy_scenario(group=group, stack=toy_stack(**known, saves_cudnn=yes)) for yes in (True, False))
    heads = saved.model.num_heads
    fewer = average_activation_bytes(rows, saved) - average_activation_bytes(rows, lost)
    assert fewer == pytest.approx(T * (2 * H + 4 * heads))
    layer = layer_seconds(rows, lost)
    again = layer.repeated("operators", attends=True) - layer.repeated("operators")
    assert again == pytest.approx(layer.attention.forward)
    assert saved.keeps_attention
    assert not lost.keeps_attention


@each(
    ("kept", "width"),
    [
        ("gate", 2 * F),
        ("norm", 4 * 2 * H),
        ("norm-16", 2 * 2 * H),
        ("key-values", 2 * 2 * (H - H // 4)),
        ("rotated", 2 * (H + H // 4)),
        ("transposed", 2 * H),
    ],
)
def test_operations_that_are_not_fused_keep_tensors_of_their_own(kept, width):
    model = toy_model(**(GATED | {"num_query_groups": 2})).model_copy(update={"position": "rotary"})
    fused, other = (toy_scenario(model=model, stack=toy_stack(saved_tensors=keeps)) for keeps in ((), (kept,)))
    rows = strategies()
    assert average_activation_bytes(rows, other) - average_activation_bytes(rows, fused) == pytest.approx(T * width)


def test_a_layer_without_attention_keeps_none_of_its_tensors():
    kept, rows = ("key-values", "rotated", "projected", "transposed"), strategies()
    for groups in (2, 8):
        model = toy_hybrid("M-M-", num_query_groups=groups).model_copy(update={"position": "rotary"})
        fused, other = (toy_scenario(model=model, stack=toy_stack(saved_tensors=keeps)) for keeps in ((), kept))
        assert average_activation_bytes(rows, other) == average_activation_bytes(rows, fused)


def test_keys_and_values_stay_beside_the_projection_of_as_many_queries():
    rows = strategies()
    for groups, width in ((8, 2 * 2 * H), (2, 0)):
        model = toy_model(**(GATED | {"num_query_groups": groups}))
        apart, viewed = (
            toy_scenario(model=model, stack=toy_stack(saved_tensors=keeps)) for keeps in ((), ("projected",))
        )
        assert average_activation_bytes(rows, viewed) - average_activation_bytes(rows, apart) == T * width


def test_gathered_inputs_are_kept_whole_and_checkpoints_can_be_split():
    rows = strategies(tp=4, sequence_parallel=1)
    again, whole = (toy_scenario(stack=toy_stack(keeps_gathered_inputs=yes)) for yes in (False, True))
    extra = average_activation_bytes(rows, whole) - average_activation_bytes(rows, again)
    assert extra == pytest.approx(2 * 2 * H * T * 3 / 4)
    split = toy_scenario(stack=toy_stack(partitioned_inputs=True))
    assert layer_checkpoint_bytes(strategies(tp=4), split) == layer_checkpoint_bytes(rows, again) == 2 * H * T / 4


def test_new_parameters_that_one_collective_gathers_stand_beside_the_old_ones():
    rows = strategies(dp=4, zero_stage=[0, 1, 3], sharding_degree=[1, 4, 4])
    many, one = (toy_scenario(stack=toy_stack(joint_gather=joint)) for joint in (False, True))
    assert step_bytes(rows, many).tolist() == [0, 0, 0]
    assert step_bytes(rows, one).tolist() == [0, 2 + 2 / 4, 0]


def test_gradients_that_linger_are_let_go_as_the_next_ones_come():
    rows = strategies()
    known = {"gradient_bytes": 2, "flattened_copy": True}
    gone, stay = (toy_scenario(stack=toy_stack(**known, kept_until_next_step=yes)) for yes in (False, True))
    assert step_bytes(rows, gone).tolist() == [6]
    assert step_bytes(rows, stay).tolist() == [0]
    assert state_bytes(rows, stay).gradients - state_bytes(rows, gone).gradients == 6
