"""The record: what it accepts, what it fills in, and how it refuses."""

import pytest
from pydantic import ValidationError

from costmodels.model.model import BadModel, checked, from_shape
from tests.each import each
from tests.scenarios import dense_model

SHAPE = {"num_layers": 4, "hidden_size": 64, "num_heads": 8, "vocab_size": 1000, "seq_length": 128}


EXPERTS = {"experts": 8, "top_k": 2, "expert_ffn": 96}
MLA = {"kv_lora": 16, "qk_nope": 8, "qk_rope": 4, "v": 6}


def test_an_ungated_shape_is_filled_like_gpt():
    model = from_shape(SHAPE)
    assert (model.num_query_groups, model.head_dim, model.ffn_hidden_size) == (8, 8, 256)
    assert (model.position, model.max_positions, model.norm) == ("learned", 128, "layernorm")
    assert model.norm_bias
    assert model.linear_bias
    assert model.qkv_bias
    assert model.tied_embeddings


def test_a_gated_shape_is_filled_like_llama():
    model = from_shape(SHAPE | {"hidden_size": 4096, "num_heads": 32, "gated_ffn": True})
    assert (model.ffn_hidden_size, model.head_dim, model.activation) == (11008, 128, "swiglu")
    assert (model.position, model.max_positions, model.norm) == ("rotary", 0, "rmsnorm")
    assert not any((model.norm_bias, model.linear_bias, model.qkv_bias, model.tied_embeddings))


def test_a_gated_activation_alone_makes_the_network_gated():
    assert from_shape(SHAPE | {"activation": "geglu"}).gated_ffn


def test_what_is_said_wins_over_what_is_usual():
    said = {"head_dim": 32, "tied_embeddings": False, "position": "alibi", "linear_bias": False}
    model = from_shape(SHAPE | said)
    assert (model.attention_width, model.position, model.max_positions) == (256, "alibi", 0)
    assert not model.linear_bias
    assert not model.tied_embeddings


@each("written", ["2T", "2 T", "2000B", "2000000000000", 2e12, 2_000_000_000_000])
def test_tokens_are_read_as_on_the_command_line(written):
    assert from_shape(SHAPE | {"tokens": written}).tokens == 2_000_000_000_000


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("two", "expected a count such as '175B', got 'two'"),
        ("1.5", "expected a whole number such as 300B, got '1.5'"),
        (0, "more than 0"),
        (True, "whole number"),
        ("9000P", "less than"),
    ],
)
def test_tokens_that_are_no_count_are_refused_in_one_line(written, why):
    with pytest.raises(BadModel, match=why) as refused:
        from_shape(SHAPE | {"tokens": written})
    assert "tokens: " in str(refused.value)
    assert "\n" not in str(refused.value)


def test_other_spellings_of_sizes_are_understood():
    row = SHAPE | {
        "name": "mine", "notes": "x", "position": "rope", "head_dim": None, "qk_layernorm": True, "sliding_window": 32,
        "sliding_window_pattern": "5 local : 1 global", "num_layers": 12,
    }  # fmt: skip
    model = from_shape(row)
    assert (model.name, model.position, model.qk_norm) == ("mine", "rotary", "head")
    assert model.sliding_window_every == 6


def test_the_experts_of_a_measured_run_are_understood():
    row = SHAPE | EXPERTS | {
        "gated_ffn": True, "shared_experts": 2.0, "dense_layers": 1, "moe_latent": 32,
        "mtp_layers": 1,
    }  # fmt: skip
    model = from_shape(row)
    assert (model.moe.num_experts, model.moe.top_k, model.moe.expert_ffn_hidden_size) == (8, 2, 96)
    assert (model.moe.num_shared_experts, model.moe.shared_expert_ffn_hidden_size) == (2, 192)
    assert (model.num_dense_layers, model.num_moe_layers, model.mtp_layers) == (1, 3, 1)
    assert (model.expert_hidden_size, model.ffn_hidden_size) == (32, 256)


@pytest.mark.parametrize("spelling", ["shared_expert_ffn", "shared_expert_ffn_total"])
@pytest.mark.parametrize(("shared", "number"), [(None, 1), (1, 1), (3, 3)])
def test_a_stated_width_of_shared_experts_is_that_of_all_together(spelling, shared, number):
    moe = from_shape(SHAPE | EXPERTS | {"shared_experts": shared, spelling: 300}).moe
    assert (moe.num_shared_experts, moe.shared_expert_ffn_hidden_size) == (number, 300)


def test_the_dense_width_of_a_model_without_dense_layers_is_an_experts():
    assert from_shape(SHAPE | EXPERTS).ffn_hidden_size == 96
    assert from_shape(SHAPE | EXPERTS | {"moe_every": 2}).ffn_hidden_size == 256


@each(
    ("dense_layers", "every", "layers"),
    [(0, 1, [0, 1, 2, 3]), (3, 1, [3]), (0, 2, [1, 3]), (1, 2, [1, 3]), (2, 2, [3]), (0, 3, [2]), (0, 4, [3])],
)
def test_layers_with_experts_are_every_nth_behind_the_dense_ones(dense_layers, every, layers):
    model = from_shape(SHAPE | EXPERTS | {"dense_layers": dense_layers, "moe_every": every})
    assert [layer for layer in range(4) if model.moe.is_moe_layer(layer)] == layers
    assert model.num_moe_layers == len(layers)
    assert model.num_dense_layers == 4 - len(layers)


def test_the_latents_of_a_measured_run_are_understood_in_both_spellings():
    short = from_shape(SHAPE | {"mla": MLA | {"q_lora": 20}, "head_dim": 8, "qk_layernorm": True})
    long = {
        "q_lora_rank": 20, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6,
    }  # fmt: skip
    assert short == from_shape(SHAPE | {"mla": long})
    assert (short.mla.q_down_width, short.mla.kv_down_width, short.mla.kv_up_head_dim) == (20, 20, 14)
    assert (short.head_dim, short.v_head_dim, short.qk_norm) == (12, 6, "none")
    assert (short.attention_width, short.key_value_width, short.value_width) == (96, 96, 48)
    assert (short.attention_output_width, short.qkv_width) == (48, 240)
    assert from_shape(SHAPE | {"mla": MLA}).mla.q_down_width == 0
    assert from_shape(SHAPE | {"mla": MLA | {"q_lora": 0}}) == from_shape(SHAPE | {"mla": MLA})


def test_ordinary_attention_has_keys_as_wide_as_values():
    model = from_shape(SHAPE | {"num_query_groups": 2})
    assert model.value_width == model.key_value_width == 16
    assert model.attention_output_width == model.attention_width == 64
    assert (model.num_moe_layers, model.num_dense_layers) == (0, 4)


def test_a_head_width_that_contradicts_the_latents_is_refused():
    with pytest.raises(BadModel, match="head_dim 64 contradicts mla: its queries are 12 wide"):
        checked(from_shape(SHAPE | {"mla": MLA}).model_dump() | {"head_dim": 64}, label="mine")


def test_dense_takes_typed_sizes():
    model = dense_model(num_layers=2, hidden_size=64, num_heads=8, num_query_groups=2)
    assert (model.qkv_width, model.key_value_width, model.fc1_width) == (96, 16, 256)
    assert (model.vocab_size, model.seq_length) == (51200, 2048)
    assert dense_model(num_layers=2, hidden_size=64, num_heads=8, gated_ffn=True).fc1_width == 512


@pytest.mark.parametrize("field", sorted(SHAPE))
def test_a_missing_size_is_named(field):
    shape = {key: value for key, value in SHAPE.items() if key != field}
    with pytest.raises(BadModel, match=f"'mine': {field}: .*missing"):
        from_shape(shape, name="mine")


@each("field", sorted(SHAPE))
@each("value", ["12", 0, -3, 1.5, 64.0, True, [1], 2**40])
def test_a_size_of_the_wrong_type_is_one_line(field, value):
    with pytest.raises(BadModel, match=f"{field}|num_heads") as caught:
        from_shape(SHAPE | {field: value})
    assert "\n" not in str(caught.value)


@each(
    ("changes", "message"),
    [
        ({"name": "a\x1b[31mb"}, "name: expected text without control characters, got 'a"),
        ({"num_query_groups": 3}, "num_query_groups 3 does not divide num_heads 8; 1, 2, 4, 8 do"),
        ({"num_heads": 7}, "num_heads 7 does not divide hidden_size 64; give head_dim"),
        ({"gated_ffn": False, "activation": "swiglu"}, "activation 'swiglu' contradicts gated_ffn False"),
        ({"gated_ffn": True, "activation": "gelu"}, "activation 'gelu' contradicts gated_ffn True"),
        ({"position": "rotary", "max_positions": 5}, "max_positions 5 contradicts position 'rotary'"),
        ({"max_positions": 0}, "max_positions 0 contradicts position 'learned'"),
        ({"num_layers": 10_001}, "num_layers: expected at most 10000"),
        ({"padded_vocab_size": 900}, "padded_vocab_size 900 is less than vocab_size 1000"),
        ({"sliding_window_every": 2}, "sliding_window_every 2 needs a sliding_window"),
        ({"num_norms": 1}, "num_norms 1 needs parallel_block"),
        ({"position": "sinusoidal"}, "position: .*'sinusoidal'"),
        ({"position": ["learned"]}, "position"),
        ({"activation": ["gelu"]}, "activation"),
        ({"tied_embeddings": "yes"}, "tied_embeddings: .*'yes'"),
        ({"rotary_fraction": 2.0}, "rotary_fraction"),
        ({"num_experts": 8}, r"num_experts: there is no such field; did you mean num_experts under \[moe\]\?"),
        ({"num_kv_groups": 8}, r"num_kv_groups: there is no such field; did you mean num_query_groups\?"),
        ({"n_layer": 8}, r"n_layer: there is no such field; did you mean num_layers\?"),
        ({"hidden": 8}, r"hidden: there is no such field; did you mean hidden_size\?"),
        ({"num-key-value-heads": 8}, r"num-key-value-heads: there is no such field; did you mean num_query_groups\?"),
        ({"ffn_hiden_size": 8}, r"ffn_hiden_size: there is no such field; did you mean ffn_hidden_size\?"),
        ({"speed": 8}, "speed: there is no such field; there are name, "),
        ({"moe": {"num_experts_per_tok": 8}}, r"moe.num_experts_per_tok: there is no such field; did you mean top_k\?"),
        ({"moe": {"n_layer": 8}}, r"moe.n_layer: there is no such field; did you mean num_layers outside of \[moe\]\?"),
        ({"kind": "moe"}, "kind: there is no such field"),
        (EXPERTS | {"top_k": 9}, "moe: top_k 9 is more than num_experts 8"),
        (EXPERTS | {"experts": 8.5}, "moe.num_experts: .*8.5"),
        (EXPERTS | {"dense_layers": 4}, "dense_layers 4 and moe_every 1 leave none of the 4 layers with experts"),
        (EXPERTS | {"shared_expert_ffn": 0, "shared_experts": 2}, "num_shared_experts 2 contradicts shared"),
        ({"top_k": 2}, "moe.num_experts: required, but missing"),
        ({"moe": {}}, "moe.num_experts: required, but missing"),
        ({"moe": 8}, "moe: "),
        ({"moe": {"num_experts": 8, "experts": 8}}, "moe.experts: there is no such field"),
        ({"moe": {"num_experts": 8, "top_k": 2, "expert_ffn_hidden_size": 4, "shared_expert_gate": True}}, "needs num"),
        ({"mla": {"kv_lora": 16}}, "mla.qk_nope_head_dim: required"),
        ({"mla": "yes"}, "mla: "),
        (
            {"mla": MLA, "num_query_groups": 2},
            "num_query_groups 2 contradicts mla, in which each of the 8 heads has a key",
        ),
        ({"mla": MLA, "qk_norm": "head"}, "qk_norm 'head' contradicts mla"),
        ({"mtp_layers": -1}, "mtp_layers: "),
    ],
)
def test_contradictions_and_strangers_are_one_line(changes, message):
    with pytest.raises(BadModel, match=message) as caught:
        from_shape(SHAPE | changes)
    assert "\n" not in str(caught.value)


def test_a_model_is_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        from_shape(SHAPE).num_layers = 5


def test_a_pattern_of_windows_that_nobody_knows_is_refused_with_one_that_is():
    with pytest.raises(BadModel, match=r"sliding_window_pattern: expected such as 6, .* got 'GLLL'"):
        from_shape({**SHAPE, "sliding_window": 64, "sliding_window_pattern": "GLLL"}, name="odd")
