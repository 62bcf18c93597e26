"""Layers that differ: rules over the heads of every one, and what the answer says of mechanisms without runs."""

import pytest

from costmodels.model.model import from_shape
from planner import PlanRequest, predict

SHAPE = {
    "num_layers": 2,
    "hidden_size": 512,
    "num_heads": 8,
    "ffn_hidden_size": 1024,
    "gated_ffn": True,
    "activation": "swiglu",
    "vocab_size": 8192,
    "seq_length": 1024,
}
DELTA = {"num_key_heads": 2, "num_value_heads": 8, "key_head_dim": 64, "value_head_dim": 64}


def answer(tp, **changes):
    model = from_shape(SHAPE | changes)
    return predict(PlanRequest(model=model, cluster="dgx-h100", gpus=8, global_batch_size=64, pins={"tp": tp}))


@pytest.mark.parametrize(("tp", "rules"), [(2, []), (4, ["mamba-groups"])])
def test_tensor_ranks_divide_the_groups_of_a_mixer_s_heads(tp, rules):
    assert [each.rule for each in answer(tp, mixer_pattern="D*", delta=DELTA).rejected] == rules


@pytest.mark.parametrize(("tp", "rules"), [(2, []), (4, ["heads"])])
def test_tensor_ranks_divide_the_heads_of_every_layer(tp, rules):
    variants = ({"num_heads": 6, "num_query_groups": 6},)
    rejected = answer(tp, num_query_groups=8, variants=variants, variant_pattern=(0, 1)).rejected
    assert [each.rule for each in rejected] == rules


def test_heads_bind_nothing_where_no_layer_attends():
    scan = {"inner_width": 1024, "state_size": 16, "step_rank": 32}
    assert not answer(8, num_heads=1, head_dim=512, mixer_pattern="SS", ffn_pattern="nn", selective=scan).rejected


def test_a_mechanism_that_no_measured_run_has_is_said():
    told = " ".join(answer(2, mixer_pattern="D*", delta=DELTA).defaults)
    assert "delta rules are priced by formula; no measured run has them" in told
    assert "priced by formula" not in " ".join(answer(2).defaults)
