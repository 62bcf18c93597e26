"""What policies of recomputation keep: lists of operators, what products return, what attention holds."""

import pytest

from costmodels.memory.activations import average_activation_bytes, layer_checkpoint_bytes
from costmodels.names import Recompute
from costmodels.strategy import strategies
from tests.scenarios import toy_model, toy_scenario, toy_stack


def test_a_list_of_operators_keeps_attention_and_every_second_product_in_16_bits():
    rows = strategies(recompute=Recompute.SELECTIVE)
    model = toy_model(gated_ffn=True, ffn_hidden_size=4096)
    compiled, eager = (
        toy_scenario(
            model=model,
            stack=toy_stack(recompute_policy="operators", fused_elementwise=fused, attention_backend=("flash-2",)),
        )
        for fused in (True, False)
    )
    kept = average_activation_bytes(rows, compiled)[0] / 1024
    per_head = 4.0 * model.num_heads
    assert kept == 2 * (1024 + model.attention_width + model.value_width + 1024 + 4096) + per_head
    assert average_activation_bytes(rows, eager)[0] / 1024 - kept == 2 * 1024


def test_keeping_what_products_return_keeps_the_input_and_their_outputs():
    rows = strategies(recompute=Recompute.SELECTIVE)
    scenario = toy_scenario(stack=toy_stack(recompute_policy="products", attention_backend=("flash-2",)))
    model = scenario.model
    per_token = average_activation_bytes(rows, scenario)[0] / 1024
    assert per_token == 2.0 * (2 * model.hidden_size + model.qkv_width + model.fc1_width) + 4.0 * model.num_heads


@pytest.mark.parametrize("kind", ["attention", "products", "projections", "attention-products", "feed-forward"])
def test_a_policy_that_keeps_products_with_weights_keeps_no_scores(kind):
    rows = strategies(recompute=Recompute.SELECTIVE)
    written, fused = (
        toy_scenario(stack=toy_stack(recompute_policy=kind, attention_backend=(name,)))
        for name in ("unfused", "flash-2")
    )
    more = average_activation_bytes(rows, written) - average_activation_bytes(rows, fused)
    assert more[0] <= 0


def test_the_more_of_attention_a_policy_keeps_the_more_memory_it_takes():
    rows, kinds = strategies(recompute=Recompute.SELECTIVE), ("projections", "attention-products", "feed-forward")
    stacks = [toy_stack(recompute_policy=kind, attention_backend=("flash-2",)) for kind in kinds]
    scenarios = [toy_scenario(stack=one) for one in stacks]
    least, more, most = (average_activation_bytes(rows, one)[0] / 1024 for one in scenarios)
    model = scenarios[0].model
    assert more - least == 2.0 * model.hidden_size
    assert most - more == 2.0 * model.attention_output_width


@pytest.mark.parametrize("policy", ["attention", "products", "projections"])
@pytest.mark.parametrize("kind", ["hyper", "attended"])
def test_a_stored_layer_keeps_its_input_whatever_it_repeats(policy, kind):
    model = toy_model(streams={"count": 8, "kind": kind})
    scenario = toy_scenario(model=model, stack=toy_stack(recompute_policy=policy, attention_backend=("flash-2",)))
    rows = strategies(recompute=[Recompute.SELECTIVE, Recompute.FULL], tp=2, sequence_parallel=1)
    assert average_activation_bytes(rows, scenario)[0] >= layer_checkpoint_bytes(rows, scenario)[1]
