"""Latent attention: what its products, its narrow vectors and its core cost."""

import pytest

from costmodels.layer.attention import attention_matmuls
from costmodels.layer.blocks import layer_seconds
from costmodels.model.flops import attention_flops, attention_matmul_weights
from costmodels.strategy import strategies
from tests.scenarios import toy_device, toy_group, toy_model, toy_scenario, with_latent_attention

PEAK = 100e12
"""FLOP/s of a toy device."""
TOKENS, WIDTH = 1024, 1024
"""Of one sequence of the toy model."""

ARITHMETIC = toy_group(device=toy_device(bandwidth=1e30))
"""Machines on which arithmetic alone takes time."""


@pytest.mark.parametrize("q_lora_rank", [None, 256])
@pytest.mark.parametrize("tp", [1, 4])
def test_latent_attention_takes_two_flops_a_weight_and_token(q_lora_rank, tp):
    """With sequence parallelism the projections into the latent vectors see a slice of the tokens each."""
    model = with_latent_attention(toy_model(), q_lora_rank=q_lora_rank)
    rows = strategies(tp=tp, micro_batch_size=2, sequence_parallel=int(tp > 1))
    seconds = attention_matmuls(rows, toy_scenario(model=model, group=ARITHMETIC))
    flops = 2 * attention_matmul_weights(model) * 2 * TOKENS / tp
    assert seconds.forward == pytest.approx(flops / PEAK)
    assert seconds.backward == pytest.approx(2 * flops / PEAK)


def test_latent_vectors_are_projected_whole_where_the_sequence_is_not_split():
    model = with_latent_attention(toy_model(), q_lora_rank=256)
    whole, split = attention_matmuls(
        strategies(tp=4, sequence_parallel=[0, 1]), toy_scenario(model=model, group=ARITHMETIC)
    ).forward
    down = WIDTH * (256 + model.mla.kv_down_width)
    assert whole - split == pytest.approx(2 * down * TOKENS * 3 / 4 / PEAK)


def test_the_core_of_latent_attention_multiplies_wide_keys_and_narrow_values():
    """Per causal pair and head a query of 192 with its key and a value of 128: two FLOPs each."""
    model = with_latent_attention(toy_model())
    seconds = layer_seconds(strategies(), toy_scenario(model=model)).attention
    flops = 2 * 8 * (192 + 128) * TOKENS**2 / 2
    assert flops == pytest.approx(attention_flops(model, seq_length=TOKENS, causal=True) / 8 * TOKENS)
    assert seconds.forward == pytest.approx(flops / PEAK)
    assert seconds.backward == pytest.approx(2.5 * flops / PEAK)
