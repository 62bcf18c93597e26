"""Floating-point operations that a run needs, of which MFU is the share of the peak."""

from __future__ import annotations

from typing import Any

from costmodels.model.flops import forward_flops, frozen_flops, logit_matmul_weights, model_flops
from costmodels.scenario import Scenario


def counted_flops(scenario: Scenario, *, causal: bool = False) -> float:
    """FLOP per token that count as useful: no gradients that nobody computes, no attention beyond a sliding window.

    Adapters, which are narrow, count as little as the gradients of the frozen weights they adapt.

    Args:
        scenario: What is trained; tokens attend to their own document.
        causal: Count only the pairs of tokens that causal attention needs, not all of them.
    """
    every = model_flops(scenario.model, seq_length=scenario.attended_length, causal=causal, windowed=True)
    return every - _spared_flops(scenario, causal=causal)


def causal_excess(scenario: Scenario) -> float:
    """What counts as useful over the same with the pairs of tokens alone that causal attention needs."""
    return counted_flops(scenario) / counted_flops(scenario, causal=True)


def _spared_flops(scenario: Scenario, *, causal: bool) -> float:
    """FLOP per token of gradients that nobody computes: of frozen weights, and all those of the first frozen layers."""
    if scenario.frozen:
        return frozen_flops(scenario.model)
    layers = 0.0
    if still := 1.0 - scenario.trained_depth:
        known: dict[str, Any] = {"seq_length": scenario.attended_length, "windowed": True, "logits": False}
        layers = 2.0 * still * forward_flops(scenario.model, causal=causal, **known)
    return layers + 2.0 * scenario.head_frozen * logit_matmul_weights(scenario.model)
