"""The record: what it accepts, what it fills in, and how it refuses."""

import pytest
from pydantic import ValidationError

from costmodels.model import BadModel, Model, from_shape

SHAPE = {"num_layers": 4, "hidden_size": 64, "num_heads": 8, "vocab_size": 1000, "seq_length": 128}


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


def test_a_measured_run_description_is_understood():
    row = SHAPE | {
        "name": "mine", "kind": "dense", "params_b": 0.001, "notes": "x", "position": "rope",
        "head_dim": None, "qk_layernorm": True, "sliding_window": 32, "full_model_layers": 80,
        "sliding_window_pattern": "5 local : 1 global", "num_layers": 12,
    }  # fmt: skip
    model = from_shape(row)
    assert (model.name, model.position, model.qk_norm) == ("mine", "rotary", "head")
    assert (model.sliding_window_every, model.num_global_layers) == (6, 2)


def test_dense_takes_typed_sizes():
    model = Model.dense(num_layers=2, hidden_size=64, num_heads=8, num_query_groups=2)
    assert (model.qkv_width, model.key_value_width, model.fc1_width) == (96, 16, 256)
    assert (model.vocab_size, model.seq_length) == (51200, 2048)
    assert Model.dense(num_layers=2, hidden_size=64, num_heads=8, gated_ffn=True).fc1_width == 512


@pytest.mark.parametrize("field", sorted(SHAPE))
def test_a_missing_size_is_named(field):
    shape = {key: value for key, value in SHAPE.items() if key != field}
    with pytest.raises(BadModel, match=f"'mine': {field}: .*missing"):
        from_shape(shape, name="mine")


@pytest.mark.parametrize("field", sorted(SHAPE))
@pytest.mark.parametrize("value", ["12", 0, -3, 1.5, 64.0, True, [1], 2**40])
def test_a_size_of_the_wrong_type_is_one_line(field, value):
    with pytest.raises(BadModel, match=f"{field}|num_heads") as caught:
        from_shape(SHAPE | {field: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_query_groups": 3}, "num_query_groups 3 does not divide num_heads 8; 1, 2, 4, 8 do"),
        ({"num_heads": 7}, "num_heads 7 does not divide hidden_size 64; give head_dim"),
        ({"gated_ffn": False, "activation": "swiglu"}, "activation 'swiglu' contradicts gated_ffn False"),
        ({"gated_ffn": True, "activation": "gelu"}, "activation 'gelu' contradicts gated_ffn True"),
        ({"position": "rotary", "max_positions": 5}, "max_positions 5 contradicts position 'rotary'"),
        ({"max_positions": 0}, "max_positions 0 contradicts position 'learned'"),
        ({"padded_vocab_size": 900}, "padded_vocab_size 900 is less than vocab_size 1000"),
        ({"sliding_window_every": 2}, "sliding_window_every 2 needs a sliding_window"),
        ({"num_norms": 1}, "num_norms 1 needs parallel_block"),
        ({"position": "sinusoidal"}, "position: .*'sinusoidal'"),
        ({"position": ["learned"]}, "position"),
        ({"activation": ["gelu"]}, "activation"),
        ({"tied_embeddings": "yes"}, "tied_embeddings: .*'yes'"),
        ({"rotary_fraction": 2.0}, "rotary_fraction"),
        ({"num_experts": 8}, "num_experts: there is no such field"),
        ({"kind": "moe"}, "of kind 'moe'; only dense models"),
    ],
)
def test_contradictions_and_strangers_are_one_line(changes, message):
    with pytest.raises(BadModel, match=message) as caught:
        from_shape(SHAPE | changes)
    assert "\n" not in str(caught.value)


def test_a_model_is_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        from_shape(SHAPE).num_layers = 5
