"""What a layer's experts keep of a micro-batch for its backward pass."""

from __future__ import annotations

import numpy as np

from costmodels.layer.adapters import kept_expert_bytes
from costmodels.layer.experts import arrived_tokens, experts_of, routed_tokens
from costmodels.layer.forward_backward import tokens_per_rank
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats, Strategies


def expert_activation_bytes(
    strategies: Strategies, scenario: Scenario, saved: float, *, repeated: Bools | bool = False
) -> Floats:
    """Bytes that one layer with experts keeps of one micro-batch, without attention and norms, shape (N,).

    The dispatched tokens, both sides of the activation, and the shared experts' like a dense network's.
    ``saved`` is bytes per value of what enters a product; where the activation is ``repeated`` its output is not kept
    and its input is as narrow. Of frozen experts only what enters the activation is kept, and what adapters read.
    """
    model, moe = scenario.model, experts_of(scenario)
    arrived = arrived_tokens(strategies, scenario)
    f = moe.expert_ffn_hidden_size / strategies.etp
    saved = 0.0 if scenario.frozen else saved
    each = np.where(repeated, saved * model.ffn_branches, scenario.word * model.ffn_branches + saved)
    shared = moe.shared_expert_ffn_hidden_size / strategies.tp * tokens_per_rank(strategies, scenario)
    enters, leaves = kept_expert_bytes(scenario)
    read = (saved + enters) * model.expert_hidden_size + leaves * f
    return arrived * (read + each * f) + shared * each + weighed_bytes(strategies, scenario)


def weighed_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes of what one layer's experts returned, in fp32, where a product with its scores keeps it, (N,)."""
    width = 4.0 * scenario.model.expert_hidden_size * scenario.stack.experts.scores_in_fp32
    return routed_tokens(strategies, scenario) * width


def exchanged_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes that the two exchanges of one layer's tokens return, and every second product of its shared experts, (N,).

    That is what a list of operators keeps of experts, exchanges if it names them: grouped products are in none
    [torchtitan].
    """
    model, moe = scenario.model, experts_of(scenario)
    named = (strategies.ep > 1) & scenario.stack.recompute.saves_exchanges
    values = (arrived_tokens(strategies, scenario) + routed_tokens(strategies, scenario)) * named
    shared = moe.shared_expert_ffn_hidden_size / strategies.tp * tokens_per_rank(strategies, scenario)
    return scenario.word * (values * model.expert_hidden_size + shared)
