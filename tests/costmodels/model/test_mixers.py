"""Mixers other than attention, layers of several sizes and sparse attention: counted by hand, split over ranks."""

import numpy as np
import pytest

from costmodels.layer.blocks import kind_seconds
from costmodels.layer.mixers import exchange_of_heads, mixer_kept_width, mixer_matmuls, scan
from costmodels.memory.activations import kind_activation_bytes
from costmodels.model.flops import attention_flops, forward_flops
from costmodels.model.layer_kinds import ATTENTION, BOTH, MIXER_LETTERS, layer_kinds, reach_of
from costmodels.model.mixers import MIXERS, mixer_of, mixer_parameters
from costmodels.model.model import BadModel, from_shape
from costmodels.model.parameters import kind_parameters, parameters
from costmodels.strategy import strategies
from tests.each import each
from tests.scenarios import toy_scenario

WIDTH, FFN, VOCABULARY, TOKENS = 512, 1024, 8192, 1024
PARTS = {
    "M": ("mamba", {"num_heads": 8, "head_dim": 64, "state_size": 32, "num_groups": 8}),
    "S": ("selective", {"inner_width": 1024, "state_size": 16, "step_rank": 32}),
    "D": ("delta", {"num_key_heads": 4, "num_value_heads": 8, "key_head_dim": 64, "value_head_dim": 128}),
    "L": ("linear", {"num_heads": 8, "head_dim": 64}),
    "C": ("convolution", {"kernel": 3}),
    "R": ("recurrent", {"width": 512, "num_blocks": 8}),
    "W": ("receptance", {"width": 512}),
}


def mixed(letters, **changes):
    """A small gated model whose layers mix as the letters say."""
    parts = {
        name: part for letter, (name, part) in PARTS.items() if letter in letters or (letter == "M" and "B" in letters)
    }
    shape = {
        "num_layers": len(letters),
        "hidden_size": WIDTH,
        "num_heads": 8,
        "ffn_hidden_size": FFN,
        "gated_ffn": True,
        "activation": "swiglu",
        "vocab_size": VOCABULARY,
        "seq_length": TOKENS,
        "mixer_pattern": letters,
    }
    return from_shape(shape | parts | changes)


def scenario(letters, **changes):
    return toy_scenario(model=mixed(letters, **changes), seq_length=TOKENS)


def test_the_weights_and_flops_of_a_delta_rule_by_hand():
    model = mixed("D*")
    keys, values, heads, chunk = 4 * 64, 8 * 128, 8, 64
    into = 2 * keys + values + heads + heads + values  # queries, keys, values, strengths, decays, gate
    vectors = (2 * keys + values) * 4 + heads + heads + 128
    assert mixer_parameters(mixer_of(model, "delta")) == (WIDTH * (into + values) + vectors, 0)
    d, v = 64, 128
    each = 2 * chunk * (3 * d + 2 * v) + 6 * d * v + 2 * chunk * chunk / 3
    assert mixer_of(model, "delta").flops == pytest.approx(2 * 4 * (2 * keys + values) + heads * each)


def test_decays_of_every_channel_out_of_a_latent_vector_add_two_matrices():
    plain = mixer_of(mixed("D"), "delta")
    latent = {"decay": "channel", "decay_rank": 64, "gate_rank": 64}
    fine = mixer_of(mixed("D", delta=PARTS["D"][1] | latent), "delta")
    names = {projection.name for projection in fine.projections} - {projection.name for projection in plain.projections}
    assert names == {"decay_down", "decay_up", "gate_down", "gate_up"}
    assert mixer_parameters(fine)[1] == 2 * WIDTH * 64  # the narrow sides are whole on every rank


@each("letter", PARTS)
def test_forward_flops_are_those_of_the_projections_and_of_the_mixer(letter):
    both, attention = mixed(letter + "*"), mixed("**")
    mixer = mixer_of(both, PARTS[letter][0])
    layer = 2 * (4 * WIDTH * WIDTH) + 4 * TOKENS * WIDTH
    difference = forward_flops(both, seq_length=TOKENS) - forward_flops(attention, seq_length=TOKENS)
    assert difference == pytest.approx(2 * mixer.matmul_weights + mixer.flops - layer)


@each("letter", PARTS)
def test_tensor_ranks_share_a_mixer_s_kernels_and_what_it_keeps(letter):
    name, priced = PARTS[letter][0], scenario(letter)
    rows = strategies(tp=[1, 4], sequence_parallel=[0, 1])
    whole, quarter = scan(rows, priced, name).forward
    assert whole == pytest.approx(4 * quarter)
    backward = scan(rows, priced, name).backward
    assert (backward > scan(rows, priced, name).forward).all()
    assert mixer_kept_width(priced, 2.0, name) > 2.0 * WIDTH
    products = mixer_matmuls(rows, priced, name)
    assert products.forward[0] > products.forward[1]


@each("letter", PARTS)
def test_context_ranks_exchange_heads_of_a_mixer(letter):
    rows = strategies(cp=[1, 2])
    alone, shared = exchange_of_heads(rows, scenario(letter), PARTS[letter][0]).forward
    assert alone == 0.0
    assert shared > 0.0


def test_attention_beside_a_mixer_costs_both():
    beside, alone, mixer = (scenario(letter) for letter in "B*M")
    rows = strategies()
    times = [kind_seconds(rows, each, each.depth.kinds[0]) for each in (beside, alone, mixer)]
    assert times[0].attention.forward == pytest.approx(times[1].attention.forward)
    assert times[0].stream.forward > times[2].stream.forward
    kept = [kind_activation_bytes(rows, each, each.depth.kinds[0]) for each in (beside, alone, mixer)]
    assert max(kept[1], kept[2]) < kept[0] < kept[1] + kept[2]


def test_every_letter_has_a_mixer_or_is_attention():
    assert set(MIXERS) == set(MIXER_LETTERS.values()) - {*ATTENTION, *BOTH, "none"}


def test_layers_of_other_sizes_count_and_attend_by_their_own():
    variants = ({"num_heads": 4, "num_query_groups": 4, "ffn_hidden_size": 2 * FFN},)
    model = mixed("**", num_query_groups=8, variants=variants, variant_pattern=(0, 1))
    usual, other = layer_kinds(model)
    assert kind_parameters(model, usual) - kind_parameters(model, other) == 4 * WIDTH * WIDTH // 2 - 3 * WIDTH * FFN
    assert attention_flops(model, seq_length=TOKENS) == 4 * TOKENS * (WIDTH + WIDTH // 2)
    priced = toy_scenario(model=model, seq_length=TOKENS)
    wide, narrow = (kind_seconds(strategies(), priced, kind) for kind in (usual, other))
    assert narrow.attention.forward < wide.attention.forward
    assert narrow.matmul.forward > wide.matmul.forward


def test_keys_that_are_shared_have_no_projection():
    own = parameters(mixed("**"))
    assert own - parameters(mixed("**", shared_keys="values")) == 2 * WIDTH * WIDTH
    assert own - parameters(mixed("**", shared_keys="all")) == 2 * 2 * WIDTH * WIDTH


def test_a_gate_on_attention_is_a_matrix_more():
    own = parameters(mixed("*"))
    assert parameters(mixed("*", attention_gate="value")) - own == WIDTH * WIDTH
    assert parameters(mixed("*", attention_gate="head")) - own == WIDTH * 8


def test_sparse_attention_sees_what_its_indexer_selects():
    indexer = {"num_heads": 4, "head_dim": 32, "top_k": 128}
    model = mixed("st", indexer=indexer)
    owner, reuser = layer_kinds(model)
    assert reach_of(model, owner) == reach_of(model, reuser) == 128
    index = WIDTH * (4 * 32 + 32 + 4) + 2 * 32
    assert kind_parameters(model, owner) - kind_parameters(model, reuser) == index
    scores, seen = 2 * TOKENS * 4 * 32, 4 * 128 * WIDTH
    assert attention_flops(model, seq_length=TOKENS) == 2 * seen + scores
    assert attention_flops(model, seq_length=TOKENS, windowed=False) == 2 * 4 * TOKENS * WIDTH
    priced = toy_scenario(model=model, seq_length=TOKENS)
    full = toy_scenario(model=mixed("*"), seq_length=TOKENS)
    sparse = kind_seconds(strategies(), priced, reuser).attention.forward
    assert (sparse < kind_seconds(strategies(), full, full.depth.kinds[0]).attention.forward).all()


def test_experts_that_return_the_token_compute_nothing():
    moe = {"num_experts": 8, "top_k": 3, "expert_ffn_hidden_size": 64}
    plain, lazy = mixed("*", moe=moe), mixed("*", moe=moe | {"zero_experts": 4})
    assert lazy.moe.computed_experts == 2.0
    assert parameters(lazy) - parameters(plain) == 4 * WIDTH
    saved = 2 * 3 * 64 * WIDTH - 2 * 4 * WIDTH
    assert forward_flops(plain, seq_length=TOKENS) - forward_flops(lazy, seq_length=TOKENS) == saved


@each(
    ("changes", "message"),
    [
        ({"mixer_pattern": "D*"}, "delta: missing for layers 'D' of mixer_pattern"),
        ({"mixer_pattern": "*"}, "mixer_pattern has 1 entries, but there are 2 layers"),
        ({"mixer_pattern": "w*"}, "sliding_window: missing for layers 'w'"),
        ({"ffn_pattern": "E-"}, "moe: missing for layers 'E' of ffn_pattern"),
        ({"variant_pattern": (0, 1)}, "variant_pattern names more than 0 variants"),
        ({"variants": ({"num_heads": 3},)}, "variants: 8 groups do not divide 3 heads"),
    ],
)
def test_patterns_that_describe_nothing_are_one_line(changes, message):
    with pytest.raises(BadModel, match=message):
        mixed("**", **changes)


def test_a_model_of_one_kind_costs_the_same_with_its_pattern_written_out():
    rows = strategies(tp=np.array([1, 2]))
    written, plain = scenario("**"), scenario("**", mixer_pattern="")
    for priced in (written, plain):
        assert len(priced.depth.kinds) == 1
    first, second = (kind_seconds(rows, each, each.depth.kinds[0]) for each in (written, plain))
    assert first.compute.forward == pytest.approx(second.compute.forward)
