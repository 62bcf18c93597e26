"""FLOP of training under the definitions that publications use: an efficiency only means something with its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from costmodels.model.flops import Recompute, logit_matmul_weights, model_flops, recomputed_flops
from costmodels.model.model import Model
from costmodels.model.parameters import active_parameters


def hardware_flops(model: Model, *, seq_length: int, recompute: Recompute = "none") -> float:
    """FLOP per token that the accelerators carry out.

    With "full" and a plain GPT it is 96 L H^2 (1 + S/6H + V/16LH) (Narayanan et al. 2021, equation 3).
    """
    return model_flops(model, seq_length=seq_length) + recomputed_flops(
        model, seq_length=seq_length, recompute=recompute
    )


DEFINITIONS: Mapping[str, Callable[[Model, int, Recompute], float]] = {
    # Per active parameter, attention left out; with a recomputed forward pass.
    "6N": lambda model, _s, _again: 6.0 * active_parameters(model),
    "8N": lambda model, _s, _again: 8.0 * active_parameters(model),
    # Weights, attention and logits, nothing recomputed; attention within the window; its causal half alone.
    "model": lambda model, s, _again: model_flops(model, seq_length=s),
    "model-window": lambda model, s, _again: model_flops(model, seq_length=s, windowed=True),
    "model-causal": lambda model, s, _again: model_flops(model, seq_length=s, causal=True, windowed=True),
    # What is recomputed too; logits left out.
    "hardware": lambda model, s, again: hardware_flops(model, seq_length=s, recompute=again),
    "hardware-no-logits": lambda model, s, again: (
        hardware_flops(model, seq_length=s, recompute=again) - 6.0 * logit_matmul_weights(model)
    ),
}


def flops_per_token(
    model: Model, *, seq_length: int, definition: str = "model", recompute: Recompute = "none"
) -> float:
    """Training FLOP per token under a named definition; only those of hardware read what is recomputed."""
    return DEFINITIONS[definition](model, seq_length, recompute)
