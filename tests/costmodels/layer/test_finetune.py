"""What a fine-tune adds to a step: pairs, a reference model, narrow frozen weights, packed documents."""

from dataclasses import replace

import numpy as np
import pytest

from costmodels.iteration import core_seconds
from costmodels.layer.adapters import trained_experts, trained_parameters, trained_share
from costmodels.layer.attention import attention_core, packed_pairs
from costmodels.layer.blocks import kind_seconds
from costmodels.layer.frozen_weights import cast_bytes, unpacked_bytes, unpacking_seconds
from costmodels.layer.vocabulary import embedding_seconds, head_seconds
from costmodels.layout.parameters_per_rank import kind_parameters_per_rank
from costmodels.memory.activations import kind_activation_bytes
from costmodels.memory.rows import row_bytes
from costmodels.memory.states import state_bytes
from costmodels.model.layer_kinds import DENSE
from costmodels.model.parameters import (
    embedding_parameters,
    kind_matrix_parameters,
    kind_replicated_parameters,
    parameters,
    position_parameters,
)
from costmodels.stack.adapters import Adapters
from costmodels.stack.finetune import BASE_BYTES, task_named
from costmodels.strategy import strategies
from tests.scenarios import toy_model, toy_scenario, with_experts

ROW = strategies(dp=8, zero_stage=1, sharding_degree=8, micro_batch_size=2, num_microbatches=2)
SHARDED = strategies(dp=8, zero_stage=3, sharding_degree=8, micro_batch_size=2, num_microbatches=2)
WHOLE = toy_scenario()


def switched(of=WHOLE, **values):
    """The scenario with these switches."""
    if "adapters" in values:
        values["adapters"] = Adapters.read(values["adapters"])
    return replace(of, stack=of.stack.changed({f"switches.{name}": value for name, value in values.items()}))


def test_a_block_of_64_weights_of_four_bits_has_one_constant():
    assert BASE_BYTES["nf4"] * 64 == 32 + 4
    assert BASE_BYTES["nf4-double"] * 64 * 256 == 32 * 256 + 256 + 4


@pytest.mark.parametrize(("word", "name"), [("SFT", "finetune"), ("rm", "reward"), ("ipo", "dpo"), ("kto", "kto")])
def test_tasks_go_by_the_words_of_frameworks(word, name):
    assert task_named(word) == name


def test_a_task_that_generates_is_refused_with_what_is_priced():
    with pytest.raises(ValueError, match="generates its own samples, which has no price; pretrain, finetune, dpo"):
        task_named("GRPO")


def test_a_pair_is_two_sequences_of_a_sample():
    pairs, twice = switched(task="orpo"), replace(ROW, micro_batch_size=2 * ROW.micro_batch_size)
    one, other = core_seconds(ROW, pairs), core_seconds(twice, WHOLE)
    assert one.layer == other.layer
    assert one.head == other.head
    assert pairs.tokens == 2 * WHOLE.tokens


def test_a_reference_model_passes_forward_once_more_and_nothing_else():
    alone, beside = (switched(task="dpo", reference_model=name) for name in ("none", "copy"))
    layer = kind_seconds(ROW, alone, DENSE)
    more = layer.compute.forward + layer.communication.forward
    found = core_seconds(ROW, beside).layer - core_seconds(ROW, alone).layer
    assert found == pytest.approx(more, rel=1e-9)


def test_a_copy_takes_its_weights_sharded_only_where_weights_are():
    copied, off = (switched(task="dpo", reference_model=name) for name in ("copy", "adapters-off"))
    assert state_bytes(ROW, copied).weights - state_bytes(ROW, off).weights == 2.0
    assert state_bytes(SHARDED, copied).weights - state_bytes(SHARDED, off).weights == 2.0 / 8


def test_four_bits_are_read_and_sixteen_written_before_either_pass():
    packed = switched(adapters="16", base_precision="nf4")
    size = kind_parameters_per_rank(ROW, packed, DENSE)
    once = packed.rates.stream_seconds(size * (0.5625 + 2.0))
    found = unpacking_seconds(ROW, packed, DENSE)
    assert (found.forward, found.backward) == (once, once)
    assert unpacked_bytes(ROW, packed, DENSE) == 2 * packed.model.hidden_size * packed.model.ffn_hidden_size
    assert kind_seconds(ROW, packed, DENSE).stream.forward > kind_seconds(ROW, WHOLE, DENSE).stream.forward


def test_weights_in_fp32_are_cast_once_and_their_casts_kept():
    wide, plain = switched(adapters="16", base_precision="fp32"), switched(adapters="16", base_precision="bf16")
    found = unpacking_seconds(ROW, wide, DENSE)
    assert found.backward == 0 < found.forward
    casts = 2.0 * kind_parameters_per_rank(ROW, wide, DENSE)
    assert cast_bytes(ROW, wide, DENSE) == casts
    assert kind_activation_bytes(ROW, wide, DENSE) - kind_activation_bytes(ROW, plain, DENSE) == pytest.approx(casts)
    assert state_bytes(ROW, wide).weights == 2 * state_bytes(ROW, plain).weights == 4.0
    assert unpacking_seconds(ROW, plain, DENSE).forward == 0


def test_documents_attend_to_themselves_alone():
    quarter = switched(document_length=WHOLE.seq_length // 4)
    assert packed_pairs(quarter) == packed_pairs(WHOLE) / 4
    assert packed_pairs(switched(document_length=2 * WHOLE.seq_length)) == packed_pairs(WHOLE)
    assert np.all(attention_core(ROW, quarter).total < attention_core(ROW, WHOLE).total)
    assert quarter.tokens == WHOLE.tokens


@pytest.mark.parametrize(
    ("kernels", "width"),
    [("summed", 2), ("16-bit", 2), ("autocast", 2 * 3), ("32-bit", 4 * 3), ("32-bit+dropout", 5 * 3)],
)
def test_every_adapter_that_casts_its_input_keeps_a_copy_of_its_own(kernels, width):
    """Of queries, keys and values, which read one hidden state."""
    some, none = (switched(adapters=f"16:{names}/{kernels}") for names in ("linear_qkv,linear_fc2", "linear_fc2"))
    tokens = float(ROW.micro_batch_size[0] * WHOLE.seq_length)
    kept = kind_activation_bytes(ROW, some, DENSE) - kind_activation_bytes(ROW, none, DENSE)
    assert kept == pytest.approx(tokens * WHOLE.model.hidden_size * width)


def test_no_backward_pass_reaches_the_first_layers_that_do_not_train():
    half = switched(frozen_layers=WHOLE.model.num_layers // 2)
    whole, terms = core_seconds(ROW, WHOLE), core_seconds(ROW, half)
    assert terms.forward == whole.forward
    assert terms.backward == pytest.approx(whole.backward / 2)
    assert terms.recompute == pytest.approx(whole.recompute / 2)
    assert row_bytes(ROW, half).stored == pytest.approx(row_bytes(ROW, WHOLE).stored / 2)


def test_what_trains_is_the_model_without_its_embedding_and_first_layers():
    m = WHOLE.model
    layer = sum(part(m, DENSE) for part in (kind_matrix_parameters, kind_replicated_parameters))
    left = parameters(m) - embedding_parameters(m) - position_parameters(m)
    assert trained_parameters(switched(frozen_embeddings=True)) == pytest.approx(left)
    assert trained_parameters(switched(frozen_layers=3)) == pytest.approx(left - 3 * layer)
    few = switched(frozen_layers=3)
    assert state_bytes(ROW, few).optimizer == pytest.approx(trained_share(few) * state_bytes(ROW, WHOLE).optimizer)
    assert state_bytes(ROW, few).weights == state_bytes(ROW, WHOLE).weights


def test_a_frozen_embedding_scatters_no_gradient_and_a_tied_head_has_none():
    frozen = switched(frozen_embeddings=True)
    assert embedding_seconds(ROW, frozen).backward == 0
    untied = replace(WHOLE, model=WHOLE.model.model_copy(update={"tied_embeddings": False}))
    assert head_seconds(ROW, switched(untied, frozen_embeddings=True)).backward == head_seconds(ROW, untied).backward
    tied = replace(WHOLE, model=WHOLE.model.model_copy(update={"tied_embeddings": True}))
    assert head_seconds(ROW, switched(tied, frozen_embeddings=True)).backward < head_seconds(ROW, tied).backward


def test_experts_of_frozen_layers_do_not_train():
    experts = replace(WHOLE, model=with_experts(toy_model()))
    layers = experts.model.num_layers
    assert trained_experts(switched(experts, frozen_layers=layers // 2)) == pytest.approx(0.5)
    assert trained_experts(experts) == 1.0
