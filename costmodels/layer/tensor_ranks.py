"""What tensor ranks exchange beyond one collective a block and pass: gradients of inputs one by one, and logits."""

from __future__ import annotations

import numpy as np

from costmodels.layout.placement import group_of
from costmodels.model.layer_kinds import Kind
from costmodels.names import WORD
from costmodels.primitives.collectives import gather_seconds
from costmodels.primitives.kernels import stream_seconds
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Strategies


def exchanging_parts(kind: Kind, scenario: Scenario) -> float:
    """Parts of a layer whose outputs the tensor ranks sum up; one of two side by side.

    Routed experts take the tokens of their own rank: nothing is gathered for them, unless for shared ones.
    """
    moe = scenario.model.moe
    parts = 1.0 if scenario.model.parallel_block else float(kind.parts)
    alone = kind.ffn == "experts" and moe is not None and not moe.num_shared_experts
    return parts - 1.0 if alone else parts


def input_reductions(kind: Kind, scenario: Scenario) -> float:
    """Further reductions of input gradients in a layer's backward pass.

    Products of one input whose outputs are split sum their parts of its gradient over the tensor ranks: once where
    they are one product or share the input's copy, each for itself where every layer class reduces its own, or where
    branches side by side have a norm each.
    """
    apart, model = scenario.stack.exchange.separate_reductions, scenario.model
    further = 2.0 if "qkv" in apart and kind.attends else 0.0
    further += float(scenario.stack.kernels.separate_branches and model.parallel_block and kind.parts > 1)
    return further + float("gate" in apart and kind.ffn == "dense" and model.gated_ffn)


def logits_seen(ranks: Floats, vocabulary: Floats, scenario: Scenario) -> Floats:
    """Rows of the vocabulary whose logits a rank's loss reads, (N,); each of ``ranks`` multiplies ``vocabulary``."""
    return vocabulary * np.where(scenario.stack.logits.gathered_logits, ranks, 1.0)


def logit_gather(rows: Strategies, logits: Floats, scenario: Scenario) -> Floats:
    """Seconds in which tensor ranks gather all ``logits`` of a micro-batch for the loss, (N,); 0 where they do not.

    A gather lays the ranks' parts one behind the other; a copy puts them side by side, token by token. What goes back
    is a slice of every rank's own gradient, without an exchange.
    """
    if not scenario.stack.logits.gathered_logits:
        return np.zeros(len(rows))
    moving = gather_seconds(WORD * logits, group_of(rows, "tp"), scenario.group.tiers)
    copied = stream_seconds(traffic=2.0 * WORD * logits, share=1.0, bandwidth=scenario.rates.bandwidth)
    return np.where(rows.tp > 1, moving + copied, 0.0)
