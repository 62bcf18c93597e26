"""The vocabulary at a model's ends: the embedding, the output head, and the cross-entropy behind it.

Logits exist all at once, in blocks, or in blocks of a fused loss.
"""

from __future__ import annotations

import numpy as np

from costmodels.layer.elementwise import accumulation_seconds
from costmodels.layer.forward_backward import Passes, linear, product, region_tokens, tokens_per_rank
from costmodels.layer.tensor_parallel import hidden_bytes, reducing_seconds
from costmodels.layout.parameters_per_rank import padded_vocabulary_rows
from costmodels.layout.placement import group_of
from costmodels.names import WORD
from costmodels.primitives.collectives import all_reduce_seconds, gather_seconds
from costmodels.scenario import Scenario
from costmodels.strategy import DENSE_AXES, Floats, Strategies, of_axes

FUSED_TRAFFIC = 3.0 * WORD
"""Bytes moved per logit by the fused loss: read for its softmax, read again, and the gradient written [Liger]."""
ODD = 0.37
"""Rate of a product with rows of an odd number of 16-bit values over that of others. They start at odd words, which no
copy behind the threads' backs takes, so that a kernel of the generation before runs: A100's one for 248,077 outputs is
Turing's (GitHub pegainfer-project/pegainfer, pull request 1046). Measured by what a micro-batch takes beyond its layers
with 50,257 tokens on one tensor rank, per sequence, of two widths: 82 TFLOP/s on A100 [vTrain]."""
FORWARD = 0.6
"""Share of a plain loss's traffic that its forward pass moves."""
FILLED_LOGIT = 8.0
"""Bytes per logit that are filled in vain where runs repeat themselves to the bit [PyTorch-deterministic]: logits and
their gradient in 16 bits, and the copy in fp32 between them."""


@of_axes(*DENSE_AXES)
def embedding_seconds(strategies: Strategies, scenario: Scenario) -> Passes:
    """Token and position look-up of the first stage, and the scatter of its gradient."""
    model = scenario.model
    traffic = 4.0 * tokens_per_rank(strategies, scenario) + 6.0 * region_tokens(strategies, scenario)
    forward = scenario.rates.stream_seconds(model.hidden_size * traffic)
    shared = np.where(strategies.tp > 1, reducing_seconds(strategies, scenario), 0.0)
    shared = shared * scenario.stack.overlap.tp_forward
    if scenario.embedding_frozen:
        return Passes(forward + shared, np.zeros(len(strategies)))
    weights = padded_vocabulary_rows(strategies, scenario) * model.embedding_width / strategies.tp
    backward = forward + np.where(strategies.sequence_parallel > 0, shared, 0.0)
    return Passes(forward + shared, backward) + accumulation_seconds(weights, scenario)


@of_axes(*DENSE_AXES)
def head_seconds(strategies: Strategies, scenario: Scenario) -> Passes:
    """Final norm, logits and cross-entropy of the last stage, vocabulary split over the tensor ranks.

    A stack that keeps the head whole has every rank multiply all of it, and nothing to exchange. Every
    multi-token-prediction layer passes the head once more.
    """
    model, stack, tiers = scenario.model, scenario.stack, scenario.group.tiers
    T = tokens_per_rank(strategies, scenario)
    group = group_of(strategies, "tp")
    split = strategies.sequence_parallel > 0
    t = np.ones(len(strategies)) if "head" in stack.exchange.whole_vocabulary else strategies.tp.astype(np.float64)
    vocabulary = np.ceil(padded_vocabulary_rows(strategies, scenario) / t)
    seen = vocabulary * t if stack.logits.gathered_logits else vocabulary
    half = np.where(t > 1, gather_seconds(hidden_bytes(strategies, scenario), group, tiers), 0.0)
    forward = np.where(t > 1, 2.0 * all_reduce_seconds(4.0 * T, group, tiers), 0.0)
    forward = forward + np.where(split, half, 0.0) * stack.overlap.tp_forward
    if stack.logits.gathered_logits:
        forward = forward + np.where(t > 1, _logit_gather(strategies, T * seen, scenario), 0.0)
    exchanged = Passes(forward, np.where(split, half, 2.0 * half) * stack.overlap.tp_backward)
    passes = loss_seconds(T, vocabulary, scenario, seen=seen) + exchanged
    weights = vocabulary * model.hidden_size * (not scenario.head_frozen)
    return (1.0 + model.mtp_layers) * passes + accumulation_seconds(weights, scenario)


def _logit_gather(strategies: Strategies, logits: Floats, scenario: Scenario) -> Floats:
    """Seconds in which tensor ranks gather all ``logits`` of a micro-batch for the loss, (N,).

    A gather lays the ranks' parts one behind the other; a copy puts them side by side, token by token. What goes back
    is a slice of every rank's own gradient, without an exchange.
    """
    copied = scenario.rates.stream_seconds(2.0 * WORD * logits, share=1.0)
    return gather_seconds(WORD * logits, group_of(strategies, "tp"), scenario.group.tiers) + copied


def further_token_projection(strategies: Strategies, scenario: Scenario) -> Passes:
    """The product that joins hidden state and next token's embedding, 2 h -> h.

    It stands in front of a layer that predicts a further token (DeepSeek-V3, section 2.2); tensor ranks split its
    output.
    """
    h = float(scenario.model.hidden_size)
    return linear(tokens_per_rank(strategies, scenario), h / strategies.tp, 2.0 * h, scenario)


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
    logit = count * product(block, rows, h, rates.head, peak, rates.bandwidth, frozen=scenario.head_frozen)
    per_logit = FUSED_TRAFFIC if stack.switches.loss == "fused" else stack.logits.cross_entropy_traffic
    per_logit = per_logit + stack.switches.deterministic * FILLED_LOGIT
    read = rows if seen is None else seen
    loss = rates.stream_seconds(tokens * read * per_logit, share=1.0)
    if stack.switches.loss == "fused":
        added = 0.0 if scenario.head_frozen else np.maximum(count - 1.0, 0.0) * rows * h * 2.0 * WORD
        return Passes(logit.forward + loss + rates.stream_seconds(added, share=1.0), logit.backward)
    again = np.where(block < tokens, logit.forward + FORWARD * loss, 0.0)
    return logit + Passes(FORWARD * loss, (1.0 - FORWARD) * loss + again)


def logit_bytes(tokens: Floats, rows: Floats, scenario: Scenario) -> Floats:
    """Bytes held at the loss on one rank, (N,); the fused loss keeps its weight's gradient for the backward pass."""
    block = block_tokens(tokens, rows, scenario)
    if scenario.stack.switches.loss == "fused":
        gradient = 0.0 if scenario.head_frozen else scenario.model.hidden_size
        return scenario.word * rows * (block + gradient)
    return block * rows * (scenario.stack.logits.cross_entropy_bytes + scenario.word - WORD)
