"""FLOP definitions against the formulas of the papers and the figures published under each."""

import pytest
from flop_definitions import flops_per_token, hardware_flops

from costmodels.model import catalogue, flops
from costmodels.model.layer_kinds import DENSE, EXPERTS
from costmodels.model.model import from_shape
from tests.each import each
from tests.scenarios import dense_model

TERA = 1e12
YUAN_ITERATION = 46.20  # seconds, measured on 2128 A100 with 3360 sequences (Yuan 2.0 paper, table 5)


def yuan():
    return catalogue.model("yuan1-245b")


@pytest.mark.parametrize("name", ["megatron-1.7b", "megatron-145.6b", "megatron-1008b", "megascale-175b"])
def test_model_flops_equal_the_closed_form_of_a_plain_gpt(name):
    model = catalogue.model(name)
    L, H, V, S = model.num_layers, model.hidden_size, model.vocab_size, 2048
    closed = 72 * L * H**2 * (1 + S / (6 * H) + V / (12 * L * H))
    assert flops_per_token(model, seq_length=S, definition="model") == pytest.approx(closed, rel=1e-12)


@pytest.mark.parametrize("name", ["megatron-1.7b", "megatron-145.6b", "megatron-1008b"])
def test_hardware_flops_equal_the_closed_form_with_full_recomputation(name):
    model = catalogue.model(name)
    L, H, V, S = model.num_layers, model.hidden_size, model.vocab_size, 2048
    closed = 96 * L * H**2 * (1 + S / (6 * H) + V / (16 * L * H))
    count = flops_per_token(model, seq_length=S, definition="hardware", recompute="full")
    assert count == pytest.approx(closed, rel=1e-12)


@each(
    ("name", "definition", "recompute", "count"),
    [
        ("yuan1-245b", "6N", "none", 1.4742e12),
        ("yuan1-245b", "model", "none", 1.5047e12),
        ("yuan1-245b", "hardware", "full", 2.0045e12),
        ("yuan1-245b", "hardware-no-logits", "full", 1.9993e12),
        ("megascale-175b", "model", "none", 1.0774e12),
        ("megascale-530b", "model", "none", 3.2316e12),
    ],
)
def test_counts_per_token_of_the_published_systems(name, definition, recompute, count):
    model = catalogue.model(name)
    value = flops_per_token(model, seq_length=2048, definition=definition, recompute=recompute)
    assert value == pytest.approx(count, rel=2e-4)


def test_yuan_2_counts_its_filter_and_gated_network():
    model = catalogue.model("yuan2-102b")
    L, H, S = 84, 8192, 4096
    assert flops_per_token(model, seq_length=S) == pytest.approx(6.493e11, rel=2e-4)
    full = flops_per_token(model, seq_length=S, definition="hardware-no-logits", recompute="full")
    assert full == pytest.approx(144 * L * H**2 * (1 + S / (9 * H)), rel=1e-12)


@pytest.mark.parametrize(
    ("definition", "recompute", "percent"),
    [
        ("6N", "none", 33.07),
        ("model", "none", 33.76),
        ("8N", "full", 44.10),
        ("hardware", "full", 44.97),
        ("hardware-no-logits", "full", 44.85),
    ],
)
def test_one_measured_time_is_five_efficiencies(definition, recompute, percent):
    work = 3360 * 2048 * flops_per_token(yuan(), seq_length=2048, definition=definition, recompute=recompute)
    share = flops.utilization(flops=work, seconds=YUAN_ITERATION, gpus=2128, peak=312 * TERA)
    assert 100 * share == pytest.approx(percent, abs=0.02)


@pytest.mark.parametrize(("name", "definition", "days"), [("gpt3-175b", "6N", 3640), ("yuan1-245b", "8N", 4095)])
def test_published_petaflops_days(name, definition, days):
    model = catalogue.model(name)
    work = flops_per_token(model, seq_length=2048, definition=definition) * model.tokens
    assert work / 8.64e19 == pytest.approx(days, rel=1e-3)


def attended_tokens(model, *, seq_length, causal=False, windowed=True):
    """Summed over all layers and averaged over the sequence, as the FLOP of attention have it."""
    pairs = flops.attention_flops(model, seq_length=seq_length, causal=causal, windowed=windowed)
    return pairs / flops.attention_flops(model, seq_length=1, windowed=False) * (model.num_layers + model.mtp_layers)


def windowed(window, every=None):
    return from_shape(
        {
            "num_layers": 6,
            "hidden_size": 64,
            "num_heads": 4,
            "vocab_size": 128,
            "seq_length": 1024,
            "gated_ffn": True,
            "sliding_window": window,
            "sliding_window_every": every,
        }
    )


def test_a_window_of_half_the_sequence_counts_like_the_causal_half():
    model = catalogue.model("megascale-175b").model_copy(update={"sliding_window": 1024})
    count = flops_per_token(model, seq_length=2048, definition="model-window")
    assert count == pytest.approx(1.0629e12, rel=2e-4)
    full = model.model_copy(update={"sliding_window": None})
    assert flops_per_token(full, seq_length=2048, definition="model-causal") == count


@each(
    ("window", "every", "causal", "tokens"),
    [
        (None, None, False, 6 * 1024),
        (None, None, True, 6 * 512),
        (256, None, False, 6 * 256),
        (256, 3, False, 4 * 256 + 2 * 1024),
        (256, None, True, 6 * (256 - 32)),
        (4096, None, True, 6 * 512),
        (1024, 2, True, 6 * 512),
    ],
)
def test_attended_tokens_by_hand(window, every, causal, tokens):
    assert attended_tokens(windowed(window, every), seq_length=1024, causal=causal) == tokens


def test_causal_attention_with_a_window_matches_counting_pairs():
    window, length = 37, 200
    pairs = sum(min(position, window) for position in range(1, length + 1))
    model = windowed(window)
    average = attended_tokens(model, seq_length=length, causal=True) / model.num_layers
    # The closed form leaves out half a token of the diagonal.
    assert average == pytest.approx(pairs / length, abs=0.5)


@pytest.mark.parametrize("length", [37, 74, 200, 30])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_in_chunks_matches_counting_pairs(length, causal):
    """Every token attends to those of its own chunk, or to those before it there."""
    chunks = [min(37, length - start) for start in range(0, length, 37)]
    pairs = sum(n * (n + 1) / 2 if causal else n * n for n in chunks)
    model = windowed(37).model_copy(update={"chunked_attention": True})
    average = attended_tokens(model, seq_length=length, causal=causal) / model.num_layers
    assert average == pytest.approx(pairs / length, abs=0.5)


def test_full_attention_is_the_default_definition_whatever_the_window():
    assert flops_per_token(windowed(64), seq_length=1024) == flops_per_token(windowed(None), seq_length=1024)


def test_selective_recomputation_repeats_the_attention_core_only():
    model = dense_model(num_layers=4, hidden_size=64, num_heads=4)
    count = flops.recomputed_flops(model, seq_length=2048, recompute="selective")
    assert count == 4 * 4 * 2048 * 64


def test_hardware_flops_grow_with_recomputation():
    model = catalogue.model("llama3-8b")
    counts = [
        hardware_flops(model, seq_length=8192, recompute=recompute) for recompute in ("none", "selective", "full")
    ]
    assert counts == sorted(set(counts))
    assert counts[0] == flops.model_flops(model, seq_length=8192)


def test_grouped_queries_save_weights_and_not_attention():
    many = dense_model(num_layers=2, hidden_size=64, num_heads=8)
    few = dense_model(num_layers=2, hidden_size=64, num_heads=8, num_query_groups=1)
    assert flops.attention_flops(few, seq_length=512) == flops.attention_flops(many, seq_length=512)
    saved = flops.kind_matmul_weights(many, DENSE) - flops.kind_matmul_weights(few, DENSE)
    assert saved == 2 * 64 * (64 - 8)


def test_a_factorised_embedding_pays_for_its_projections():
    ernie = catalogue.model("ernie-230b")
    assert flops.logit_matmul_weights(ernie) == 30000 * 512 + 2 * 512 * 12288


MIXTURE = {
    "num_layers": 3, "hidden_size": 8, "num_heads": 2, "vocab_size": 100, "seq_length": 16, "gated_ffn": True,
    "ffn_hidden_size": 20, "experts": 4, "top_k": 2, "expert_ffn": 6, "shared_experts": 2, "dense_layers": 1,
}  # fmt: skip
LATENTS = {"q_lora": 5, "kv_lora": 4, "qk_nope": 3, "qk_rope": 2, "v": 3}


def test_a_small_mixture_by_hand_counts_the_experts_a_token_meets():
    dense = 4 * 8 * 8 + 3 * 20 * 8
    mixture = 4 * 8 * 8 + 4 * 8 + 2 * 3 * 6 * 8 + 3 * 12 * 8
    weights = dense + 2 * mixture + 100 * 8
    count = flops_per_token(from_shape(MIXTURE), seq_length=16)
    assert count == 6 * weights + 3 * 3 * 4 * 8 * 16


def test_more_experts_to_choose_from_cost_their_scores_only():
    few, many = from_shape(MIXTURE), from_shape(MIXTURE | {"experts": 64})
    more = flops_per_token(many, seq_length=16) - flops_per_token(few, seq_length=16)
    assert more == 6 * 2 * 60 * 8


def test_experts_of_a_narrower_width_pay_for_the_way_there_and_back():
    wide, narrow = from_shape(MIXTURE), from_shape(MIXTURE | {"moe_latent": 4})
    saved = flops.kind_matmul_weights(wide, EXPERTS) - flops.kind_matmul_weights(narrow, EXPERTS)
    assert saved == 2 * 3 * 6 * 4 - 2 * 8 * 4


def test_latent_attention_by_hand():
    model = from_shape(MIXTURE | {"mla": LATENTS})
    projections = 8 * 5 + 5 * 10 + 8 * 6 + 4 * 12 + 6 * 8
    assert flops.attention_matmul_weights(model) == projections
    assert flops.attention_flops(model, seq_length=16) == 3 * 16 * (2 * 2 * 5 + 2 * 2 * 3)
    plain = flops.kind_matmul_weights(from_shape(MIXTURE), DENSE) - 4 * 8 * 8
    assert flops.kind_matmul_weights(model, DENSE) == plain + projections


def test_a_prediction_layer_adds_a_layer_its_projection_and_logits():
    model, more = from_shape(MIXTURE), from_shape(MIXTURE | {"mtp_layers": 1})
    weights = flops.kind_matmul_weights(model, EXPERTS) + 2 * 8 * 8 + 100 * 8
    added = flops_per_token(more, seq_length=16) - flops_per_token(model, seq_length=16)
    assert added == 6 * weights + 3 * 4 * 8 * 16
    dense = dense_model(num_layers=2, hidden_size=8, num_heads=2, vocab_size=100).model_copy(update={"mtp_layers": 1})
    assert flops.layers_matmul_weights(dense) == 3 * 12 * 8 * 8 + 2 * 8 * 8


def test_a_window_does_not_narrow_prediction_layers():
    model = windowed(256, 3).model_copy(update={"mtp_layers": 2})
    assert attended_tokens(model, seq_length=1024) == 4 * 256 + 4 * 1024


def test_six_n_counts_the_parameters_that_a_token_meets():
    model = catalogue.model("qwen3-30b-a3b")
    assert flops_per_token(model, seq_length=4096, definition="6N") == pytest.approx(6 * 3.353e9, rel=1e-3)


def test_the_published_hours_of_deepseek_v3_are_a_plausible_efficiency():
    # 14.8 T tokens in 2.664 M H800 hours, 989 TFLOP/s in 16 bits (arXiv 2412.19437, table 1).
    model = catalogue.model("deepseek-v3").model_copy(update={"mtp_layers": 1})
    per_token = flops_per_token(model, seq_length=4096, definition="model-causal")
    share = flops.utilization(flops=per_token * 14.8e12, seconds=2.664e6 * 3600, gpus=1, peak=989 * TERA)
    assert 0.35 < share < 0.45
