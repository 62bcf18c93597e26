"""Parameter counts part by part, by hand and by the formulas of the papers."""

from costmodels.layout.parameters_per_rank import padded_vocabulary_rows
from costmodels.model import catalogue, parameters
from costmodels.model.layer_kinds import DENSE, EXPERTS
from costmodels.model.model import from_shape
from costmodels.strategy import strategies
from tests.each import each
from tests.scenarios import dense_model, toy_scenario


def test_the_1_7b_model_of_megatron_is_1_65b_as_its_own_formula_says():
    model = catalogue.model("megatron-1.7b")
    L, H, V, S = 24, 2304, 51200, 2048
    formula = 12 * L * H**2 * (1 + 13 / (12 * H) + (V + S) / (12 * L * H))
    # The formula leaves out the final norm.
    assert parameters.parameters(model) == round(formula) + 2 * H


def test_the_parts_of_a_small_gpt_by_hand():
    model = dense_model(num_layers=2, hidden_size=8, num_heads=2, vocab_size=100, seq_length=16)
    qkv, output, fc1, fc2 = 3 * 8 * 8 + 3 * 8, 8 * 8, 8 * 32 + 32, 32 * 8
    assert parameters.kind_matrix_parameters(model, DENSE) == qkv + output + fc1 + fc2 == 824
    assert parameters.kind_replicated_parameters(model, DENSE) == 2 * 8 + 2 * 2 * 8
    assert parameters.embedding_parameters(model) == 100 * 8
    assert parameters.position_parameters(model) == 16 * 8
    assert parameters.head_parameters(model) == 0
    assert parameters.final_norm_parameters(model) == 16
    assert parameters.parameters(model) == 2 * (824 + 48) + 800 + 128 + 16


TINY = {
    "num_layers": 3, "hidden_size": 8, "num_heads": 2, "vocab_size": 100, "seq_length": 16, "gated_ffn": True,
    "ffn_hidden_size": 20, "experts": 4, "top_k": 2, "expert_ffn": 6, "shared_experts": 2, "dense_layers": 1,
}  # fmt: skip
TINY_MLA = {"q_lora": 5, "kv_lora": 4, "qk_nope": 3, "qk_rope": 2, "v": 3}


def test_the_parts_of_a_small_mixture_by_hand():
    model = from_shape(TINY)
    attention, expert, shared = 4 * 8 * 8, 3 * 6 * 8, 3 * 12 * 8
    assert parameters.attention_matrix_parameters(model) == attention
    assert parameters.attention_replicated_parameters(model) == 0
    assert parameters.expert_parameters(model) == expert
    assert parameters.kind_matrix_parameters(model, EXPERTS) == attention + shared
    assert parameters.kind_replicated_parameters(model, EXPERTS) == 2 * 8 + 4 * 8
    assert parameters.kind_parameters(model, EXPERTS) == attention + shared + 16 + 32 + 4 * expert
    assert parameters.kind_parameters(model, DENSE) == attention + 3 * 20 * 8 + 16
    layers = parameters.kind_parameters(model, DENSE) + 2 * parameters.kind_parameters(model, EXPERTS)
    assert parameters.parameters(model) == layers + 8 + 2 * 100 * 8
    assert parameters.active_parameters(model) == parameters.parameters(model) - 2 * 2 * expert


def test_every_bias_of_a_small_mixture_by_hand():
    plain = from_shape(TINY)
    said = {"ffn_bias": True, "output_bias": True, "qkv_bias": True, "attention_sinks": True}
    model = from_shape(TINY | said)
    assert parameters.expert_parameters(model) - parameters.expert_parameters(plain) == 2 * 6 + 8
    assert parameters.attention_matrix_parameters(model) - parameters.attention_matrix_parameters(plain) == 24 + 2
    sharded, whole = parameters.kind_matrix_parameters, parameters.kind_replicated_parameters
    assert sharded(model, EXPERTS) - sharded(plain, EXPERTS) == 24 + 2 + 2 * 12
    assert whole(model, EXPERTS) - whole(plain, EXPERTS) == 8 + 8
    assert parameters.attention_replicated_parameters(model) == 8
    routed = model.moe.model_copy(update={"router_bias": True, "shared_expert_gate": True})
    more = model.model_copy(update={"moe": routed})
    assert parameters.kind_parameters(more, EXPERTS) - parameters.kind_parameters(model, EXPERTS) == 4 + 8


def test_experts_of_a_narrower_width_are_projected_to():
    model = from_shape(TINY | {"moe_latent": 4})
    assert parameters.expert_parameters(model) == 3 * 6 * 4
    assert parameters.kind_matrix_parameters(model, EXPERTS) == 4 * 8 * 8 + 3 * 12 * 8
    assert parameters.kind_replicated_parameters(model, EXPERTS) == 2 * 8 + 4 * 8 + 2 * 8 * 4


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
    for shape, layer in ((TINY, EXPERTS), (PLAIN, DENSE)):
        model = from_shape(shape | {"mtp_layers": 2})
        more = parameters.parameters(model) - parameters.parameters(from_shape(shape))
        assert more == 2 * (parameters.kind_parameters(model, layer) + 2 * 8 * 8 + 3 * 8)
        assert parameters.active_parameters(model) <= parameters.parameters(model)


PLAIN = {key: value for key, value in TINY.items() if "expert" not in key and key not in {"top_k", "dense_layers"}}


def test_a_dense_model_has_no_part_of_a_mixture():
    model = from_shape(PLAIN)
    assert parameters.expert_parameters(model) == 0
    assert parameters.active_parameters(model) == parameters.parameters(model)


def test_localized_filtering_adds_two_hidden_squares_and_a_norm_per_layer():
    shape = {
        "num_layers": 3, "hidden_size": 64, "num_heads": 4, "vocab_size": 128, "seq_length": 32,
        "gated_ffn": True, "ffn_hidden_size": 256, "tied_embeddings": True,
    }  # fmt: skip
    plain, filtered = from_shape(shape), from_shape(shape | {"localized_filtering": True})
    per_layer = parameters.kind_parameters(filtered, DENSE) - parameters.kind_parameters(plain, DENSE)
    assert per_layer == 2 * 64**2 + 64
    matrices = 18 * 3 * 64**2 + 128 * 64
    assert parameters.parameters(filtered) == matrices + 3 * 3 * 64 + 64


def test_a_factorised_embedding_trades_the_table_for_projections():
    ernie = catalogue.model("ernie-230b")
    assert parameters.embedding_parameters(ernie) == 30000 * 512 + 2 * 512 * 12288
    untied = ernie.model_copy(update={"tied_embeddings": False})
    assert parameters.embedding_parameters(untied) == 30000 * 512 + 512 * 12288
    assert parameters.head_parameters(untied) == 30000 * 12288


def test_an_untied_head_with_bias_is_counted_apart():
    gptj = catalogue.model("gpt-j-6b")
    assert parameters.head_parameters(gptj) == 50400 * 4096 + 50400


@each(
    ("vocab_size", "tp", "rows"),
    [(50257, 1, 50304), (50257, 2, 50432), (50257, 8, 51200), (32000, 8, 32768), (51200, 8, 51200), (1, 1, 128)],
)
def test_vocabulary_is_padded_to_128_rows_per_tensor_rank(vocab_size, tp, rows):
    scenario = toy_scenario(model=dense_model(num_layers=8, hidden_size=8, num_heads=1, vocab_size=vocab_size))
    assert padded_vocabulary_rows(strategies(tp=tp), scenario) == rows


def test_a_stated_padding_wins_where_it_splits_over_the_ranks():
    model = dense_model(num_layers=1, hidden_size=8, num_heads=1, vocab_size=1000)
    stated = model.model_copy(update={"padded_vocab_size": 1004})
    rows = padded_vocabulary_rows(strategies(tp=[4, 8]), toy_scenario(model=stated))
    assert rows.tolist() == [1004, 1024]


def test_a_reduced_deepseek_v2_counts_as_its_simulator_states():
    row = {
        "num_layers": 4, "hidden_size": 5120, "num_heads": 128,
        "num_query_groups": 128, "head_dim": 128, "ffn_hidden_size": 12288, "gated_ffn": True,
        "vocab_size": 102528, "seq_length": 4096, "tied_embeddings": False,
        "norm": "rmsnorm", "activation": "swiglu", "linear_bias": False, "experts": 160,
        "top_k": 6, "expert_ffn": 1536, "shared_experts": 2, "shared_expert_ffn_total": 3072, "dense_layers": 1,
        "mla": {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                "v_head_dim": 128},
        "qk_layernorm": True,
    }  # fmt: skip
    assert parameters.parameters(from_shape(row)) == 13_304_222_720
