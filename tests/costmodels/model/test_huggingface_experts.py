"""Hugging Face configurations with experts or latent attention: every family and switch against instances."""

import pytest

from costmodels.model import catalogue
from costmodels.model.huggingface import from_config
from costmodels.model.model import BadModel
from costmodels.model.parameters import parameters
from tests.costmodels.configs import small
from tests.each import each

DENSE_FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "phi3"]

QWEN = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
QWEN2 = QWEN | {"shared_expert_intermediate_size": 96}
DEEPSEEK = {
    "num_key_value_heads": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 12,
}
LLAMA4 = {"intermediate_size_mlp": 200, "num_local_experts": 4}
GPT_OSS = {"num_local_experts": 4, "head_dim": 16}
DBRX = {
    "model_type": "dbrx",
    "d_model": 64,
    "n_heads": 8,
    "n_layers": 4,
    "max_seq_len": 128,
    "vocab_size": 512,
    "attn_config": {"kv_n_heads": 2},
    "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2},
}

# Counted on instances of the Hugging Face implementations (transformers 5.23).
INSTANTIATED = [
    (small("mixtral", num_local_experts=4), 648_768),
    (small("mixtral", num_local_experts=4, head_dim=16, tie_word_embeddings=True), 656_960),
    (small("qwen2_moe", **QWEN2), 367_296),
    (small("qwen2_moe", **QWEN2, decoder_sparse_step=2, qkv_bias=False), 304_576),
    (small("qwen3_moe", **QWEN, head_dim=16, mlp_only_layers=[0], attention_bias=True), 322_368),
    (small("qwen3_moe", **QWEN, head_dim=8, mlp_only_layers=[1]), 280_320),
    (small("llama4_text", **LLAMA4, head_dim=8, moe_layers=[0, 3]), 522_304),
    (small("deepseek_v2", **DEEPSEEK, n_shared_experts=2, first_k_dense_replace=1, q_lora_rank=None), 304_256),
    (
        small(
            "deepseek_v2",
            **DEEPSEEK,
            n_shared_experts=2,
            first_k_dense_replace=1,
            q_lora_rank=20,
            attention_bias=True,
        ),
        292_976,
    ),
    (DBRX, 403_008),
    (small("gpt_oss", **GPT_OSS), 697_456),
    (small("gpt_oss", **GPT_OSS, attention_bias=False, tie_word_embeddings=True), 663_664),
    (small("llama4_text", **LLAMA4, interleave_moe_layer_step=2, head_dim=16), 563_264),
    (small("llama4_text", **LLAMA4, attention_bias=True, head_dim=8), 784_576),
    (small("llama4_text", **LLAMA4, interleave_moe_layer_step=4, head_dim=8, use_qk_norm=False), 391_488),
    (small("phimoe", num_local_experts=4), 649_344),
    (small("phimoe", num_local_experts=4, attention_bias=True, lm_head_bias=True), 650_496),
    (small("olmoe", num_experts=4, num_experts_per_tok=2), 649_088),
    (small("olmoe", num_experts=4, num_experts_per_tok=2, attention_bias=True), 649_728),
    (small("granitemoe", num_local_experts=4), 648_768),
    (small("granitemoe", num_local_experts=4, attention_bias=True, tie_word_embeddings=True), 616_640),
]

# Instances keep the numbers that steer the experts' load outside of their parameters.
V3 = DEEPSEEK | {"n_shared_experts": 1, "first_k_dense_replace": 2, "q_lora_rank": 20}
STEERED = [(small(family, **V3), 270_544) for family in ("deepseek_v3", "kimi_k2")]


@each(("config", "count"), [*INSTANTIATED, *STEERED])
def test_a_configuration_counts_as_its_instance_does(config, count):
    assert parameters(from_config(config)) == count


def test_the_text_part_of_a_vision_model_is_read():
    text = small("llama4_text", **LLAMA4, attention_chunk_size=64, head_dim=8)
    whole = {"model_type": "llama4", "text_config": text, "vision_config": {"hidden_size": -7}}
    read = from_config(whole)
    assert read.source == "Hugging Face configuration without its vision tower"
    assert read == from_config(text).model_copy(update={"source": read.source})


def test_layers_that_look_ahead_are_left_out_and_named():
    read = from_config(small("deepseek_v3", **V3, num_nextn_predict_layers=1))
    assert read.mtp_layers == 0
    assert read.source.endswith("without its layers that predict further tokens (--set model.mtp_layers=1)")


@pytest.mark.parametrize(("said", "method"), [({"quant_method": "fp8"}, "fp8"), ({}, "an unnamed method")])
def test_weights_that_are_stored_in_few_bits_are_named(said, method):
    read = from_config(small("llama", quantization_config=said))
    assert read.source.endswith(f"without its quantisation of weights by {method} (--base-precision)")
    assert parameters(read) == parameters(from_config(small("llama")))


def test_groups_that_limit_a_router_are_read_unless_it_ignores_them():
    limits = {"n_group": 4, "topk_group": 2}
    moe = from_config(small("deepseek_v3", **V3, **limits)).moe
    assert (moe.router_groups, moe.router_group_top_k) == (4, 2)
    greedy = from_config(small("deepseek_v2", **DEEPSEEK, **limits, topk_method="greedy", n_shared_experts=1)).moe
    assert (greedy.router_groups, greedy.router_group_top_k) == (1, 1)


@pytest.mark.parametrize(
    ("scaling", "scaled"),
    [
        (None, False),
        ({"rope_type": "default"}, False),
        ({"rope_type": "llama3", "factor": 8.0}, False),
        ({"rope_type": "yarn", "factor": 32.0}, True),
        ({"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}, False),
        ({"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 0.7}, True),
        ({"type": "longrope", "factor": 4.0}, True),
    ],
)
@pytest.mark.parametrize("field", ["rope_scaling", "rope_parameters"])
def test_a_factor_on_sines_and_cosines_is_read(scaling, scaled, field):
    assert from_config(small("gpt_oss", **GPT_OSS, **{field: scaling})).rotary_scaled is scaled


def test_local_layers_of_gpt_oss_and_llama_4_are_read():
    oss = from_config(small("gpt_oss", **GPT_OSS, sliding_window=32))
    assert (oss.sliding_window, oss.sliding_window_every, oss.attention_sinks) == (32, 2, True)
    llama = from_config(small("llama4_text", **LLAMA4, attention_chunk_size=64))
    assert (llama.sliding_window, llama.sliding_window_every, llama.chunked_attention) == (64, 4, True)
    kinds = ["chunked_attention", "full_attention"] * 2
    listed = from_config(small("llama4_text", **LLAMA4, attention_chunk_size=64, layer_types=kinds))
    assert (listed.sliding_window, listed.sliding_window_every) == (64, 2)
    assert from_config(small("mixtral", num_local_experts=4, sliding_window=None)).sliding_window is None


def test_a_published_configuration_is_the_catalogue_model():
    config = small(
        "deepseek_v2",
        hidden_size=2048,
        intermediate_size=10944,
        num_hidden_layers=27,
        num_attention_heads=16,
        num_key_value_heads=16,
        vocab_size=102400,
        moe_intermediate_size=1408,
        n_routed_experts=64,
        n_shared_experts=2,
        num_experts_per_tok=6,
        first_k_dense_replace=1,
        moe_layer_freq=1,
        q_lora_rank=None,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
    )
    read, known = from_config(config), catalogue.model("deepseek-v2-lite")
    assert (read.moe, read.mla, read.head_dim) == (known.moe, known.mla, known.head_dim)
    assert read.rotary_fraction == known.rotary_fraction == 64 / 192
    assert parameters(read) == parameters(known)


@each(
    ("config", "message"),
    [
        (small("mixtral"), "num_local_experts: missing"),
        (small("mixtral", num_local_experts=4, num_experts_per_tok=5), "moe: top_k 5 is more than num_experts 4"),
        (small("qwen3_moe", **QWEN, mlp_only_layers=3), "mlp_only_layers: expected a list of layers"),
        (small("deepseek_v3", **V3 | {"kv_lora_rank": "512"}), "kv_lora_rank: expected a positive whole number"),
        (small("deepseek_v3", **V3 | {"n_shared_experts": -1}), "n_shared_experts: expected a positive whole"),
        (small("deepseek_v3", **V3 | {"n_shared_experts": False}), "n_shared_experts: expected a positive whole"),
        (small("deepseek_v2", **V3, mlp_bias=True), "mlp_bias: .* not priced"),
        (DBRX | {"ffn_config": 3}, "ffn_config.ffn_hidden_size: missing"),
        ({"model_type": "llama4"}, "'llama4' is not supported"),
    ],
)
def test_contradictions_are_one_line(config, message):
    with pytest.raises(BadModel, match=message) as caught:
        from_config(config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("family", DENSE_FAMILIES)
@pytest.mark.parametrize("field", ["num_local_experts", "num_experts", "n_routed_experts"])
def test_experts_under_a_dense_family_are_refused_not_planned_as_dense(family, field):
    with pytest.raises(BadModel, match=f"{field} 8: model_type '{family}' has no experts; .*mixtral"):
        from_config(small(family, **{field: 8}), name="mine")


def test_experts_in_a_nested_part_of_a_dense_family_are_refused_too():
    config = {
        "model_type": "mpt", "d_model": 64, "n_heads": 8, "n_layers": 4, "max_seq_len": 128, "vocab_size": 512,
    }  # fmt: skip
    assert from_config(config).moe is None
    with pytest.raises(BadModel, match="ffn_config: moe_num_experts 4: model_type 'mpt' has no experts"):
        from_config(config | {"ffn_config": {"moe_num_experts": 4}})


@pytest.mark.parametrize("count", [None, 0, 1])
def test_a_dense_family_may_say_that_it_has_no_or_one_expert(count):
    assert from_config(small("llama", num_local_experts=count)) == from_config(small("llama"))


def test_a_number_of_experts_that_is_none_is_refused_under_a_dense_family():
    with pytest.raises(BadModel, match="num_experts: expected a positive whole number, got 'many'"):
        from_config(small("llama", num_experts="many"))
