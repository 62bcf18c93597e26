"""Parameter counts against instantiated models, published counts and formulas of the papers."""

import pytest

from costmodels import model_catalogue, parameters
from costmodels.model import BadModel, Model, from_shape

# Counted on instances of the Hugging Face implementations (transformers 5.23), published configurations.
INSTANTIATED = {
    "gpt2-124m": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-33b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma2-2b": 2_614_341_888,
    "gemma2-9b": 9_241_705_984,
    "gemma2-27b": 27_227_128_320,
    "gemma3-12b": 11_766_034_176,
    "gemma3-27b": 27_009_346_304,
    "bloom-560m": 559_214_592,
    "bloom-1.1b": 1_065_314_304,
    "bloom-1.7b": 1_722_408_960,
    "bloom-3b": 3_002_557_440,
    "bloom-7.1b": 7_069_016_064,
    "bloom-176b": 176_247_271_424,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "opt-1.3b": 1_315_758_080,
    "opt-2.7b": 2_651_596_800,
    "opt-6.7b": 6_658_473_984,
    "opt-13b": 12_853_473_280,
    "opt-30b": 29_974_540_288,
    "opt-66b": 65_719_701_504,
    "opt-175b": 174_604_468_224,
    "gpt-neox-20b": 20_554_567_680,
    "pythia-160m": 162_322_944,
    "pythia-1.4b": 1_414_647_808,
    "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320,
    "gpt-j-6b": 6_050_882_784,
    "falcon-7b": 6_921_720_704,
    "falcon-40b": 41_303_293_952,
    "falcon-180b": 178_557_088_768,
    "mpt-7b": 6_649_286_656,
    "mpt-30b": 29_957_200_896,
    "phi-3-mini": 3_821_079_552,
    "phi-2": 2_779_683_840,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-15b": 15_655_899_136,
    "olmo-7b": 6_888_095_744,
    "olmo2-7b": 7_298_617_344,
    "command-r-35b": 34_980_831_232,
    "stablelm-3b": 2_795_443_200,
    "nemotron4-15b": 15_628_775_424,
    "nemotron4-340b": 341_029_195_776,
    "granite-3.0-8b": 8_170_848_256,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen2-57b-a14b": 57_408_658_944,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "dbrx-132b": 131_596_523_520,
    "llama4-scout": 107_769_861_120,
    "llama4-maverick": 400_711_848_960,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "phi-3.5-moe": 41_873_153_344,
    "olmoe-1b-7b": 6_919_161_856,
    # Counted by llama.cpp on the published weights ("n_params").
    "nemotron-nano-9b-v2": 8_888_227_328,
    "nemotron-3-nano-30b-a3b": 31_577_940_288,
}

# Instances of this family keep the number per expert that steers its load outside their parameters.
INSTANTIATED_WITHOUT_ROUTER_BIAS = {
    "deepseek-v3": (671_026_404_352, 58 * 256),
    "kimi-k2": (1_026_408_209_408, 60 * 384),
    "moonlight-16b-a3b": (15_960_108_544, 26 * 64),
}

# Published figures of the parameters that a token meets, embedding and head included, billions.
ACTIVE = {
    "mixtral-8x7b": (12.9, 0.05),
    "mixtral-8x22b": (39, 0.5),
    "qwen2-57b-a14b": (14, 0.5),
    "qwen3-30b-a3b": (3.3, 0.06),
    "qwen3-235b-a22b": (22, 0.5),
    "deepseek-v2": (21, 0.5),
    "deepseek-v3": (37, 0.6),
    "kimi-k2": (32, 0.9),
    "dbrx-132b": (36, 0.5),
    "llama4-scout": (17, 0.5),
    "llama4-maverick": (17, 0.5),
    "phi-3.5-moe": (6.6, 0.05),
    "olmoe-1b-7b": (1.3, 0.05),
    "nemotron-3-nano-30b-a3b": (3.6, 0.05),
}

# The same without the embedding, which the model card leaves out.
ACTIVE_WITHOUT_EMBEDDING = {"gpt-oss-20b": (3.61, 0.005), "gpt-oss-120b": (5.13, 0.005)}

# Published to the digits given; the count must round to them.
ROUNDED = {
    "gpt3-175b": (174.6e9, 0.05e9),
    "megatron-3.6b": (3.6e9, 0.05e9),
    "megatron-7.5b": (7.5e9, 0.05e9),
    "megatron-18.4b": (18.4e9, 0.05e9),
    "megatron-39.1b": (39.1e9, 0.05e9),
    "megatron-76.1b": (76.1e9, 0.05e9),
    "megatron-145.6b": (145.6e9, 0.05e9),
    "megatron-310.1b": (310.1e9, 0.05e9),
    "megatron-529.6b": (529.6e9, 0.05e9),
    "megatron-1008b": (1008.0e9, 0.05e9),
    "megatron-22b": (22e9, 0.5e9),
    "megascale-175b": (174.8e9, 0.05e9),
    "megascale-530b": (529.9e9, 0.05e9),
    "yuan1-245b": (245.73e9, 0.005e9),
    "yuan2-102b": (102.6e9, 0.05e9),
    "yuan2-51b": (51.8e9, 0.05e9),
    "yuan2-2.1b": (2.1e9, 0.05e9),
    "palm-8b": (8.63e9, 0.005e9),
    "palm-62b": (62.50e9, 0.005e9),
    "palm-540b": (540.35e9, 0.01e9),
    "ernie-230b": (232e9, 0.5e9),
    "nemotron-h-8b": (8.1e9, 0.05e9),
    "nemotron-h-47b": (46.8e9, 0.05e9),
    "nemotron-h-56b": (56.3e9, 0.05e9),
    "nemotron-nano-12b-v2": (12.31e9, 0.005e9),
}


@pytest.mark.parametrize(("name", "count"), INSTANTIATED.items())
def test_count_equals_the_instantiated_model(name, count):
    assert parameters.parameters(model_catalogue.model(name)) == count


@pytest.mark.parametrize(("name", "counts"), INSTANTIATED_WITHOUT_ROUTER_BIAS.items())
def test_count_equals_the_instantiated_model_and_its_router_biases(name, counts):
    assert parameters.parameters(model_catalogue.model(name)) == sum(counts)


@pytest.mark.parametrize(("name", "published"), ACTIVE.items())
def test_active_parameters_round_to_the_published_ones(name, published):
    billions, half_a_digit = published
    active = parameters.active_parameters(model_catalogue.model(name))
    assert active / 1e9 == pytest.approx(billions, abs=half_a_digit, rel=0)


@pytest.mark.parametrize(("name", "published"), ACTIVE_WITHOUT_EMBEDDING.items())
def test_active_parameters_without_the_embedding_round_to_the_published_ones(name, published):
    model = model_catalogue.model(name)
    active = parameters.active_parameters(model) - parameters.embedding_parameters(model)
    assert active / 1e9 == pytest.approx(published[0], abs=published[1], rel=0)


def test_a_quarter_of_grok_s_experts_and_all_else_are_active():
    """Two experts of eight: "25 % of the weights active on a given token" of 314 billion."""
    model = model_catalogue.model("grok-1")
    assert parameters.parameters(model) / 1e9 == pytest.approx(314, rel=0.006)
    assert parameters.active_parameters(model) / parameters.parameters(model) == pytest.approx(0.25, abs=0.02)


def test_deepseek_v3_with_its_prediction_layer_is_the_checkpoint_without_its_copies():
    model = model_catalogue.model("deepseek-v3").model_copy(update={"mtp_layers": 1})
    # The published checkpoint repeats embedding and head beside the prediction layer.
    assert parameters.parameters(model) + 2 * 129280 * 7168 == 684_489_845_504


def test_nemotron_3_super_without_its_prediction_layers_is_what_llama_cpp_counts():
    model = model_catalogue.model("nemotron-3-super-120b-a12b").model_copy(update={"mtp_layers": 0})
    assert parameters.parameters(model) == 120_668_707_840
    assert parameters.active_parameters(model) / 1e9 == pytest.approx(12.7, abs=0.1)


def test_nemotron_3_ultra_without_its_prediction_layers_rounds_to_550_and_55_billion():
    model = model_catalogue.model("nemotron-3-ultra-550b-a55b").model_copy(update={"mtp_layers": 0})
    assert parameters.parameters(model) / 1e9 == pytest.approx(550, rel=0.005)
    looked_up = parameters.embedding_parameters(model)
    assert (parameters.active_parameters(model) - looked_up) / 1e9 == pytest.approx(55, abs=0.5)


@pytest.mark.parametrize(("name", "published"), ROUNDED.items())
def test_count_rounds_to_the_published_one(name, published):
    count, half_a_digit = published
    assert parameters.parameters(model_catalogue.model(name)) == pytest.approx(count, abs=half_a_digit, rel=0)


@pytest.mark.parametrize("name", model_catalogue.names())
def test_every_catalogue_model_states_a_count_that_its_shape_confirms(name):
    model = model_catalogue.model(name)
    assert parameters.parameters(model) == pytest.approx(model.published_parameters, rel=0.03)


def test_the_1_7b_model_of_megatron_is_1_65b_as_its_own_formula_says():
    model = model_catalogue.model("megatron-1.7b")
    L, H, V, S = 24, 2304, 51200, 2048
    formula = 12 * L * H**2 * (1 + 13 / (12 * H) + (V + S) / (12 * L * H))
    # The formula leaves out the final norm.
    assert parameters.parameters(model) == round(formula) + 2 * H


def test_the_parts_of_a_small_gpt_by_hand():
    model = Model.dense(num_layers=2, hidden_size=8, num_heads=2, vocab_size=100, seq_length=16)
    assert parameters.qkv_parameters(model) == 3 * 8 * 8 + 3 * 8
    assert parameters.attention_output_parameters(model) == 8 * 8
    assert parameters.fc1_parameters(model) == 8 * 32 + 32
    assert parameters.fc2_parameters(model) == 32 * 8
    assert parameters.layer_matrix_parameters(model) == 216 + 64 + 288 + 256
    assert parameters.layer_replicated_parameters(model) == 2 * 8 + 2 * 2 * 8
    assert parameters.embedding_parameters(model) == 100 * 8
    assert parameters.position_parameters(model) == 16 * 8
    assert parameters.head_parameters(model) == 0
    assert parameters.final_norm_parameters(model) == 16
    assert parameters.parameters(model) == 2 * (824 + 48) + 800 + 128 + 16
    assert parameters.parameters_without_embedding(model) == 2 * (824 + 48) + 16


TINY = {
    "num_layers": 3, "hidden_size": 8, "num_heads": 2, "vocab_size": 100, "seq_length": 16, "gated_ffn": True,
    "ffn_hidden_size": 20, "experts": 4, "top_k": 2, "expert_ffn": 6, "shared_experts": 2, "dense_layers": 1,
}  # fmt: skip
TINY_MLA = {"q_lora": 5, "kv_lora": 4, "qk_nope": 3, "qk_rope": 2, "v": 3}


def test_the_parts_of_a_small_mixture_by_hand():
    model = from_shape(TINY)
    attention, expert, shared = 4 * 8 * 8, 3 * 6 * 8, 3 * 12 * 8
    assert parameters.attention_parameters(model) == parameters.attention_matrix_parameters(model) == attention
    assert parameters.expert_parameters(model) == parameters.expert_matrix_parameters(model) == expert
    assert parameters.shared_expert_parameters(model) == shared
    assert parameters.router_parameters(model) == 4 * 8
    assert parameters.moe_layer_matrix_parameters(model) == attention + shared
    assert parameters.moe_layer_replicated_parameters(model) == 2 * 8 + 4 * 8
    assert parameters.moe_layer_expert_parameters(model) == 4 * expert
    assert parameters.moe_layer_parameters(model) == attention + shared + 16 + 32 + 4 * expert
    assert parameters.dense_layer_parameters(model) == attention + 3 * 20 * 8 + 16
    layers = parameters.dense_layer_parameters(model) + 2 * parameters.moe_layer_parameters(model)
    assert parameters.parameters(model) == layers + 8 + 2 * 100 * 8
    assert parameters.active_parameters(model) == parameters.parameters(model) - 2 * 2 * expert


def test_every_bias_of_a_small_mixture_by_hand():
    plain = from_shape(TINY)
    said = {"ffn_bias": True, "output_bias": True, "qkv_bias": True, "attention_sinks": True}
    model = from_shape(TINY | said)
    assert parameters.expert_matrix_parameters(model) - parameters.expert_matrix_parameters(plain) == 2 * 6
    assert parameters.expert_parameters(model) - parameters.expert_parameters(plain) == 2 * 6 + 8
    assert parameters.shared_expert_parameters(model) - parameters.shared_expert_parameters(plain) == 2 * 12 + 8
    assert parameters.attention_matrix_parameters(model) - parameters.attention_matrix_parameters(plain) == 24 + 2
    assert parameters.attention_replicated_parameters(model) == 8
    routed = model.moe.model_copy(update={"router_bias": True, "shared_expert_gate": True})
    more = model.model_copy(update={"moe": routed})
    assert parameters.router_parameters(more) == 4 * (8 + 1)
    assert parameters.moe_layer_parameters(more) - parameters.moe_layer_parameters(model) == 4 + 8


def test_experts_of_a_narrower_width_are_projected_to():
    model = from_shape(TINY | {"moe_latent": 4})
    assert parameters.expert_parameters(model) == 3 * 6 * 4
    assert parameters.shared_expert_parameters(model) == 3 * 12 * 8
    assert parameters.expert_projection_parameters(model) == 2 * 8 * 4
    assert parameters.moe_layer_replicated_parameters(model) == 2 * 8 + 4 * 8 + 2 * 8 * 4


def test_latent_attention_shards_its_up_projections_only():
    model = from_shape(TINY | {"mla": TINY_MLA})
    names = [(each.name, each.inputs, each.outputs, each.sharded) for each in parameters.attention_projections(model)]
    assert names == [
        ("q_down", 8, 5, False), ("q_up", 5, 10, True), ("kv_down", 8, 6, False), ("kv_up", 4, 12, True),
        ("output", 6, 8, True),
    ]  # fmt: skip
    assert parameters.attention_matrix_parameters(model) == 5 * 10 + 4 * 12 + 6 * 8
    assert parameters.attention_replicated_parameters(model) == 8 * 5 + 8 * 6 + 5 + 4
    direct = from_shape(TINY | {"mla": TINY_MLA | {"q_lora": None}})
    assert parameters.attention_matrix_parameters(direct) == 8 * 10 + 4 * 12 + 6 * 8
    assert parameters.attention_replicated_parameters(direct) == 8 * 6 + 4


def test_a_prediction_layer_is_a_last_layer_two_squares_and_three_norms():
    for shape, layer in ((TINY, parameters.moe_layer_parameters), (DENSE, parameters.dense_layer_parameters)):
        model = from_shape(shape | {"mtp_layers": 2})
        more = parameters.parameters(model) - parameters.parameters(from_shape(shape))
        assert more == parameters.mtp_parameters(model) == 2 * (layer(model) + 2 * 8 * 8 + 3 * 8)
        assert parameters.active_parameters(model) <= parameters.parameters(model)


DENSE = {key: value for key, value in TINY.items() if "expert" not in key and key not in {"top_k", "dense_layers"}}


def test_a_dense_model_has_no_part_of_a_mixture():
    model = from_shape(DENSE)
    functions = (
        parameters.expert_parameters, parameters.router_parameters, parameters.shared_expert_parameters,
        parameters.moe_layer_parameters, parameters.moe_layer_expert_parameters, parameters.latent_parameters,
    )  # fmt: skip
    assert [function(model) for function in functions] == [0] * 6
    assert parameters.active_parameters(model) == parameters.parameters(model)
    assert parameters.layer_parameters(model) == parameters.dense_layer_parameters(model)


@pytest.mark.parametrize("name", ["layer_matrix_parameters", "layer_replicated_parameters", "layer_parameters"])
def test_no_layer_of_a_mixture_stands_for_all(name):
    with pytest.raises(BadModel, match="'custom' has 2 layers with experts and 1 dense ones: no one size"):
        getattr(parameters, name)(from_shape(TINY))


def test_localized_filtering_adds_two_hidden_squares_and_a_norm_per_layer():
    shape = {
        "num_layers": 3, "hidden_size": 64, "num_heads": 4, "vocab_size": 128, "seq_length": 32,
        "gated_ffn": True, "ffn_hidden_size": 256, "tied_embeddings": True,
    }  # fmt: skip
    plain, filtered = from_shape(shape), from_shape(shape | {"localized_filtering": True})
    per_layer = parameters.layer_parameters(filtered) - parameters.layer_parameters(plain)
    assert per_layer == 2 * 64**2 + 64
    matrices = 18 * 3 * 64**2 + 128 * 64
    assert parameters.parameters(filtered) == matrices + 3 * 3 * 64 + 64


def test_a_factorised_embedding_trades_the_table_for_projections():
    ernie = model_catalogue.model("ernie-230b")
    assert parameters.embedding_parameters(ernie) == 30000 * 512 + 2 * 512 * 12288
    untied = ernie.model_copy(update={"tied_embeddings": False})
    assert parameters.embedding_parameters(untied) == 30000 * 512 + 512 * 12288
    assert parameters.head_parameters(untied) == 30000 * 12288


def test_an_untied_head_with_bias_is_counted_apart():
    gptj = model_catalogue.model("gpt-j-6b")
    assert parameters.head_parameters(gptj) == 50400 * 4096 + 50400


@pytest.mark.parametrize(
    ("vocab_size", "tp", "rows"),
    [
        (50257, 1, 50304),
        (50257, 2, 50432),
        (50257, 8, 51200),
        (32000, 8, 32768),
        (51200, 8, 51200),
        (1, 1, 128),
    ],
)
def test_vocabulary_is_padded_to_128_rows_per_tensor_rank(vocab_size, tp, rows):
    assert parameters.padded_vocabulary(vocab_size, tp=tp) == rows


def test_padding_shows_in_embedding_and_untied_head_only():
    llama = model_catalogue.model("llama3-8b")
    added = parameters.parameters(llama, padded=True, tp=8) - parameters.parameters(llama)
    assert added == 2 * (129024 - 128256) * 4096


def test_a_stated_padding_wins_where_it_splits_over_the_ranks():
    model = Model.dense(num_layers=1, hidden_size=8, num_heads=1, vocab_size=1000)
    stated = model.model_copy(update={"padded_vocab_size": 1004})
    assert parameters.embedding_rows(stated, padded=True, tp=4) == 1004
    assert parameters.embedding_rows(stated, padded=True, tp=8) == 1024
    assert parameters.embedding_rows(stated) == 1000


NEMOTRON = {
    "num_layers": 32, "hidden_size": 6144, "num_heads": 48, "num_query_groups": 8, "ffn_hidden_size": 24576,
    "gated_ffn": False, "vocab_size": 256000, "seq_length": 4096, "params_b": 15.6,
}  # fmt: skip


def test_the_size_of_a_measured_run_settles_whether_its_head_is_shared():
    assert not parameters.from_run(NEMOTRON).tied_embeddings
    assert parameters.from_run(NEMOTRON | {"params_b": 14.1}).tied_embeddings
    assert parameters.from_run(NEMOTRON | {"tied_embeddings": True}).tied_embeddings
    assert parameters.from_run(NEMOTRON | {"params_b": None}).tied_embeddings


def test_a_rounded_size_does_not_overrule_the_usual_head():
    gpt3 = {"num_layers": 96, "hidden_size": 12288, "num_heads": 96, "vocab_size": 51200, "seq_length": 2048}
    assert parameters.from_run(gpt3 | {"params_b": 175}).tied_embeddings


def test_a_reduced_deepseek_v2_counts_as_its_simulator_states():
    row = {
        "kind": "moe", "num_layers": 4, "full_model_layers": 60, "hidden_size": 5120, "num_heads": 128,
        "num_query_groups": 128, "head_dim": 128, "ffn_hidden_size": 12288, "gated_ffn": True,
        "vocab_size": 102400, "padded_vocab_size": 102528, "seq_length": 4096, "tied_embeddings": False,
        "norm": "rmsnorm", "activation": "swiglu", "linear_bias": False, "attention": "mla", "experts": 160,
        "top_k": 6, "expert_ffn": 1536, "shared_experts": 2, "shared_expert_ffn_total": 3072, "dense_layers": 1,
        "mla": {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                "v_head_dim": 128},
        "qk_layernorm": True, "mtp_layers": 0, "params_reduced_model": 13304222720,
    }  # fmt: skip
    assert parameters.parameters(parameters.from_run(row), padded=True) == 13_304_222_720


def test_an_unsaid_vocabulary_of_a_measured_run_is_megatrons():
    run = NEMOTRON | {"vocab_size": None, "params_b": None}
    assert parameters.from_run(run).vocab_size == 51200
    assert parameters.from_run(run, vocab_size=32000).vocab_size == 32000
