"""Families that the table describes: every one against an instance, and what is refused by name."""

import json
import re
from pathlib import Path

import pytest

from costmodels.model.huggingface import from_config
from costmodels.model.huggingface_parts import PARTS
from costmodels.model.huggingface_table import defaults, families
from costmodels.model.huggingface_towers import tower_of
from costmodels.model.layer_kinds import layer_kinds
from costmodels.model.model import BadModel
from costmodels.model.parameters import parameters
from tests.costmodels.configs import small
from tests.each import each

HERE = Path(__file__).parent
# Counted on instances of the Hugging Face implementations (transformers 5.24).
INSTANTIATED = [tuple(pair) for pair in json.loads((HERE / "instances.json").read_text())]
CASES = json.loads((HERE / "cases" / "hf_small_expected_parameters.json").read_text())
REFUSED = [name for name, known in families().items() if "refused" in known]


@each(("config", "count"), INSTANTIATED)
def test_a_configuration_counts_as_its_instance_does(config, count):
    assert parameters(from_config(config, seq_length=128)) == count


@each("family", CASES)
def test_a_file_of_a_family_of_today_counts_exactly(family):
    config = json.loads((HERE / "cases" / f"hf_{family}.json").read_text())
    assert parameters(from_config(config)) == CASES[family]


@each("family", REFUSED)
def test_a_mechanism_that_is_not_priced_is_named(family):
    with pytest.raises(BadModel, match=re.escape(f"model_type '{family}': {families()[family]['refused']}")) as caught:
        from_config(small(family))
    assert "\n" not in str(caught.value)


def test_every_part_that_a_family_names_is_read():
    named = {part for known in families().values() for part in known.get("parts", ())}
    assert named <= set(PARTS)


def test_defaults_are_those_of_families_that_are_read():
    assert {"qwen3_next", "llama", "gemma4_text"} <= set(defaults())
    assert not set(REFUSED) & set(defaults())


def test_layers_keep_the_mixers_that_are_listed():
    kinds = ["linear_attention"] * 3 + ["full_attention"]
    config = small("qwen3_next", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=24, head_dim=16)
    model = from_config(config | {"layer_types": kinds, "shared_expert_intermediate_size": 24})
    assert [kind.mixer for kind in layer_kinds(model)] == ["delta", "delta", "delta", "global"]
    assert {kind.ffn for kind in layer_kinds(model)} == {"experts"}


def test_a_kind_of_layer_that_is_not_priced_is_named():
    with pytest.raises(BadModel, match="layer_types: layers of kind hyena are not priced; full_attention, "):
        from_config(small("olmo3", layer_types=["hyena"] * 4))


def test_a_list_of_layers_that_a_family_needs_is_asked_for():
    with pytest.raises(BadModel, match="layer_types: missing from the Hugging Face configuration"):
        from_config(small("ministral", sliding_window=32))


def test_a_size_of_the_model_is_never_filled_in_for_a_file_of_its_own():
    config = small("smollm3")
    del config["num_hidden_layers"]
    with pytest.raises(BadModel, match="num_hidden_layers: missing"):
        from_config(config)


def test_beside_a_vision_tower_what_is_the_default_may_be_left_out():
    text = from_config({"model_type": "llava", "text_config": {"model_type": "llama"}, "vision_config": {}})
    assert (text.num_layers, text.hidden_size, text.vocab_size) == (32, 4096, 32000)


def test_the_outer_file_says_whether_embeddings_are_shared():
    text = small("qwen3_vl_text", tie_word_embeddings=True)
    whole = {"model_type": "qwen3_vl", "text_config": text, "tie_word_embeddings": False}
    assert not from_config(whole).tied_embeddings


def test_biases_that_only_some_networks_have_are_refused():
    with pytest.raises(BadModel, match="biases everywhere but in routed experts"):
        from_config(small("aria_text", moe_num_experts=4, mlp_bias=True))


def test_a_key_that_looks_like_a_mechanism_and_is_not_known_is_said():
    read = from_config(small("olmo3", hyena_conv_width=3, sliding_window=32))
    assert read.source.endswith("without its unknown effect of hyena_conv_width")
    assert from_config(small("olmo3", sliding_window=32, max_window_layers=3)).source == "Hugging Face configuration"


# Counted on instances (transformers 5.24): of LLaVA, Gemma 3, Qwen3-VL, Qwen2.5-VL and Mistral 3.
TOWERS = [
    ("clip_vision_model", {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "image_size": 336,
                           "patch_size": 14}, 303_507_456),
    ("siglip_vision_model", {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "image_size": 224,
                             "patch_size": 16}, 92_884_224),
    ("qwen3_vl", {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16, "in_channels": 3,
                  "temporal_patch_size": 2, "num_position_embeddings": 2304, "out_hidden_size": 3584,
                  "spatial_merge_size": 2, "deepstack_visual_indexes": [8, 16, 24]}, 566_949_104),
    ("qwen2_5_vl", {"depth": 32, "hidden_size": 3584, "intermediate_size": 3420, "patch_size": 14, "in_channels": 3,
                    "temporal_patch_size": 2, "out_hidden_size": 3584, "spatial_merge_size": 2}, 3_083_025_152),
    ("pixtral", {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "patch_size": 14},
     403_305_472),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "vision", "count"), TOWERS)
def test_a_vision_tower_is_counted_and_kept_beside_the_decoder(kind, vision, count):
    whole = {"vision_config": vision | {"model_type": kind}, "text_config": small("llama")}
    found = tower_of(whole)
    assert found is not None
    assert found["parameters"] == count
    read = from_config(whole | {"model_type": "mistral3"})
    assert read.tower is not None
    assert (read.tower.hidden_size, read.tower.num_layers) == (found["hidden_size"], found["num_layers"])
    assert read.source == "Hugging Face configuration"


# Of instances (transformers 5.24), all parameters less the decoder's and the tower's: the family's projection.
PROJECTED = [("llava", 0, 20_979_712), ("llava_next", 0, 20_983_808)]


@pytest.mark.parametrize(("family", "kind", "count"), PROJECTED)
def test_what_projects_into_the_decoder_is_counted_by_the_family(family, kind, count):
    name, vision, own = TOWERS[kind]
    text = small("llama") | {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128}
    whole = {"model_type": family, "vision_config": vision | {"model_type": name}, "text_config": text}
    tower = from_config(whole).tower
    assert tower is not None
    assert tower.parameters - own == count


# Of instances (transformers 5.24) of families whose files leave the sizes of the tower to its class: the decoder's
# width, all parameters of tower and projection, patches that make a token.
BY_DEFAULT = [
    ("cohere2_vision", "siglip_vision_model", 8192, 670_168_832, 4),
    ("deepseek_vl", "siglip_vision_model", 4096, 112_815_360, 1),
    ("glm4v", "glm4v_vision", 4096, 892_498_432, 4),
    ("glm_ocr", "glm_ocr_vision", 1024, 434_120_192, 4),
    ("internvl", "internvl_vision", 4096, 337_509_376, 4),
    ("kimi_k25", "kimi_k25_vision", 7168, 471_143_920, 4),
    ("lfm2_vl", "siglip2_vision_model", 2560, 107_359_488, 4),
    ("lighton_ocr", "pixtral", 1024, 409_597_952, 4),
    ("llama4", "llama4_vision_model", 5120, 455_178_240, 4),
    ("llava_onevision", "siglip_vision_model", 4096, 419_255_840, 1),
    ("minimax_m3_vl", "clip_vision_model", 6144, 865_567_232, 4),
    ("qwen3_5", "qwen3_5_vision", 3584, 453_650_672, 4),
    ("smolvlm", "smolvlm_vision", 4096, 171_270_144, 4),
    ("step3p7", "", 4096, 1_981_014_784, 16),
    ("vipllava", "clip_vision_model", 4096, 341_274_624, 1),
]
SIZES = {
    "kimi_k25": {"pos_emb_height": 64, "pos_emb_width": 64},
    "lighton_ocr": {"patch_size": 14},
    "llava_onevision": {"image_size": 384, "patch_size": 14, "hidden_size": 1152, "intermediate_size": 4304,
                        "num_hidden_layers": 26, "vision_use_head": False},
    "step3p7": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 47, "num_attention_heads": 16,
                "image_size": 728, "patch_size": 14},
    "cohere2_vision": {"image_size": 512, "hidden_size": 1152, "num_hidden_layers": 27},
    "vipllava": {"image_size": 336, "patch_size": 14, "hidden_size": 1024, "intermediate_size": 4096,
                 "num_hidden_layers": 24},
}  # fmt: skip


@each(("family", "kind", "width", "count", "patches"), BY_DEFAULT)
def test_sizes_of_a_tower_that_a_file_leaves_out_are_those_of_its_class(family, kind, width, count, patches):
    named = {"model_type": kind} if kind else {}
    found = tower_of({"model_type": family, "vision_config": SIZES.get(family, {}) | named, "hidden_size": width})
    assert found is not None
    assert (found["parameters"], found["patches_per_token"]) == (count, patches)


def test_the_tower_of_a_gemma_has_norms_of_heads_and_two_tables_of_positions():
    vision = {"model_type": "gemma4_vision", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
              "num_attention_heads": 16}  # fmt: skip
    found = tower_of({"model_type": "gemma4", "vision_config": vision, "hidden_size": 2816})
    assert found is not None
    assert (found["parameters"], found["patches_per_token"]) == (572_792_112, 9)


def test_a_decoder_whose_blocks_read_sums_of_earlier_layers_counts_as_its_published_weights():
    whole = json.loads((HERE / "cases" / "hf_kimi_k3.json").read_text())
    model = from_config(whole)
    assert parameters(model) == 2_779_484_395_776
    assert model.tower is not None
    assert model.tower.parameters == 447_358_976
    assert model.streams is not None
    assert model.streams.count == 9  # eight runs of twelve layers, and the embedding


def test_what_is_in_front_of_a_decoder_and_not_counted_is_said():
    text = small("llama")
    sound = from_config({"model_type": "llava", "text_config": text, "vision_config": {}, "audio_config": {}})
    assert sound.source.endswith("without its vision tower and audio tower")
    known = {"model_type": "siglip_vision_model", "vision_use_head": False}
    assert from_config({"model_type": "new", "text_config": text, "vision_config": known}).source.endswith(
        "without its projection of images"
    )


def test_tokens_of_an_image_are_those_of_a_tower_of_one_size_or_open():
    clip, qwen = (TOWERS[place] for place in (0, 2))
    fixed, free = (
        from_config({"model_type": "llava", "vision_config": vision | {"model_type": kind}, "text_config": text}).tower
        for (kind, vision, _), text in ((clip, small("llama")), (qwen, small("qwen3_vl_text")))
    )
    assert fixed is not None
    assert free is not None
    assert (fixed.image_tokens, fixed.patches_per_token) == (576, 1)
    assert (free.image_tokens, free.patches_per_token) == (None, 4)


def test_of_an_unknown_tower_only_the_absence_is_told():
    whole = {"model_type": "llava", "vision_config": {"model_type": "new"}, "text_config": small("llama")}
    assert tower_of(whole) is None
    assert from_config(whole).source == "Hugging Face configuration without its vision tower"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"num_hidden_layers": 10**30}, "num_hidden_layers: expected at most 10,000 layers"),
        ({"layer_types": [["full_attention"]] * 2}, r"layers of kind \['full_attention'\] are not priced"),
    ],
)
def test_layers_that_no_list_can_hold_are_refused_in_one_line(more, says):
    with pytest.raises(BadModel, match=says):
        from_config(small("minimax") | more)


def test_what_a_key_asks_for_that_is_not_priced_is_refused():
    with pytest.raises(BadModel, match="use_cla: keys that neighbouring layers share are not priced"):
        from_config(small("hunyuan_v1_dense", use_cla=True))
    assert from_config(small("hunyuan_v1_dense", use_cla=False)).qk_norm == "head"


def test_a_configuration_of_a_repository_s_own_implementation_is_read_by_its_own_names():
    heads = {"num_heads": 4, "head_dim": 8, "short_conv_kernel_size": 4, "full_attn_layers": [2, 4]}
    latent = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "q_lora_rank": None}
    experts = {"num_experts": 8, "num_experts_per_token": 2, "moe_intermediate_size": 24, "num_shared_experts": 1}
    kimi = from_config(
        small(
            "kimi_linear", linear_attn_config=heads, **latent, **experts, first_k_dense_replace=1, model_max_length=128
        )
    )
    assert kimi.mixer_pattern == "D*D*"
    assert (kimi.delta.num_value_heads, kimi.delta.decay_rank, kimi.moe.dense_layers) == (4, 8, 1)
    types = {"attn_type_list": [0, 0, 0, 1], "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}
    assert from_config(small("minimax_text_01", **types)).mixer_pattern == "LLL*"


def test_experts_that_are_listed_layer_by_layer_must_agree():
    listed = {"num_experts": 8, "moe_topk": [2] * 4, "moe_intermediate_size": [24] * 4, "num_shared_expert": [1] * 4}
    read = from_config(small("hunyuan_v1_moe", **listed))
    assert (read.moe.top_k, read.moe.expert_ffn_hidden_size, read.moe.shared_expert_ffn_hidden_size) == (2, 24, 24)
    with pytest.raises(BadModel, match="moe_topk: layers that differ in their experts are not priced"):
        from_config(small("hunyuan_v1_moe", **listed | {"moe_topk": [1, 2, 2, 2]}))
