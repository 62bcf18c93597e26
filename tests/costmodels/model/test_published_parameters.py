"""Parameter counts against instantiated models and published counts."""

import pytest

from costmodels.model import catalogue, parameters
from tests.each import each

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
    # Transformers 5.24.
    "glm-4-9b": 9_400_279_040,
    "gemma3-1b": 999_885_952,
    "gemma3-4b": 3_880_263_168,
    "gemma-4-26b-a4b": 25_233_141_760,
    "ministral-3-8b": 8_489_553_920,
    "phi-4": 14_659_507_200,
    "olmo-3-7b": 7_298_011_136,
    "smollm3-3b": 3_075_098_624,
    "ernie-4.5-0.3b": 360_748_032,
    "ernie-4.5-21b-a3b": 21_825_437_888,
    "falcon-h1-0.5b": 521_411_104,
    "deepseek-v3.2": 671_877_929_216,
    "qwen3-next-80b-a3b": 79_674_391_296,
    "qwen3-coder-480b-a35b": 480_154_875_392,
    "qwen3.5-9b": 8_953_803_264,
    "lfm2-350m": 354_483_968,
    "lfm2-1.2b": 1_170_340_608,
    "seed-oss-36b": 36_151_104_512,
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


@each(("name", "count"), INSTANTIATED.items())
def test_count_equals_the_instantiated_model(name, count):
    assert parameters.parameters(catalogue.model(name)) == count


@pytest.mark.parametrize(("name", "counts"), INSTANTIATED_WITHOUT_ROUTER_BIAS.items())
def test_count_equals_the_instantiated_model_and_its_router_biases(name, counts):
    assert parameters.parameters(catalogue.model(name)) == sum(counts)


@each(("name", "published"), ACTIVE.items())
def test_active_parameters_round_to_the_published_ones(name, published):
    billions, half_a_digit = published
    active = parameters.active_parameters(catalogue.model(name))
    assert active / 1e9 == pytest.approx(billions, abs=half_a_digit, rel=0)


@pytest.mark.parametrize(("name", "published"), ACTIVE_WITHOUT_EMBEDDING.items())
def test_active_parameters_without_the_embedding_round_to_the_published_ones(name, published):
    model = catalogue.model(name)
    active = parameters.active_parameters(model) - parameters.embedding_parameters(model)
    assert active / 1e9 == pytest.approx(published[0], abs=published[1], rel=0)


def test_a_quarter_of_grok_s_experts_and_all_else_are_active():
    """Two experts of eight: "25 % of the weights active on a given token" of 314 billion."""
    model = catalogue.model("grok-1")
    assert parameters.parameters(model) / 1e9 == pytest.approx(314, rel=0.006)
    assert parameters.active_parameters(model) / parameters.parameters(model) == pytest.approx(0.25, abs=0.02)


def test_deepseek_v3_with_its_prediction_layer_is_the_checkpoint_without_its_copies():
    model = catalogue.model("deepseek-v3").model_copy(update={"mtp_layers": 1})
    # The published checkpoint repeats embedding and head for the prediction layer.
    assert parameters.parameters(model) + 2 * 129280 * 7168 == 684_489_845_504


def test_nemotron_3_super_without_its_prediction_layers_is_what_llama_cpp_counts():
    model = catalogue.model("nemotron-3-super-120b-a12b").model_copy(update={"mtp_layers": 0})
    assert parameters.parameters(model) == 120_668_707_840
    assert parameters.active_parameters(model) / 1e9 == pytest.approx(12.7, abs=0.1)


def test_nemotron_3_ultra_without_its_prediction_layers_rounds_to_550_and_55_billion():
    model = catalogue.model("nemotron-3-ultra-550b-a55b").model_copy(update={"mtp_layers": 0})
    assert parameters.parameters(model) / 1e9 == pytest.approx(550, rel=0.005)
    looked_up = parameters.embedding_parameters(model)
    assert (parameters.active_parameters(model) - looked_up) / 1e9 == pytest.approx(55, abs=0.5)


@each(("name", "published"), ROUNDED.items())
def test_count_rounds_to_the_published_one(name, published):
    count, half_a_digit = published
    assert parameters.parameters(catalogue.model(name)) == pytest.approx(count, abs=half_a_digit, rel=0)


@each("name", catalogue.names())
def test_every_catalogue_model_states_a_count_that_its_shape_confirms(name):
    """What its maker says; of a model whose maker rounds too far, what an instance of it has."""
    model = catalogue.model(name)
    stated = model.published_parameters or INSTANTIATED[name]
    assert parameters.parameters(model) == pytest.approx(stated, rel=0.03)
