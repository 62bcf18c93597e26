"""The output head's product and the cross-entropy behind it: all logits at once, in blocks, or fused in blocks."""

from __future__ import annotations

import numpy as np

from costmodels.layer.deterministic import FILLED_LOGIT
from costmodels.layer.forward_backward import Passes, product
from costmodels.names import WORD
from costmodels.primitives.kernels import stream_seconds
from costmodels.scenario import Scenario
from costmodels.strategy import Floats

FUSED_TRAFFIC = 3.0 * WORD
"""Bytes moved per logit by the fused loss: read for its softmax, read again, and the gradient written [Liger]."""
ODD = 0.37
"""Rate of a product with rows of an odd number of 16-bit values over that of others. They start at odd words, which no
copy behind the threads' backs takes, so that a kernel of the generation before runs: A100's one for 248,077 outputs is
Turing's (GitHub pegainfer-project/pegainfer, pull request 1046). Measured by what a micro-batch takes beside its layers
with 50,257 tokens on one tensor rank, per sequence, of two widths: 82 TFLOP/s on A100 [vTrain]."""
FORWARD = 0.6
"""Share of a plain loss's traffic that its forward pass moves."""


def block_tokens(tokens: Floats, rows: Floats, scenario: Scenario) -> Floats:
    """Tokens whose logits exist at once, (N,); ``rows`` are the vocabulary's on one rank.

    The fused loss chooses so many that a block of logits is about as large as the hidden state, a power of two.
    """
    stack = scenario.stack
    if stack.switches.loss_block:
        return np.minimum(tokens, float(stack.switches.loss_block))
    if stack.switches.loss == "plain":
        return tokens
    wanted = np.maximum(tokens / np.ceil(rows / scenario.model.hidden_size), 1.0)
    return np.minimum(tokens, 2.0 ** np.ceil(np.log2(wanted)))


def loss_seconds(tokens: Floats, rows: Floats, scenario: Scenario, *, seen: Floats | None = None) -> Passes:
    """Logits, cross-entropy and their gradients on one rank, ``rows`` of the vocabulary, (N,).

    ``seen`` are the rows whose logits the rank's loss reads: more than it multiplies where they were gathered.

    Where logits exist in blocks, a plain loss multiplies them again in the backward pass, and its autograd keeps
    none. A fused one turns each block into gradients at once; the weight's are added up block by block.
    """
    rates, stack, h = scenario.rates, scenario.stack, float(scenario.model.hidden_size)
    block = block_tokens(tokens, rows, scenario)
    count = tokens / block
    peak = rates.vocabulary_peak * np.where(rows % 2.0 == 1.0, ODD, 1.0)
    once = product(block, rows, h, rates.head, peak, rates.bandwidth, frozen=scenario.frozen)
    logit = Passes(count * once.forward, count * once.backward)
    per_logit = FUSED_TRAFFIC if stack.switches.loss == "fused" else stack.logits.cross_entropy_traffic
    per_logit = per_logit + stack.switches.deterministic * FILLED_LOGIT
    read = rows if seen is None else seen
    loss = stream_seconds(traffic=tokens * read * per_logit, share=1.0, bandwidth=rates.bandwidth)
    if stack.switches.loss == "fused":
        added = 0.0 if scenario.frozen else np.maximum(count - 1.0, 0.0) * rows * h * 2.0 * WORD
        return Passes(
            logit.forward + loss + stream_seconds(traffic=added, share=1.0, bandwidth=rates.bandwidth), logit.backward
        )
    again = np.where(block < tokens, logit.forward + FORWARD * loss, 0.0)
    return Passes(logit.forward + FORWARD * loss, logit.backward + (1.0 - FORWARD) * loss + again)


def logit_bytes(tokens: Floats, rows: Floats, scenario: Scenario) -> Floats:
    """Bytes held at the loss on one rank, (N,); the fused loss keeps its weight's gradient for the backward pass."""
    block = block_tokens(tokens, rows, scenario)
    if scenario.stack.switches.loss == "fused":
        gradient = 0.0 if scenario.frozen else scenario.model.hidden_size
        return scenario.word * rows * (block + gradient)
    return block * rows * (scenario.stack.logits.cross_entropy_bytes + scenario.word - WORD)
