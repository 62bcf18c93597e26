"""Sequences of 32 thousand to a million tokens."""

import pytest

from hardware.catalogue import accelerator
from planner import PlanRequest, plan, predict


@pytest.mark.parametrize(("gpus", "seq_length", "batch"), [(64, 32768, 128), (256, 131072, 256), (512, 1048576, 64)])
def test_long_sequences_are_shared_by_ranks_whose_all_to_alls_stay_in_a_node(gpus, seq_length, batch):
    asked = {"gpus": gpus, "seq_length": seq_length, "global_batch_size": batch}
    answer = plan(PlanRequest(model="llama3-8b", **asked, reasons=False))
    assert answer.status == "optimal"
    assert answer.strategy.cp > 1
    assert answer.strategy.tp * answer.strategy.cp_near <= 8
    fit = accelerator("h100-sxm").kernels.attention["cudnn-9.18"]
    passes = 3.0 / (1.0 + 2.5 / fit.backward_efficiency_ratio)  # three counted, three and a half computed
    assert 0.5 < answer.prediction.mfu < 2.0 * fit.efficiency * passes  # of full attention half is computed


def test_four_times_the_tokens_take_four_times_the_attention_of_each():
    """From a million tokens on attention is nearly all: its part of a token's work grows with the sequence."""
    pins = {"tp": 2, "cp": 64, "cp_kind": "a2a+p2p", "recompute": "none"}
    long, longer = (
        predict(PlanRequest(model="llama3-8b", gpus=512, seq_length=s, global_batch_size=64, pins=pins))
        for s in (2**20, 2**22)
    )
    ratio = longer.breakdown_seconds["compute"] / long.breakdown_seconds["compute"]
    weights, attention = 6 * 8.03e9, 6 * 32 * 4096 * 2**20  # FLOP per token, causal
    expected = 4 * (weights + 4 * attention * 1.17) / (weights + attention * 1.17)  # the backward pass counts 2.5
    assert ratio == pytest.approx(expected, rel=0.1)
