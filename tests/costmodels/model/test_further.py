"""What layers have besides mixers and networks: counted by hand, and what it adds to products, traffic and memory."""

import numpy as np
import pytest

from costmodels.layer.attention import attended_pairs
from costmodels.layer.blocks import kind_seconds
from costmodels.layer.elementwise import stream_traffic
from costmodels.layout.parameters_per_rank import embedding_parameters_per_rank, kind_parameters_per_rank
from costmodels.memory.activations import kind_activation_bytes, layer_checkpoint_bytes
from costmodels.model.flops import attention_flops, forward_flops
from costmodels.model.further import further_parameters, stream_ends
from costmodels.model.layer_kinds import DENSE, layer_kinds
from costmodels.model.model import from_shape
from costmodels.model.parameters import active_parameters, kind_parameters, parameters
from costmodels.step.traffic import stage_send_seconds
from costmodels.strategy import strategies
from tests.scenarios import toy_scenario

H, HEADS, TOKENS = 512, 8, 4096
ONE = strategies(sharding_degree=1)


def decoder(**changes):
    """Four layers of a gated decoder."""
    shape = {"num_layers": 4, "hidden_size": H, "num_heads": HEADS, "ffn_hidden_size": 1024, "gated_ffn": True}
    shape |= {"activation": "swiglu", "vocab_size": 8192, "seq_length": TOKENS}
    return from_shape(shape | changes)


def scenario(**changes):
    return toy_scenario(model=decoder(**changes), seq_length=TOKENS)


SPARSE = {
    "mixer_pattern": "wcxx",
    "sliding_window": 128,
    "num_query_groups": 1,
    "shared_keys": "values",
    "compressed": {"query_rank": 64, "output_groups": 2, "output_rank": 32},
    "indexer": {"num_heads": 4, "head_dim": 16, "top_k": 64},
}


def test_compressed_keys_are_attended_to_beside_the_window():
    model = decoder(**SPARSE)
    window, dense, sparse, _ = layer_kinds(model, TOKENS)
    near = TOKENS * 128 - 128**2 / 2
    assert attended_pairs(model, TOKENS, window) == near
    assert attended_pairs(model, TOKENS, dense) == near + TOKENS**2 / 2 / 128
    assert attended_pairs(model, TOKENS, sparse) == near + 4 * (TOKENS / 4 * 64 - 64**2 / 2)
    pairs = sum(attended_pairs(model, TOKENS, kind) for kind in layer_kinds(model, TOKENS))
    scores = 2 * TOKENS / 8 * 4 * 16  # of two indexers, a quarter of the tokens, the causal half
    assert attention_flops(model, seq_length=TOKENS, causal=True) == pytest.approx(
        4 * pairs / TOKENS * model.attention_width + 2 * scores
    )


def test_the_parameters_of_a_compressed_layer_by_hand():
    model, d = decoder(**SPARSE), H // HEADS
    window, dense, sparse, _ = layer_kinds(model, TOKENS)
    pooled = 2 * H * d + 128 * d + d
    assert kind_parameters(model, dense) - kind_parameters(model, window) == pooled
    index = 64 * 4 * 16 + 2 * H * 32 + H * 4 + 4 * 32 + 16
    assert kind_parameters(model, sparse) - kind_parameters(model, window) == 2 * H * 2 * d + 4 * 2 * d + d + index


@pytest.mark.parametrize(("kind", "each", "ends"), [("hyper", 2 * (24 * 4 * H + 27), 4 * 4 * H + 5),
                                                     ("alternating", 4 * H + 64 + 16 + 2 * H, 6 * H * H)])  # fmt: skip
def test_streams_have_weights_in_every_layer_and_at_the_ends(kind, each, ends):
    plain, streamed = decoder(), decoder(streams={"count": 4, "kind": kind})
    assert further_parameters(streamed, DENSE) == each
    assert sum(stream_ends(streamed)) == ends
    assert parameters(streamed) - parameters(plain) == 4 * each + ends


def test_streams_are_moved_kept_and_sent():
    plain, streamed = scenario(), scenario(streams={"count": 4, "kind": "hyper"})
    assert stream_traffic(streamed)[0][0] - stream_traffic(plain)[0][0] == 2 * 2 * 15 * H
    more = kind_activation_bytes(ONE, streamed, DENSE) - kind_activation_bytes(ONE, plain, DENSE)
    assert more == pytest.approx(2 * 8 * H * TOKENS)
    np.testing.assert_allclose(layer_checkpoint_bytes(ONE, streamed), 4 * layer_checkpoint_bytes(ONE, plain))
    two = strategies(pp=2, num_microbatches=4, schedule=2)
    assert stage_send_seconds(two, streamed) > 2 * stage_send_seconds(two, plain)


def test_experts_of_attention_are_held_by_all_and_met_by_few():
    plain, routed = decoder(num_query_groups=4), decoder(num_query_groups=4, attention_experts=8)
    idle, router = 2 * (8 - 2) * (4 * H // HEADS) * H, H * 8
    assert parameters(routed) - parameters(plain) == 4 * (idle + router)
    assert active_parameters(routed) - active_parameters(plain) == 4 * router
    assert forward_flops(routed, seq_length=TOKENS) - forward_flops(plain, seq_length=TOKENS) == 2 * 4 * router


def test_layers_share_the_weights_of_a_block_and_run_it_each():
    shared = {"mixer_pattern": "PSPS", "ffn_pattern": "-n-n", "head_dim": 2 * H // HEADS, "shared_blocks": {"count": 1}}
    scan = {"selective": {"inner_width": 1024, "state_size": 16, "step_rank": 32}}
    once, apart = decoder(**shared, **scan), decoder(**shared | {"shared_blocks": {"count": 2}}, **scan)
    block = 3 * (2 * H) * (2 * H) + 2 * H * H + 3 * H * 1024 + 2 * H + H
    assert parameters(apart) - parameters(once) == block
    assert forward_flops(apart, seq_length=TOKENS) == forward_flops(once, seq_length=TOKENS)
    there = toy_scenario(model=once, seq_length=TOKENS)
    held = sum(kind_parameters_per_rank(ONE, there, kind)[0] for kind in layer_kinds(once, TOKENS))
    assert held == pytest.approx(parameters(once) - 2 * 8192 * H - H)


def test_a_narrow_branch_is_multiplied_and_kept():
    plain, branched = scenario(), scenario(narrow_branch=64)
    assert parameters(branched.model) - parameters(plain.model) == 4 * (2 * 64 * H + H)
    assert kind_seconds(ONE, branched, DENSE).matmul.total > kind_seconds(ONE, plain, DENSE).matmul.total


def test_a_table_of_every_layer_lies_on_the_first_stage():
    table = scenario(per_layer_embedding=16, per_layer_vocab_size=100)
    more = embedding_parameters_per_rank(ONE, table) - embedding_parameters_per_rank(ONE, scenario())
    assert more == 4 * 16 * (100 + H) + 16
