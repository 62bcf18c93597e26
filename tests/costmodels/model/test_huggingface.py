"""Hugging Face configurations: every family and switch against instances, and every kind of wrong file."""

import pytest

from costmodels.model.huggingface import from_config
from costmodels.model.huggingface_config import UnsupportedFamily
from costmodels.model.huggingface_table import families
from costmodels.model.model import BadModel
from costmodels.model.parameters import parameters
from tests.costmodels.configs import small
from tests.costmodels.model.test_huggingface_experts import INSTANTIATED as OF_EXPERTS
from tests.costmodels.model.test_huggingface_experts import STEERED
from tests.each import each

PLAIN = [name for name, known in families().items() if known.get("plain")]
# Counted on instances of the Hugging Face implementations (transformers 5.23).
INSTANTIATED = [
    (small("llama", attention_bias=True, mlp_bias=True, head_dim=16), 285_888),
    (small("qwen3", head_dim=32, attention_bias=True), 367_168),
    (small("gemma", num_key_value_heads=1, head_dim=16), 242_240),
    (small("stablelm", use_parallel_residual=True, use_qkv_bias=True, qk_layernorm=True), 243_008),
    (small("phi"), 199_360),
    (small("starcoder2", use_bias=False), 164_992),
    (small("cohere", use_qk_norm=True), 209_536),
    (small("cohere2"), 209_216),
    (small("olmo2"), 242_560),
    (small("nemotron", attention_bias=True, mlp_bias=True), 199_360),
    (small("granite", attention_bias=True, mlp_bias=True), 244_544),
    (small("gpt_neox", use_parallel_residual=False, attention_bias=False), 223_296),
    (
        {
            "model_type": "falcon",
            "num_hidden_layers": 4,
            "hidden_size": 64,
            "num_attention_heads": 8,
            "vocab_size": 512,
            "multi_query": False,
            "new_decoder_architecture": False,
            "parallel_attn": False,
            "bias": True,
            "alibi": True,
        },
        232_832,
    ),
    (
        {
            "model_type": "falcon",
            "num_hidden_layers": 4,
            "hidden_size": 64,
            "num_attention_heads": 8,
            "num_kv_heads": 2,
            "vocab_size": 512,
            "new_decoder_architecture": True,
            "num_ln_in_parallel_attn": 1,
        },
        205_440,
    ),
    (
        {
            "model_type": "gpt_neo",
            "num_layers": 4,
            "hidden_size": 64,
            "num_heads": 8,
            "vocab_size": 512,
            "max_position_embeddings": 128,
            "attention_types": [[["global", "local"], 2]],
        },
        240_256,
    ),
    (
        {
            "model_type": "gpt_bigcode",
            "n_layer": 4,
            "n_embd": 64,
            "n_head": 8,
            "vocab_size": 512,
            "n_positions": 128,
            "multi_query": True,
        },
        211_904,
    ),
    (
        {
            "model_type": "gpt2",
            "n_layer": 4,
            "n_embd": 64,
            "n_head": 8,
            "vocab_size": 512,
            "n_positions": 128,
            "n_inner": 96,
        },
        158_464,
    ),
    (
        {
            "model_type": "opt",
            "num_hidden_layers": 4,
            "hidden_size": 64,
            "num_attention_heads": 8,
            "ffn_dim": 128,
            "vocab_size": 512,
            "max_position_embeddings": 128,
            "enable_bias": False,
            "layer_norm_elementwise_affine": False,
        },
        172_160,
    ),
    (
        {
            "model_type": "mpt",
            "n_layers": 4,
            "d_model": 64,
            "n_heads": 8,
            "max_seq_len": 128,
            "vocab_size": 512,
        },
        229_952,
    ),
    (small("olmo", attention_bias=True), 242_304),
    (small("phi3"), 242_240),
    (small("mistral"), 242_240),
    (small("qwen2"), 242_624),
    (small("gemma2", head_dim=16), 250_944),
    (small("gemma3_text", head_dim=16), 251_072),
    ({"model_type": "bloom", "n_layer": 4, "hidden_size": 64, "n_head": 8, "vocab_size": 512}, 232_960),
    (
        {
            "model_type": "gptj",
            "n_layer": 4,
            "n_embd": 64,
            "n_head": 4,
            "vocab_size": 512,
            "n_positions": 128,
            "rotary_dim": 8,
        },
        264_576,
    ),
]

# Families whose implementation is not part of that library: counted by hand.
H, F, V, KV = 64, 176, 512, 16
GATED_MULTI_HEAD = 4 * (4 * H * H + 3 * H * F + 2 * H) + 2 * V * H + H
BY_HAND = [
    (
        small("internlm2", bias=True),
        4 * (2 * H * H + 2 * H * KV + 3 * H * F + 4 * H + 2 * KV) + 2 * V * H + H,
    ),
    (small("baichuan", num_key_value_heads=None), GATED_MULTI_HEAD),
    (small("baichuan", num_key_value_heads=None, max_position_embeddings=None), GATED_MULTI_HEAD),
]


@each(("config", "count"), [*INSTANTIATED, *BY_HAND])
def test_a_configuration_counts_as_its_instance_does(config, count):
    assert parameters(from_config(config)) == count


def test_every_family_that_says_all_its_sizes_is_tested_by_an_instance():
    here = [config["model_type"] for config, _count in [*INSTANTIATED, *BY_HAND]]
    elsewhere = [config["model_type"] for config, _count in [*OF_EXPERTS, *STEERED]] + ["bamba", "nemotron_h"]
    tested = [described(family) for family in here + elsewhere]
    assert [family for family in PLAIN if described(family) not in tested] == ["phi-msft"]


def described(family):
    """What the table says of a family, whatever it is like."""
    return {key: value for key, value in families()[family].items() if key != "like"}


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("t5", ": an encoder, alone or in front of a decoder, is not priced"),
        ("bert", ": an encoder, alone or in front of a decoder, is not priced"),
        ("perceiver", " is not supported; .* families of decoders can be read, such as llama"),
        ("qwen9", " is not supported; did you mean qwen"),
    ],
)
def test_a_family_with_other_layers_is_refused_by_name(family, reason):
    with pytest.raises(UnsupportedFamily, match=f"'{family}'{reason}") as caught:
        from_config(small(family))
    assert "\n" not in str(caught.value)


def test_the_class_name_stands_in_for_a_missing_family():
    config = small("llama")
    del config["model_type"]
    assert from_config(config | {"architectures": ["LlamaForCausalLM"]}).family == "llama"
    assert from_config(config | {"architectures": ["GPTNeoXForCausalLM"]}).family == "gpt_neox"
    with pytest.raises(UnsupportedFamily, match="bert"):
        from_config(config | {"architectures": ["BertForCausalLM"]})
    with pytest.raises(BadModel, match="neither as model_type nor as architectures"):
        from_config(config)


@each(
    "field",
    ["num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"],
)
@each("value", ["32", -1, 0, 32.0, [32], {"n": 1}, True, float("nan")])
def test_a_size_of_the_wrong_type_is_one_line_with_its_name(field, value):
    with pytest.raises(BadModel, match=field) as caught:
        from_config(small("llama", **{field: value}), name="mine")
    assert str(caught.value).startswith("mine: ")
    assert "\n" not in str(caught.value)


@each(("field", "value"), [("num_hidden_layers", 32.5), ("hidden_size", 10**30), ("vocab_size", 2**31)])
def test_a_wrong_size_is_said_before_a_length_that_is_missing(field, value):
    config = small("llama", **{field: value})
    del config["max_position_embeddings"]
    with pytest.raises(BadModel, match=f"{field}: expected a "):
        from_config(config)


@each("family", PLAIN)
def test_an_empty_configuration_names_the_first_missing_field(family):
    with pytest.raises(BadModel, match="missing from the Hugging Face configuration"):
        from_config({"model_type": family, "vocab_size": 512})


@each(
    ("changes", "message"),
    [
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: expected true or false, got 'yes'"),
        ({"hidden_act": "maxout"}, "hidden_act: expected one of gelu, .*, got 'maxout'"),
        ({"hidden_act": 3}, "hidden_act: expected one of"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor: expected a number from 0 to 1, got 1.5"),
        ({"rope_parameters": [1]}, "rope_parameters: expected an object"),
        ({"num_key_value_heads": 3}, "num_query_groups 3 does not divide num_heads 8; 1, 2, 4, 8 do"),
        ({"num_attention_heads": 7}, "7 heads do not divide a hidden size of 64"),
        ({"num_hidden_layers": 10**30}, "num_hidden_layers: expected at most 10,000 layers"),
    ],
)
def test_other_contradictions_are_one_line_too(changes, message):
    with pytest.raises(BadModel, match=message) as caught:
        from_config(small("llama", **changes))
    assert "\n" not in str(caught.value)


def test_local_and_global_layers_follow_the_family_or_the_listed_layers():
    assert from_config(small("gemma2", sliding_window=32)).sliding_window_every == 2
    assert from_config(small("gemma3_text", sliding_window=32, num_hidden_layers=12)).sliding_window_every == 6
    assert from_config(small("mistral", sliding_window=32)).sliding_window_every is None
    assert from_config(small("mistral", sliding_window=None)).sliding_window is None
    assert from_config(small("qwen2", sliding_window=32)).sliding_window is None
    listed = ["sliding_attention", "full_attention"] * 2
    windowed = from_config(small("gemma3_text", sliding_window=32, layer_types=listed))
    assert (windowed.sliding_window, windowed.sliding_window_every) == (32, 2)
    everywhere = from_config(small("gemma2", sliding_window=32, layer_types=["sliding_attention"] * 4))
    assert (everywhere.sliding_window, everywhere.sliding_window_every) == (32, None)
    nowhere = from_config(small("gemma2", sliding_window=32, layer_types=["full_attention"] * 4))
    assert nowhere.sliding_window is None


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
@pytest.mark.parametrize(("full", "window"), [(0, 32), (4, None), (28, None), (None, None)])
def test_qwens_window_begins_at_the_layer_that_is_said(family, full, window):
    """Of four layers; where nothing is said the first 28 attend to everything."""
    said = {} if full is None else {"max_window_layers": full}
    model = from_config(small(family, sliding_window=32, use_sliding_window=True, **said))
    assert (model.sliding_window, model.sliding_window_every) == (window, None)


def test_a_window_may_be_that_of_some_upper_layers_alone():
    model = from_config(small("qwen2", sliding_window=32, use_sliding_window=True, max_window_layers=3))
    assert model.mixer_pattern == "***w"


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        (["sliding_attention"] * 3, "3 entries for num_hidden_layers 4"),
        (["sliding_attention"] * 3 + ["sliding"], "layers of kind sliding are not priced; full_attention"),
    ],
)
def test_kinds_of_layers_that_contradict_the_model_are_refused(kinds, reason):
    with pytest.raises(BadModel, match=f"layer_types: {reason}"):
        from_config(small("gemma2", sliding_window=32, layer_types=kinds))


def test_an_irregular_list_of_layers_is_kept_layer_by_layer():
    kinds = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]
    assert from_config(small("gemma2", sliding_window=32, layer_types=kinds)).mixer_pattern == "*w*w"


def test_the_default_sequence_is_the_reach_of_positions_at_most_8192():
    short, long = (from_config(small("llama", max_position_embeddings=reach)) for reach in (128, 131072))
    assert (short.seq_length, short.reach) == (128, None)
    assert (long.seq_length, long.reach) == (8192, 131072)


@pytest.mark.parametrize(
    ("family", "field"),
    [
        ("llama", "max_position_embeddings"),
        ("opt", "max_position_embeddings"),
        ("gpt2", "n_positions"),
        ("gpt_neo", "max_position_embeddings"),
        ("mpt", "max_seq_len"),
    ],
)
def test_positions_reach_the_sequence_that_is_asked_for_where_nothing_says_how_far(family, field):
    config = next(one for one, *_ in INSTANTIATED if one["model_type"] == family)
    silent = {name: value for name, value in config.items() if name not in (field, "max_position_embeddings")}
    with pytest.raises(BadModel, match=f"{field}: missing from the Hugging Face configuration; .*--seq-len"):
        from_config(silent)
    asked = from_config(silent, seq_length=96)
    assert (asked.seq_length, asked.reach) == (96, None)
    assert from_config(config, seq_length=96) == from_config(config)


def test_rotary_fraction_is_read_in_its_older_and_newer_place_and_as_a_width():
    assert from_config(small("llama", head_dim=32, rotary_dim=16)).rotary_fraction == 0.5
    assert from_config(small("phi", partial_rotary_factor=0.4)).rotary_fraction == 0.4
    newer = small("phi", rope_parameters={"partial_rotary_factor": 0.75})
    assert from_config(newer).rotary_fraction == 0.75
