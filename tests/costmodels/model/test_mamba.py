"""Mamba-2 mixers: counted by hand, split over ranks, refused where they are contradictory."""

from dataclasses import replace

import numpy as np
import pytest

from costmodels.layer.blocks import kind_seconds
from costmodels.layer.elementwise import layer_streams
from costmodels.layer.experts import expert_layer
from costmodels.layer.mixers import exchange_of_heads, mixer_matmuls, scan
from costmodels.memory.rows import kind_activation_bytes, row_bytes
from costmodels.model.catalogue import model as catalogue_model
from costmodels.model.flops import FORWARD_AND_BACKWARD, forward_flops, model_flops
from costmodels.model.huggingface import from_config
from costmodels.model.layer_kinds import LETTERS
from costmodels.model.mamba import scan_flops, scan_kernels
from costmodels.model.mixers import mixer_of, mixer_parameters
from costmodels.model.model import BadModel, from_shape
from costmodels.model.parameters import parameters
from costmodels.strategy import strategies
from hardware.kernels import ScanFit
from tests.each import each
from tests.scenarios import toy_device, toy_group, toy_hybrid, toy_scenario, toy_stack

MIXER = LETTERS["M"]
HEADS, HEAD_DIM, STATES, GROUPS, CHUNK = 8, 64, 32, 8, 128
INNER, WIDTH, TOKENS = HEADS * HEAD_DIM, 512, 1024
IN_WIDTH = 2 * INNER + 2 * GROUPS * STATES + HEADS


def hybrid(**changes):
    return toy_scenario(model=toy_hybrid(), **changes)


def scan_traffic(model):
    """Bytes per token between a mixer's projections, forward and backward."""
    return tuple(sum(kernel.traffic for kernel in kernels) for kernels in scan_kernels(model))


def test_the_parameters_of_a_mixer_by_hand():
    conv = (INNER + 2 * GROUPS * STATES) * (4 + 1)
    by_hand = WIDTH * IN_WIDTH + conv + 3 * HEADS + INNER + INNER * WIDTH
    assert mixer_parameters(mixer_of(toy_hybrid(), "mamba")) == (by_hand, 0)
    model = toy_hybrid("MM-")
    # Two mixers and a network with biases, a norm with a shift in front of each and one behind them all.
    norms, ffn = 4 * 2 * WIDTH, 2 * 4 * WIDTH * WIDTH + 4 * WIDTH + WIDTH
    assert parameters(model) == 2 * by_hand + ffn + norms + 8192 * WIDTH


def test_the_scan_of_a_token_by_hand():
    conv = 2 * 4 * (INNER + 2 * GROUPS * STATES)
    within = GROUPS * 2 * CHUNK * STATES + HEADS * 2 * CHUNK * HEAD_DIM
    across = HEADS * (4 * HEAD_DIM * STATES + 2 * HEAD_DIM * STATES / CHUNK)
    assert scan_flops(toy_hybrid()) == conv + within + across


def test_a_longer_chunk_multiplies_more_and_passes_fewer_states():
    short, long = (
        toy_hybrid(mamba={"num_heads": 8, "head_dim": 64, "state_size": 32, "num_groups": 8, "chunk_size": size})
        for size in (64, 256)
    )
    assert scan_flops(long) > scan_flops(short)
    forward, backward = scan_traffic(toy_hybrid())
    assert backward > 2 * forward


def test_forward_flops_are_those_of_every_letter():
    model = toy_hybrid("M*-")
    mixer = 2 * WIDTH * (IN_WIDTH + INNER) + scan_flops(model)
    attention = 2 * 4 * WIDTH * WIDTH + 4 * WIDTH * TOKENS
    ffn, head = 2 * 8 * WIDTH * WIDTH, 2 * 8192 * WIDTH
    assert forward_flops(model, seq_length=TOKENS) == mixer + attention + ffn + head
    assert model_flops(model, seq_length=TOKENS) == FORWARD_AND_BACKWARD * (mixer + attention + ffn + head)


def test_a_mixer_multiplies_its_two_projections():
    seconds = mixer_matmuls(strategies(), hybrid(), "mamba")
    assert seconds.forward * 1e14 == pytest.approx(2 * TOKENS * WIDTH * (IN_WIDTH + INNER), rel=0.2)


def test_tensor_ranks_share_projections_scan_and_kept_bytes_of_a_mixer():
    rows, scenario = strategies(tp=[1, 8], sequence_parallel=[0, 1]), hybrid()
    whole, eighth = scan(rows, scenario).forward
    assert whole == pytest.approx(8 * eighth)
    kept = kind_activation_bytes(rows, scenario, MIXER)
    assert kept[0] == pytest.approx(8 * kept[1])
    by_hand = TOKENS * (2 * (IN_WIDTH + INNER) + 2 * INNER + 4 * HEADS + 2 * WIDTH + 2 * WIDTH)
    assert kept[0] == by_hand


def test_the_scan_is_as_slow_as_its_traffic_unless_memory_is_fast():
    usual, fast = hybrid(), hybrid(group=toy_group(device=toy_device(bandwidth=1e30)))
    quick = usual.group.accelerator.kernels.model_copy(update={"scan": ScanFit(efficiency=2.0, source="toy")})
    moving = replace(usual, group=toy_group(device=toy_device().model_copy(update={"kernels": quick})))
    forward, backward = scan_traffic(usual.model)
    rates = usual.rates
    seconds = scan(strategies(), moving)
    assert seconds.forward == pytest.approx(TOKENS * forward / (rates.stream * rates.bandwidth))
    assert seconds.backward == pytest.approx(TOKENS * backward / (rates.stream * rates.bandwidth))
    speed = 0.069 * 1e14
    once, again = (sum(kernel.flops for kernel in kernels) for kernels in scan_kernels(usual.model))
    assert scan(strategies(), fast).forward == pytest.approx(TOKENS * once / speed)
    assert scan(strategies(), fast).backward == pytest.approx(TOKENS * again / speed)
    assert (scan(strategies(), usual).forward > seconds.forward).all()


def test_several_sequences_are_laid_one_after_the_other_for_the_scan_and_back():
    rows = strategies(micro_batch_size=np.array([1, 2]))
    one, two = scan(rows, hybrid()).forward
    rates = hybrid().rates
    turned = 4 * (IN_WIDTH + INNER) / (rates.stream * rates.bandwidth)
    assert two == pytest.approx(2 * (one + TOKENS * turned))
    ordered = scan(rows, hybrid(stack=toy_stack(batch_first=True))).forward
    assert ordered[1] == pytest.approx(2 * ordered[0])


def test_the_products_of_the_scan_by_hand():
    across, within, pairs = 2 * INNER * STATES, INNER * CHUNK, 2 * GROUPS * STATES * CHUNK
    forward, backward = (sum(kernel.flops for kernel in kernels) for kernels in scan_kernels(toy_hybrid()))
    assert forward == pairs + 2 * across + within
    # Again the products and the states; gradients of states, values, B and C, and three times within a chunk.
    assert backward == (pairs + across) + 4 * across + 3 * within + 2 * pairs


def test_context_ranks_exchange_tokens_for_heads_and_copy_groups_that_are_too_few():
    scenario = hybrid()
    none, four = exchange_of_heads(strategies(cp=[1, 4]), scenario).forward
    assert none == 0.0
    fewer = toy_hybrid(mamba={"num_heads": 8, "head_dim": 64, "state_size": 32, "num_groups": 1})
    copied = exchange_of_heads(strategies(cp=4), toy_scenario(model=fewer)).forward
    shared, own = (3 * INNER + HEADS + 2 * width for width in (GROUPS * STATES, STATES * 4))
    assert copied / four == pytest.approx(own / shared)


def test_a_part_alone_has_one_norm_one_residual_and_half_the_launches():
    scenario = toy_scenario(model=toy_hybrid(), stack=toy_stack(launch_time="1 ms", kernels_per_layer=10))
    rows = strategies()
    mixer, ffn = (kind_seconds(rows, scenario, LETTERS[letter]) for letter in "M-")
    busy = mixer.matmul + mixer.stream
    assert (mixer.launch + busy).forward == pytest.approx(5e-3)
    assert ffn.attention.forward == 0.0
    both = layer_streams(rows, scenario).forward
    halves = layer_streams(rows, scenario, LETTERS["*"]) + layer_streams(rows, scenario, LETTERS["-"])
    assert halves.forward == pytest.approx(both)


def test_experts_alone_are_the_experts_of_a_layer_behind_a_norm():
    rows, scenario = strategies(), hybrid()
    alone = kind_seconds(rows, scenario, LETTERS["E"])
    assert alone.matmul.forward.tolist() == expert_layer(rows, scenario).matmul.forward.tolist()


def test_a_prediction_layer_of_shared_weights_computes_twice_and_is_held_once():
    once, twice, shared = (
        toy_scenario(model=toy_hybrid(mtp_layers=count, mtp_repeated=repeated))
        for count, repeated in ((1, False), (2, False), (2, True))
    )
    one, two, both = (parameters(each.model) for each in (once, twice, shared))
    assert both == one < two
    assert model_flops(shared.model, seq_length=64) == model_flops(twice.model, seq_length=64)
    ahead = [row_bytes(strategies(), each) for each in (once, twice, shared)]
    assert ahead[0].head_parameters == ahead[2].head_parameters < ahead[1].head_parameters
    assert ahead[0].mtp_states < ahead[2].mtp_states < ahead[1].mtp_states


@each(
    ("changes", "message"),
    [
        ({"num_layers": 7}, "layer_pattern has 8 letters, but there are 7 layers"),
        ({"mamba": None}, "mamba: layer_pattern 'M-M.M-ME' has 4 such layers"),
        ({"layer_pattern": "M-M*M-M-"}, "moe: layer_pattern .* has 0 such layers"),
        ({"layer_pattern": "M-M*M-MX"}, "layer_pattern"),
        ({"mamba": {"num_heads": 6, "head_dim": 8, "state_size": 8, "num_groups": 4}}, "4 does not divide num_heads 6"),
        ({"sliding_window": 64, "sliding_window_every": 2}, "sliding_window_every contradicts layer_pattern"),
    ],
)
def test_contradictions_of_a_pattern_are_one_line(changes, message):
    with pytest.raises(BadModel, match=message) as caught:
        toy_hybrid("M-M*M-ME", **changes)
    assert "\n" not in str(caught.value)


def test_mixers_without_a_pattern_are_refused():
    sizes = {"num_layers": 2, "hidden_size": 64, "num_heads": 4, "vocab_size": 100, "seq_length": 64}
    with pytest.raises(BadModel, match="mamba: layer_pattern '' has 0 such layers"):
        from_shape(sizes | {"mamba": {"num_heads": 4, "head_dim": 16, "state_size": 8}})


NANO = {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "num_hidden_layers": 52,
    "hidden_size": 2688,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "intermediate_size": 1856,
    "mlp_hidden_act": "relu2",
    "max_position_embeddings": 262144,
    "vocab_size": 131072,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "n_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 3712,
}


def test_a_published_hybrid_configuration_is_the_catalogue_model():
    read, known = from_config(NANO), catalogue_model("nemotron-3-nano-30b-a3b")
    ours = {"name", "title", "family", "source", "reach", "tokens", "batch_tokens", "published_parameters", "moe"}
    assert read.model_dump(exclude=ours) == known.model_dump(exclude=ours)
    # The catalogue counts the numbers that steer the load; instances keep them outside of their parameters.
    steering = {"router_bias", "router_steered"}
    assert read.moe.model_dump(exclude=steering) == known.moe.model_dump(exclude=steering)
    assert read.router_steered
    assert known.router_steered


def test_layers_may_be_named_instead_of_lettered():
    names = {"M": "mamba", "E": "moe", "*": "full_attention", "-": "mlp"}
    blocks = [names[letter] for letter in NANO["hybrid_override_pattern"]]
    config = {key: value for key, value in NANO.items() if key != "hybrid_override_pattern"}
    assert from_config(config | {"layers_block_type": blocks}) == from_config(NANO)
    with pytest.raises(BadModel, match="hybrid_override_pattern: expected a letter of"):
        from_config(config | {"layers_block_type": ["conv"]})
    mamba = from_config(NANO | {"use_bias": True}).mamba
    assert (mamba.input_bias, mamba.output_bias) == (True, True)
    with pytest.raises(BadModel, match="mlp_bias: biases everywhere but in routed experts"):
        from_config(NANO | {"mlp_bias": True})


def test_bamba_s_layers_are_a_mixer_and_a_network_each():
    config = {
        "model_type": "bamba",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "attn_layer_indices": [9, 18, 27],
        "mamba_n_heads": 128,
        "mamba_d_head": 64,
        "mamba_d_state": 128,
        "max_position_embeddings": 4096,
        "vocab_size": 128256,
    }
    model = from_config(config)
    assert model.mixer_pattern == "".join("*" if layer in (9, 18, 27) else "M" for layer in range(32))
    # ibm-ai-platform/Bamba-9B: 9.78 B parameters.
    assert parameters(model) / 1e9 == pytest.approx(9.78, abs=0.005)


def test_more_heads_never_keep_less():
    narrow, wide = (
        toy_hybrid(mamba={"num_heads": heads, "head_dim": 64, "state_size": 32, "num_groups": 8}) for heads in (8, 16)
    )
    few, many = (row_bytes(strategies(), toy_scenario(model=each)) for each in (narrow, wide))
    assert (np.array(few.stored) < np.array(many.stored)).all()
