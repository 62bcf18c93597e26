"""Adapters on frozen weights: what they cost and save, by hand and on runs that were measured."""

from dataclasses import replace

import numpy as np
import pytest

from costmodels.iteration import core_seconds
from costmodels.layer.adapters import (
    adapter_parameters,
    kernel_traffic,
    trained_experts,
    trained_parameters,
    trained_share,
)
from costmodels.layer.blocks import kind_seconds
from costmodels.layer.experts import arrived_tokens
from costmodels.layer.forward_backward import Passes, product
from costmodels.layer.launches import module_calls
from costmodels.layout.placement import expert_shards
from costmodels.memory.activations import kind_activation_bytes
from costmodels.memory.even_peaks import even_peaks
from costmodels.memory.rows import row_bytes
from costmodels.memory.states import state_bytes
from costmodels.model.catalogue import model
from costmodels.model.layer_kinds import DENSE, EXPERTS
from costmodels.model.parameters import (
    embedding_parameters,
    expert_parameters,
    head_parameters,
    parameters,
    position_parameters,
)
from costmodels.names import Recompute
from costmodels.stack.adapters import ADAPTED, Adapters
from costmodels.stack.precision import RECIPES
from costmodels.step.optimizer import optimizer_seconds
from costmodels.step.traffic import step_traffic
from costmodels.strategy import strategies
from tests.each import each
from tests.scenarios import toy_model, toy_scenario, toy_stack, with_experts, with_latent_attention

ROW = strategies(dp=8, zero_stage=1, sharding_degree=8, micro_batch_size=2, num_microbatches=2)
WHOLE = toy_scenario()
NOWHERE = Passes(np.zeros(1), np.zeros(1))


def adapted(*modules, rank=16, of=WHOLE):
    """The scenario with adapters."""
    adapters = Adapters(rank=rank, modules=modules or ADAPTED)
    return replace(of, stack=of.stack.changed({"switches.adapters": adapters}))


@each(
    ("text", "read"),
    [
        ("16", Adapters(rank=16)),
        ("8:linear_proj, linear_qkv", Adapters(rank=8, modules=("linear_qkv", "linear_proj"))),
        ("1:linear_fc2", Adapters(rank=1, modules=("linear_fc2",))),
        ("16/32-bit", Adapters(rank=16, kernels="32-bit")),
        (
            "16:linear_fc2/autocast+dropout",
            Adapters(rank=16, modules=("linear_fc2",), kernels="autocast", dropout=True),
        ),
        ("16/summed", Adapters(rank=16)),
        ("16:all-linear", Adapters(rank=16)),
        ("16:attention,experts", Adapters(rank=16, modules=("linear_qkv", "linear_proj", "experts"))),
        ("8:q_proj,v_proj,down_proj", Adapters(rank=8, modules=("linear_qkv", "linear_fc2"))),
    ],
)
def test_adapters_are_read_from_words_and_written_as_such(text, read):
    assert Adapters.read(text) == read == Adapters.read(str(read))


@each(
    ("text", "said"),
    [
        ("x", "expected a rank, such as 16 or 16:linear_qkv, got 'x'"),
        ("", "expected a rank"),
        ("0", "rank 0 is out of range; 1 to 8192 works"),
        ("9000:linear_qkv", "rank 9000"),
        ("16: ,", "no module after the colon of '16: ,'"),
        ("16/eager", "unknown kernels 'eager'; summed, 16-bit, autocast, 32-bit work, with or without \\+dropout"),
        ("16/32-bit+mask", "unknown kernels '32-bit\\+mask'"),
        ("16/", "unknown kernels ''"),
        (
            "16:x_proj",
            "unknown module 'x_proj'; linear_qkv, linear_proj, linear_fc1, linear_fc2, experts can have adapters",
        ),
    ],
)
def test_words_that_say_no_adapters_are_refused_in_one_sentence(text, said):
    with pytest.raises(ValueError, match=said):
        Adapters.read(text)


def test_every_module_has_a_column_of_a_and_a_row_of_b_for_each_rank():
    m = WHOLE.model
    h, f = m.hidden_size, m.ffn_hidden_size
    layer = (h + m.qkv_width) + (m.attention_output_width + h) + (h + m.fc1_width) + (f + h)
    assert adapter_parameters(adapted(rank=4)) == 4 * layer * m.num_layers
    assert adapter_parameters(adapted("linear_fc2", rank=4)) == 4 * (f + h) * m.num_layers
    assert trained_share(adapted(rank=4)) == pytest.approx(4 * layer * m.num_layers / parameters(m))
    assert trained_share(WHOLE) == 1.0


def test_published_adapters_of_llama_2_7b_have_as_many_values_as_their_files():
    """Rank 8 on queries, keys and values as one product: 8 x (4096 + 3 x 4096) x 32 layers."""
    seven = replace(WHOLE, model=model("llama2-7b"))
    assert adapter_parameters(adapted("linear_qkv", rank=8, of=seven)) == 8 * 4 * 4096 * 32


def test_latent_attention_has_an_adapter_at_every_product_in_front_of_the_core():
    latent = replace(WHOLE, model=with_latent_attention(toy_model()))
    m, mla = latent.model, latent.model.mla
    queries, down = m.hidden_size + m.attention_width, m.hidden_size + mla.kv_down_width
    up = mla.kv_lora_rank + m.num_heads * mla.kv_up_head_dim
    assert adapter_parameters(adapted("linear_qkv", rank=1, of=latent)) == (queries + down + up) * m.num_layers


def test_routed_experts_have_no_adapters():
    experts = replace(WHOLE, model=with_experts(toy_model()))
    assert adapter_parameters(adapted("linear_fc1", "linear_fc2", of=experts)) == 0
    assert adapter_parameters(adapted("linear_qkv", of=experts)) > 0


def test_experts_have_adapters_where_they_are_named():
    """Of every expert a column of A and a row of B for each rank, at either product."""
    some = adapted("linear_qkv", "experts", rank=4, of=replace(WHOLE, model=with_experts(toy_model())))
    m, moe = some.model, some.model.moe
    each = 4 * (
        (m.hidden_size + m.ffn_branches * moe.expert_ffn_hidden_size) + (moe.expert_ffn_hidden_size + m.hidden_size)
    )
    assert trained_experts(some) == pytest.approx(each / expert_parameters(m))
    alone = adapter_parameters(some)
    assert trained_parameters(some) == pytest.approx(alone + m.num_moe_layers * moe.num_experts * each)
    none = adapted("linear_qkv", rank=4, of=replace(WHOLE, model=with_experts(toy_model())))
    kept = (kind_activation_bytes(ROW, one, EXPERTS) for one in (some, none))
    arrived = arrived_tokens(ROW, some)
    assert -np.diff(list(kept), axis=0)[0] == pytest.approx(
        arrived * 2.0 * (m.hidden_size + moe.expert_ffn_hidden_size)
    )
    more = kind_seconds(ROW, some, EXPERTS).stream - kind_seconds(ROW, none, EXPERTS).stream
    assert 0 < more.forward < more.backward
    states = state_bytes(ROW, some, expert_shards(ROW))
    assert states.weights == 2.0
    assert states.gradients == pytest.approx(trained_experts(some) * 4.0)


def test_a_frozen_product_multiplies_twice_and_not_three_times():
    T, rates = np.array([4096.0]), WHOLE.rates
    known = {"fit": rates.matmul, "peak": rates.matmul_peak, "bandwidth": rates.bandwidth}
    trained, frozen = (product(T, 1024.0, 2048.0, frozen=on, **known) for on in (False, True))
    assert frozen.forward == trained.forward == frozen.backward
    assert trained.backward == pytest.approx(2 * frozen.backward)


def test_no_pass_of_a_layer_has_a_weight_gradient_and_its_forward_products_stay():
    whole, frozen = (kind_seconds(ROW, one, DENSE) for one in (WHOLE, adapted("linear_qkv")))
    assert frozen.matmul.forward == whole.matmul.forward
    assert frozen.matmul.backward == pytest.approx(whole.matmul.backward / 2)
    assert (frozen.attention.forward, frozen.attention.backward) == (whole.attention.forward, whole.attention.backward)
    terms = core_seconds(ROW, adapted("linear_qkv"))
    assert terms.weight == 0


def test_adapters_are_narrow_products_and_sums_that_memory_bounds():
    """Rank 16 and 8 times as much: the products grow with the rank, the sums do not."""
    before = kind_seconds(ROW, WHOLE, DENSE).stream.forward
    narrow, wide = (kind_seconds(ROW, adapted("linear_fc2", rank=r), DENSE).stream.forward - before for r in (1, 512))
    T, m = 2.0 * WHOLE.seq_length, WHOLE.model
    summed = 6.0 * T * m.hidden_size / (WHOLE.rates.stream * WHOLE.rates.bandwidth)
    assert summed < narrow < wide


def test_the_host_launches_four_kernels_more_for_every_adapter():
    calls = [module_calls(ROW, one, DENSE)[0] for one in (WHOLE, adapted("linear_qkv"), adapted())]
    assert np.diff(calls) == pytest.approx([4.0, 12.0])


def beside(kernels, module, *, dropout=False):
    """Bytes per token besides the products of an adapter with kernels of PEFT's, of either pass."""
    one = adapted(module)
    asked = one.stack.switches.adapters.model_copy(update={"kernels": kernels, "dropout": dropout})
    one = replace(one, stack=one.stack.changed({"switches.adapters": asked}))
    seconds = [kind_seconds(ROW, of, DENSE).stream for of in (adapted(module), one)]
    rate = WHOLE.rates.stream * WHOLE.rates.bandwidth / (2.0 * WHOLE.seq_length)
    summed = {"forward": 6.0 * WHOLE.model.hidden_size, "backward": 6.0 * WHOLE.model.ffn_hidden_size}
    both = ([getattr(each, name)[0] for each in seconds] for name in summed)
    return [rate * (late - early) + own for (early, late), own in zip(both, summed.values(), strict=True)]


@pytest.mark.parametrize(
    ("kernels", "dropout", "forward", "backward"),
    [
        ("16-bit", False, (0, 4 + 6), (6, 4)),
        ("16-bit", True, (5, 4 + 6), (5 + 6, 4)),
        ("autocast", False, (6 + 6, 4 + 6), (6 + 6 + 6, 4)),
        ("autocast", True, (6 + 9 + 6, 4 + 6), (6 + 9 + 6 + 6, 4)),
        ("32-bit", True, (6 + 9 + 2, 2 + 8 + 10 + 6), (2 + 2 + 9 + 6 + 6, 6 + 6 + 8 + 4)),
    ],
)
def test_pefts_kernels_move_what_each_of_its_operations_reads_and_writes(kernels, dropout, forward, backward):
    """Per value that enters and per value that leaves: casts, dropout, products read in 32 bits, scale, sum."""
    f, h = WHOLE.model.ffn_hidden_size, WHOLE.model.hidden_size
    expected = [enters * f + leaves * h for enters, leaves in (forward, backward)]
    assert beside(kernels, "linear_fc2", dropout=dropout) == pytest.approx(expected)


def test_pefts_queries_keys_and_values_each_cast_and_drop_their_input():
    def moved(module):
        asked = adapted(module)
        stack = asked.stack.changed({"switches.adapters": Adapters.read(f"16:{module}/autocast")})
        return kernel_traffic(replace(asked, stack=stack), module, 1.0, 0.0).forward

    assert moved("linear_qkv") == 3 * moved("linear_proj")
    assert moved("linear_fc1") == (2 if WHOLE.model.gated_ffn else 1) * moved("linear_proj")


def test_the_host_launches_every_operation_of_pefts_adapters():
    def calls(words):
        stack = WHOLE.stack.changed({"switches.adapters": Adapters.read(words)})
        return module_calls(ROW, replace(WHOLE, stack=stack), DENSE)[0] - module_calls(ROW, WHOLE, DENSE)[0]

    assert calls("16:linear_proj") == calls("16:linear_proj/16-bit") == 4
    assert calls("16:linear_proj/32-bit") == calls("16:linear_proj/autocast") == 6
    assert calls("16:linear_qkv/32-bit+dropout") == 3 * 7


def test_data_ranks_and_optimizer_see_the_adapters_alone():
    small = adapted("linear_qkv", rank=1)
    share = trained_share(small)
    assert 0 < share < 0.01
    whole, frozen = (step_traffic(ROW, one, NOWHERE).total[0] for one in (WHOLE, small))
    assert frozen <= 0.02 * whole
    assert optimizer_seconds(ROW, small) == pytest.approx(share * optimizer_seconds(ROW, WHOLE))


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_frozen_weights_have_neither_gradients_nor_moments(stage):
    rows = strategies(dp=8, zero_stage=stage, sharding_degree=8 if stage else 1)
    small = adapted("linear_qkv", rank=1)
    whole, frozen = state_bytes(rows, WHOLE), state_bytes(rows, small)
    assert frozen.weights == whole.weights
    assert frozen.gradients == pytest.approx(trained_share(small) * whole.gradients)
    assert frozen.optimizer < 0.01 * whole.optimizer + 0.01 * whole.weights + 0.1


def test_parameters_are_still_gathered_at_stage_three_and_no_gradient_is_scattered():
    rows = strategies(dp=8, zero_stage=3, sharding_degree=8, num_microbatches=2)
    sharding = toy_scenario(stack=toy_stack(zero_stages=(0, 1, 2, 3)))
    both = (sharding, adapted("linear_qkv", rank=1, of=sharding))
    whole, frozen = (step_traffic(rows, one, NOWHERE) for one in both)
    assert frozen.parameters == pytest.approx(whole.parameters)
    assert frozen.gradients < 0.4 * whole.gradients  # gathered again for the backward pass, in half the width


def test_a_module_keeps_its_input_for_its_adapter_and_for_nothing_else():
    tokens, m = 2.0 * WHOLE.seq_length, WHOLE.model
    kept = {name: kind_activation_bytes(ROW, adapted(name), DENSE)[0] for name in ADAPTED}
    whole = kind_activation_bytes(ROW, WHOLE, DENSE)[0]
    bare = kept["linear_proj"]  # attention keeps what it returns anyway
    assert kept["linear_qkv"] - bare == pytest.approx(2.0 * tokens * m.hidden_size)
    assert kept["linear_fc1"] - bare == pytest.approx(2.0 * tokens * m.hidden_size)
    assert kept["linear_fc2"] - bare == pytest.approx(2.0 * tokens * m.ffn_hidden_size)
    assert kind_activation_bytes(ROW, adapted(), DENSE)[0] == pytest.approx(whole)


def test_no_gradient_of_embedding_or_head_stands_at_any_peak():
    whole, frozen = (row_bytes(ROW, one) for one in (WHOLE, adapted("linear_qkv")))
    assert frozen.first_peak <= whole.first_peak
    assert frozen.logits <= whole.logits


@pytest.mark.parametrize("modules", [("linear_qkv",), ADAPTED])
def test_adapters_need_less_memory_than_training_all_weights_by_more_than_gradients_and_moments(modules):
    layers, states = WHOLE.model.num_layers, state_bytes(ROW, WHOLE)
    whole, frozen = (even_peaks(ROW, row_bytes(ROW, one), layers)[0] for one in (WHOLE, adapted(*modules, rank=1)))
    spared = (states.gradients + states.optimizer)[0] * parameters(WHOLE.model)
    assert frozen < whole - 0.97 * spared


def test_experts_keep_what_enters_their_activation_alone():
    experts = replace(WHOLE, model=with_experts(toy_model()))
    kinds = experts.depth.kinds
    whole, frozen = (
        sum(kind_activation_bytes(ROW, one, kind)[0] for kind in kinds) for one in (experts, adapted(of=experts))
    )
    assert frozen < whole


def test_full_recomputation_repeats_the_adapters_too():
    rows = replace(ROW, recompute=np.array([int(Recompute.FULL)]))
    whole, frozen = (core_seconds(rows, one).recompute[0] for one in (WHOLE, adapted()))
    assert frozen > whole


@each("name", [name for name, recipe in RECIPES.items() if recipe.reduced])
def test_without_weight_gradients_no_format_is_quantised_along_columns(name):
    recipe = RECIPES[name]
    assert 0 < recipe.rows_traffic <= recipe.input_traffic


def test_a_stack_without_adapters_trains_all_weights():
    assert toy_stack().switches.adapters is None
    assert not WHOLE.frozen
    assert adapted().frozen


def test_frozen_weights_of_fewer_bits_take_less_memory_but_for_the_embedding_and_the_head():
    wide = adapted()
    spared = peak(wide) - peak(packed(wide))
    ends = sum(part(wide.model) for part in (embedding_parameters, position_parameters, head_parameters))
    assert spared == pytest.approx(1.5 * (parameters(wide.model) - ends), rel=0.1)


def test_weights_that_train_have_the_bytes_that_they_have():
    assert peak(packed(WHOLE)) == peak(WHOLE)


def packed(scenario):
    return replace(scenario, stack=scenario.stack.changed({"states.frozen_bytes": 0.5}))


def peak(scenario):
    return float(even_peaks(ROW, row_bytes(ROW, scenario), scenario.model.num_layers)[0])
