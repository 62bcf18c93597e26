"""Optimizers, number formats, the loss and named modules: by hand, and which way they go."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.iteration import core_seconds
from costmodels.layer.blocks import kind_seconds
from costmodels.layer.experts import expert_layer
from costmodels.layer.forward_backward import Passes
from costmodels.layer.recompute_modules import (
    MODULES,
    allowed_mask,
    module_bytes,
    module_mask,
    module_names,
    modules_of,
    preset_masks,
)
from costmodels.layer.vocabulary import block_tokens, logit_bytes, loss_seconds
from costmodels.memory.activations import average_activation_bytes
from costmodels.memory.rows import row_bytes
from costmodels.memory.states import state_bytes
from costmodels.model.flops import module_flops, recomputed_flops
from costmodels.names import SCHEDULE_NAMES, Recompute
from costmodels.pricing import price_strategy, row_assignment
from costmodels.primitives.kernels import newton_schulz_flops
from costmodels.stack.choices import chosen
from costmodels.stack.optimizers import ALIASES, OPTIMIZERS, kept_bytes, named_optimizer, step_traffic_bytes
from costmodels.stack.switches import OptimizerName
from costmodels.step.offload import EVERYTHING, OPTIMIZER, step_offload_seconds, updated_parameters
from costmodels.step.optimizer import optimizer_seconds
from costmodels.step.traffic import step_traffic
from costmodels.strategy import strategies
from tests.drawn import drawn_expert_models, drawn_scenarios
from tests.each import each
from tests.scenarios import random_rows, toy_model, toy_scenario, toy_stack, with_experts, with_latent_attention

ROW = strategies(dp=8, zero_stage=1, sharding_degree=8, num_microbatches=2)
MIXED = with_latent_attention(with_experts(toy_model(), num_shared_experts=1, shared_expert_ffn_hidden_size=1024))
SOME = settings(max_examples=60, deadline=None)


# ---------------------------------------------------------------------------------------------- optimizers


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_the_two_copies_of_dualpipe_share_the_states_of_twice_the_layers(optimizer):
    """Each stage holds two pieces and half of their states: as much as under 1F1B, whatever the optimizer keeps."""
    scenario = toy_scenario(stack=toy_stack(optimizer=optimizer))
    known = {"pp": 4, "dp": 2, "zero_stage": 1, "sharding_degree": 2, "num_microbatches": 8}
    once, twice = (
        strategies(**known, schedule=SCHEDULE_NAMES.index(name), offload=OPTIMIZER) for name in ("1f1b", "dualpipe")
    )
    alone, shared = (state_bytes(rows, scenario).optimizer for rows in (once, twice))
    assert shared == pytest.approx(alone / 2)
    edges = [row_bytes(rows, scenario).end_optimizer_extra for rows in (once, twice)]
    assert edges[1] == pytest.approx(edges[0] / 2)
    assert updated_parameters(twice, scenario) == pytest.approx(updated_parameters(once, scenario), rel=0.2)
    assert step_offload_seconds(twice, scenario, Passes(np.zeros(1), np.zeros(1))) > 0


def test_parameters_on_the_host_come_in_once_an_iteration_breadth_first():
    scenario, nothing = toy_scenario(), Passes(np.zeros(1), np.zeros(1))
    known = {"pp": 2, "vpp": 2, "dp": 4, "zero_stage": 3, "sharding_degree": 4, "offload": EVERYTHING}

    def seconds(name, m):
        rows = strategies(**known, schedule=SCHEDULE_NAMES.index(name), num_microbatches=m)
        return step_offload_seconds(rows, scenario, nothing).item()

    assert seconds("breadth-first", 40) == seconds("breadth-first", 4)
    assert seconds("interleaved-1f1b", 40) > seconds("interleaved-1f1b", 4) > seconds("breadth-first", 4)


@each(
    ("name", "kept"),
    [
        ("adam", 12.0),
        ("adam-bf16", 8.0),
        ("lamb", 12.0),
        ("sgd", 8.0),
        ("sgd-plain", 4.0),
        ("adafactor", 4.0),
        ("lion", 8.0),
        ("lion-8bit", 4.0 + 1.0 + 4 / 256),
        ("adam-mini", 8.0),
        ("ademamix", 16.0),
        ("came", 8.0),
    ],
)
def test_states_per_parameter_are_those_of_the_literature(name, kept):
    assert kept_bytes(toy_stack(optimizer=name)) == kept
    assert state_bytes(ROW, toy_scenario(stack=toy_stack(optimizer=name))).optimizer == pytest.approx(kept / 8)


def test_eight_bit_moments_are_two_bytes_and_their_scales():
    assert kept_bytes(toy_stack(optimizer="adam-8bit")) == 4.0 + 2.0 + 2 * 4 / 256


def test_half_precision_masters_save_two_bytes_and_their_traffic():
    plain, narrow = toy_stack(), toy_stack(main_params="fp16")
    assert kept_bytes(plain) - kept_bytes(narrow) == 2.0
    assert step_traffic_bytes(plain) - step_traffic_bytes(narrow) == 4.0


def test_the_default_moves_what_the_stack_says():
    assert step_traffic_bytes(toy_stack(optimizer_traffic=38)) == 38.0


@pytest.mark.parametrize(("traffic", "moved"), [(92, 46.0), (38, 19.0)])
def test_a_step_of_16_bits_alone_moves_half_of_what_it_does_in_fp32(traffic, moved):
    narrow = {"weight_bytes": 2, "gradient_bytes": 2, "optimizer_bytes": 8, "optimizer_traffic": traffic}
    assert step_traffic_bytes(toy_stack(optimizer="adam-bf16", **narrow)) == moved
    wide = narrow | {"gradient_bytes": 4}
    assert step_traffic_bytes(toy_stack(optimizer="adam-bf16", **wide)) == traffic - 8.0


@each("name", OPTIMIZERS)
def test_fewer_bytes_of_states_are_never_slower_but_for_more_passes(name):
    now = optimizer_seconds(ROW, toy_scenario(stack=toy_stack(optimizer=name)))
    adam = optimizer_seconds(ROW, toy_scenario())
    slower = {"lamb", "muon", "adam-mini", "ademamix", "schedule-free-adam", "came"}
    assert (now > adam).all() if name in slower else (now <= adam).all()


@each(
    ("word", "name"),
    [
        ("adamw_torch_fused", "adam"),
        ("paged_adamw_8bit", "adam-8bit"),
        ("AdamW", "adam"),
        ("DeepSpeedCPUAdam", "adam"),
        ("lion_32bit", "lion"),
        ("adam-8bit", "adam-8bit"),
        ("schedule_free_adamw", "schedule-free-adam"),
        ("dist_muon", "muon"),
        ("nothing", "nothing"),
    ],
)
def test_optimizers_go_by_the_words_of_frameworks(word, name):
    assert named_optimizer(word) == name


def test_every_optimizer_is_a_value_of_the_switch_and_every_word_means_one():
    assert set(OPTIMIZERS) == set(get_args(OptimizerName))
    assert set(ALIASES.values()) <= set(OPTIMIZERS)


def test_an_optimizer_whose_states_follow_from_a_rank_is_refused_in_a_sentence():
    with pytest.raises(
        ValueError, match="galore_adamw is not priced: its states do not have a fixed number of bytes per parameter"
    ):
        named_optimizer("galore_adamw")


def test_newton_schulz_counts_the_products_one_by_one():
    n, m = 3.0, 5.0
    once = 2 * n * m * n + 2 * n * n * n + 2 * n * n * m
    assert newton_schulz_flops(n, m) == newton_schulz_flops(m, n) == 5 * once


def test_muon_keeps_one_moment_in_layers_and_two_at_the_edges():
    scenario = toy_scenario(stack=toy_stack(optimizer="muon"))
    memory = row_bytes(ROW, scenario)
    assert memory.state.optimizer * 8 == pytest.approx(8.0)
    assert memory.end_optimizer_extra * 8 == pytest.approx(4.0)
    held = price_strategy(ROW, scenario, row_assignment(ROW, 8)).footprint.optimizer
    edges = memory.embedding_parameters + memory.head_parameters
    assert held == pytest.approx((8 * memory.layer_parameters * 8 + edges * 12) / 8)


def test_muon_shares_its_products_over_the_ranks_that_share_the_states():
    scenario = toy_scenario(gpus=64, stack=toy_stack(optimizer="muon"))
    degrees = np.array([1, 2, 8, 64])
    rows = strategies(dp=64, zero_stage=(degrees > 1).astype(int), sharding_degree=degrees)
    assert (np.diff(optimizer_seconds(rows, scenario)) < 0).all()


def test_16_bit_gradients_halve_their_buffer_and_their_traffic():
    narrow = chosen(toy_stack(), main_grads="bf16")
    assert (narrow.gradients.gradient_bytes, narrow.gradients.reduce_bytes) == (2, 2)
    assert chosen(toy_stack()) is not None
    layer = Passes(np.zeros(1), np.zeros(1))
    wide, thin = (step_traffic(ROW, toy_scenario(stack=s), layer).gradients for s in (toy_stack(), narrow))
    assert thin == pytest.approx(wide / 2)


def test_sharded_weights_in_fp32_are_their_own_masters():
    rows = strategies(dp=8, zero_stage=[0, 2, 3], sharding_degree=[1, 8, 8])
    state = state_bytes(rows, toy_scenario(stack=toy_stack(weight_bytes=4, zero_stages=(0, 1, 2, 3))))
    assert state.weights == pytest.approx([2.0, 2.0, 4.0 / 8])
    assert state.optimizer == pytest.approx([12.0, 12.0 / 8, 8.0 / 8])


# ---------------------------------------------------------------------------------------------------- loss


def test_a_loss_in_blocks_holds_fewer_logits_and_multiplies_them_again():
    tokens, vocabulary = np.array([4096.0]), np.array([8192.0])
    whole, blocks = (toy_scenario(stack=toy_stack(loss_block=block)) for block in (0, 512))
    assert logit_bytes(tokens, vocabulary, blocks) == logit_bytes(tokens, vocabulary, whole) / 8
    plain, again = (loss_seconds(tokens, vocabulary, x) for x in (whole, blocks))
    assert again.forward == pytest.approx(plain.forward)
    assert again.backward - plain.backward == pytest.approx(plain.forward)


def test_a_block_of_all_tokens_changes_nothing():
    tokens, vocabulary = np.array([512.0]), np.array([8192.0])
    whole, blocks = (loss_seconds(tokens, vocabulary, toy_scenario(stack=toy_stack(loss_block=b))) for b in (0, 512))
    assert (whole.forward, whole.backward) == (blocks.forward, blocks.backward)


def test_the_fused_loss_chooses_blocks_of_about_the_size_of_the_hidden_state():
    scenario = toy_scenario(stack=toy_stack(loss="fused"))
    assert block_tokens(np.array([4096.0]), np.array([8192.0]), scenario) == [512.0]
    assert block_tokens(np.array([4096.0]), np.array([100.0]), scenario) == [4096.0]


@given(st.integers(10, 16), st.integers(10, 17))
def test_the_fused_loss_holds_less_where_there_are_as_many_tokens_as_it_is_wide(tokens, vocabulary):
    sizes = np.array([2.0**tokens]), np.array([2.0**vocabulary])
    plain, fused = (toy_scenario(stack=toy_stack(loss=loss)) for loss in ("plain", "fused"))
    assert logit_bytes(*sizes, fused) <= logit_bytes(*sizes, plain)


def test_the_fused_loss_adds_up_the_gradient_of_its_weights_block_by_block():
    sizes, h = (np.array([4096.0]), np.array([8192.0])), 1024.0
    once, eight = (loss_seconds(*sizes, toy_scenario(stack=toy_stack(loss="fused", loss_block=b))) for b in (4096, 512))
    assert eight.forward - once.forward == pytest.approx(7 * 8192 * h * 4 / 1e12)


# ------------------------------------------------------------------------------------------------- modules


def test_a_set_of_modules_is_a_number_and_back():
    assert module_names(module_mask(["mlp", "layernorm"])) == ("mlp", "layernorm")
    assert module_mask([]) == 0
    assert module_names(allowed_mask(MODULES)) == MODULES
    with pytest.raises(ValueError, match="no module 'moe_layer'; there are core_attn, mlp"):
        module_mask(["moe_layer"])


def test_a_module_inside_another_adds_nothing():
    assert module_mask(["moe", "moe_act", "shared_experts"]) == module_mask(["moe"])


def test_a_search_tries_only_what_model_and_stack_have():
    dense = [module_names(mask) for mask in preset_masks(toy_model(), toy_stack(recompute_modules=MODULES))]
    assert dense == [("layernorm",)]
    assert [module_names(mask) for mask in preset_masks(MIXED, toy_stack(recompute_modules=MODULES))] == [
        ("layernorm", "moe", "mla_up_proj"),
        ("layernorm", "moe_act", "mla_up_proj"),
    ]
    assert preset_masks(toy_model(), toy_stack(recompute_modules=())) == []


@SOME
@given(drawn_scenarios(models=drawn_expert_models), st.integers(0, 99), st.sampled_from(MODULES))
def test_a_named_module_costs_time_and_saves_what_it_says(scenario, seed, name):
    rows = random_rows(scenario, 5, seed)
    rows = replace(rows, recompute=np.full(len(rows), int(Recompute.NONE)))
    if name not in modules_of(scenario.model):
        return
    named = replace(
        rows,
        recompute=np.full(len(rows), int(Recompute.SELECTIVE)),
        recompute_modules=np.full(len(rows), module_mask([name])),
    )
    saved = average_activation_bytes(rows, scenario) - average_activation_bytes(named, scenario)
    depth, nothing = scenario.depth, np.zeros(len(rows))
    each = [module_bytes(rows, scenario, kind).get(name, nothing) for kind in depth.kinds]
    assert saved == pytest.approx(np.dot(depth.shares, each), rel=1e-6)
    assert (average_activation_bytes(named, scenario) > 0).all()
    slower = core_seconds(named, scenario).layer - core_seconds(rows, scenario).layer
    assert slower == pytest.approx(core_seconds(named, scenario).selective)
    assert (slower >= 0).all()
    # A module's exchange of tokens is repeated exposed, a layer's overlaps the layer.
    beside = np.dot(depth.shares, [_exchanged_beside(rows, scenario, kind) for kind in depth.kinds])
    # A layer that is recomputed whole may end before its last products, as `lean_recompute` says; a module runs whole.
    early = np.dot(depth.shares, [kind_seconds(rows, scenario, kind).skipped for kind in depth.kinds])
    early = early * scenario.stack.recompute.skips_unread / rows.recompute_num_layers
    whole = core_seconds(rows, scenario).recompute + beside + early
    assert (slower <= whole * (1 + 1e-9) + 1e-15).all()


def _exchanged_beside(rows, scenario, kind):
    """Forward seconds of the exchange of tokens that a layer of a kind hides, (N,)."""
    exchange = expert_layer(rows, scenario).ep.forward if kind.ffn == "experts" else np.zeros(len(rows))
    return np.maximum(exchange - kind_seconds(rows, scenario, kind).ep.forward, 0.0)


def test_named_modules_repeat_the_products_inside_them():
    model = toy_model()
    h, layers = 1024, 8
    known = {"model": model, "seq_length": 1024}
    assert module_flops(**known, modules=("layernorm",)) == 0
    assert module_flops(**known, modules=("mlp",)) == 2 * layers * 8 * h * h
    core = recomputed_flops(model, seq_length=1024, recompute="selective")
    assert module_flops(**known, modules=("core_attn", "mlp")) == core + 2 * layers * 8 * h * h
    parts = [module_flops(MIXED, seq_length=1024, modules=(name,)) for name in ("shared_experts", "moe")]
    assert 0 < parts[0] < parts[1]


def test_repeating_all_of_a_dense_layer_is_repeating_its_modules():
    """Core attention, norms and the feed-forward part leave only the projections, the rotary pass and residuals."""
    row = strategies(dp=8, num_microbatches=2)
    scenario = toy_scenario()
    every = replace(row, recompute=np.array([1]), recompute_modules=np.array([allowed_mask(modules_of(toy_model()))]))
    again = core_seconds(every, scenario).selective
    assert 0.5 * core_seconds(row, scenario).recompute < again < core_seconds(row, scenario).recompute


# ------------------------------------------------------------------------------------------------- offload
