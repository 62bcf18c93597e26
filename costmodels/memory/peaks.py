"""Bytes that live only for a moment, at the peak of a pass: gradients of activations, of weights, of logits.

The allocator is fullest as a backward pass begins. Everything is still kept then, so what the first pieces of it
allocate comes on top, less what they have used up by then: the last layer's on every stage, the head's on the last.
What [Korthikanti22] counts is what is kept.
"""

from __future__ import annotations

import numpy as np

from costmodels.layer.adapters import kept_input_bytes, trained_share
from costmodels.layer.attention import attention_kept
from costmodels.layer.expert_activations import weighed_bytes
from costmodels.layer.experts import arrived_tokens, experts_of
from costmodels.layer.forward_backward import region_tokens, tokens_per_rank
from costmodels.layer.frozen_weights import unpacked_bytes
from costmodels.layer.recompute_modules import before_activation
from costmodels.layer.vocabulary import logit_bytes
from costmodels.layout.parameters_per_rank import padded_vocabulary_rows, vocabulary_rows
from costmodels.model.layer_kinds import Kind
from costmodels.model.parameters import attention_projections, expert_parameters
from costmodels.names import SHARDED_PARAMETERS, Recompute
from costmodels.scenario import Scenario
from costmodels.stack.optimizers import ADAM_MOMENTS, root_bytes
from costmodels.strategy import LAYER_AXES, STATE_AXES, Floats, Strategies, of_axes

WORKSPACES = 64.0 * 2**20
"""Workspaces of matrix products, one of PyTorch's and one of Transformer Engine's, 32 MiB each [TE]."""


@of_axes(*LAYER_AXES)
def momentary_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes that the backward pass of the stage's last layer holds beyond what all layers keep, (N,).

    Of the kind of layer with the most.
    """
    each = [_layer_peak(strategies, scenario, kind) for kind in scenario.depth.kinds]
    return np.maximum(np.max(each, axis=0), 0.0)


def standing_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes that stay from the first iteration on, besides states, (N,).

    Workspaces, gradients that nobody frees, and buffers that gradients are copied into for their reduction.
    """
    switches = scenario.stack.switches
    twice = switches.overlap_grad_reduce & (strategies.zero_stage < SHARDED_PARAMETERS)
    reduced = (strategies.zero_stage > 0) & (strategies.sharding_degree > 1)
    buckets = np.where(reduced, np.where(twice, 2.0, 1.0) * switches.reduce_bucket_size, 0.0)
    return WORKSPACES + _dummy_gradients(strategies, scenario) + buckets


@of_axes(*STATE_AXES)
def step_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes per parameter that reducing gradients and stepping hold for the moment, (N,).

    Flattened copies of the gradients, and copies in fp32 of 16-bit ones for the master weights, of a rank's own shard;
    or, where one collective gathers all new parameters, these in 16 bits, shards and whole, besides the old ones; or
    the roots of a rank's second moments.
    """
    stack = scenario.stack
    masters = stack.states.optimizer_bytes > ADAM_MOMENTS and scenario.precision != "fp32"
    copied = 4.0 if masters and stack.gradients.gradient_bytes < 4 else 0.0
    shard = np.where(strategies.zero_stage > 0, strategies.sharding_degree, 1)
    reduced = stack.gradients.gradient_bytes * float(stack.gradients.flattened_copy) + copied / shard
    reduced = reduced * (not stack.gradients.kept_until_next_step)  # the last step's let go as this one's come
    partly = (strategies.zero_stage > 0) & (strategies.zero_stage < SHARDED_PARAMETERS)
    gathered = stack.sharding.joint_gather & partly & (shard > 1)
    held = np.maximum(reduced, np.where(gathered, scenario.word * (1.0 + 1.0 / shard), 0.0))
    held = np.maximum(held, root_bytes(stack) / shard)
    return held * trained_share(scenario)


def _layer_peak(strategies: Strategies, scenario: Scenario, kind: Kind) -> Floats:
    """The most of four moments, (N,): behind experts' scores, the activation, the first matrix, attention's softmax.

    A layer goes backwards from its end: what a piece has kept is let go as its gradient is made.
    """
    T, region, t = tokens_per_rank(strategies, scenario), region_tokens(strategies, scenario), strategies.tp
    h = float(scenario.model.hidden_size)
    arriving = scenario.word * h * region
    if kind.ffn == "dense":
        wide, read, let_go = _dense_ffn(strategies, scenario, kind)
        first = scenario.model.fc1_width * h / t
    elif kind.ffn == "experts":
        wide, read, let_go = _expert_ffn(strategies, scenario, kind)
        first = np.zeros(len(strategies))
    else:
        wide, read, let_go, first = (np.zeros(len(strategies)) for _ in range(4))
    # sequence parallelism gathers the input, and its gradient
    inputs = scenario.word * h * np.where(region < T, 2.0 * T, T)
    wgrad = 0.0 if scenario.stack.gradients.dummy_gradients or scenario.frozen else scenario.word * first
    wgrad = wgrad + unpacked_bytes(strategies, scenario, kind)
    moments = [arriving + wide + read - _kept_of(read, scenario, kind), arriving + wide + inputs + wgrad - let_go]
    if kind.ffn == "experts":  # the gradient in 16 bits and in fp32, and its products with scores and with outputs
        moments.append(arriving + 3.5 * weighed_bytes(strategies, scenario))
    if kind.attends and scenario.rates.attention is None:
        moments.append(arriving + _scores(strategies, scenario) - let_go - 2.0 * scenario.word * h * region)
    return np.asarray(np.max(moments, axis=0))


def _kept_of(read: Floats, scenario: Scenario, kind: Kind) -> Floats:
    """Bytes of what leaves the activation, ``read`` in the width of activations, that were kept of it, (N,)."""
    if scenario.frozen:
        return read * kept_input_bytes(scenario, kind, "linear_fc2") / scenario.word
    return read * scenario.saved_word / scenario.word


def _dense_ffn(strategies: Strategies, scenario: Scenario, kind: Kind) -> tuple[Floats, Floats, Floats]:
    """Gradients of the activation's input and of its output, and what both had kept, (N,)."""
    T, model = tokens_per_rank(strategies, scenario) / strategies.tp, scenario.model
    wide, read = scenario.word * T * model.fc1_width, scenario.word * T * model.ffn_hidden_size
    kept = before_activation(scenario) * T * model.fc1_width
    return wide, read, kept + _kept_of(read, scenario, kind)


def _expert_ffn(strategies: Strategies, scenario: Scenario, kind: Kind) -> tuple[Floats, Floats, Floats]:
    """Gradients around the activation of the rank's experts, and what it kept; one per expert of a token, (N,)."""
    moe, model = experts_of(scenario), scenario.model
    arrived = arrived_tokens(strategies, scenario)
    read = scenario.word * arrived * moe.expert_ffn_hidden_size / strategies.etp
    wide = read * model.ffn_branches
    came = scenario.word * arrived * model.expert_hidden_size
    return wide + came, read, wide + _kept_of(read, scenario, kind)


def _scores(strategies: Strategies, scenario: Scenario) -> Floats:
    """Gradients of unfused attention's scores, and the scores themselves where they are made again, (N,)."""
    T, stack = tokens_per_rank(strategies, scenario) / strategies.tp, scenario.stack
    again = (strategies.recompute == Recompute.SELECTIVE) & (stack.switches.recompute_policy == "attention")
    s = float(scenario.seq_length)
    side = min(stack.kernels.attention_block, s) or s  # of a block of scores, all heads of a micro-batch at once
    gradient = scenario.word * T * scenario.model.num_heads * side * side / s
    return gradient + np.where(again, T * attention_kept(scenario), 0.0)


def _dummy_gradients(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes of one 16-bit gradient for every shape of weight, (N,).

    Products that add up gradients in the framework's own buffer still owe autograd a tensor of the weight's shape;
    Transformer Engine keeps one for each shape and never writes it [TE].
    """
    model, kinds = scenario.model, scenario.depth.kinds
    if not scenario.stack.gradients.dummy_gradients or scenario.frozen:
        return np.zeros(len(strategies))
    split = sum(p.weights for p in attention_projections(model) if p.sharded)
    whole = sum(p.weights for p in attention_projections(model) if not p.sharded)
    attends = float(any(kind.attends for kind in kinds))
    dense = float(any(kind.ffn == "dense" for kind in kinds)) * (model.fc1_width + model.ffn_hidden_size)
    shapes = attends * (split / strategies.tp + whole) + dense * model.hidden_size / strategies.tp
    if model.moe is not None:
        shared = model.moe.shared_expert_ffn_hidden_size * (model.ffn_branches + 1.0) * model.hidden_size
        shapes = shapes + shared / strategies.tp + expert_parameters(model) / strategies.etp
    return scenario.word * shapes


@of_axes(*LAYER_AXES)
def loss_peak(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes held at the head and the loss, (N,): logits and their softmax, or the gradients of the head's product.

    The larger of two moments: the cross-entropy, and the head's backward pass, in which the logits' gradient coexists
    with that of the weights and of the final norm's output. To both come that norm's input and output, the latter
    whole where what was gathered is kept.
    """
    T, t, h = tokens_per_rank(strategies, scenario), strategies.tp, float(scenario.model.hidden_size)
    vocabulary = vocabulary_rows(strategies, scenario, "head")
    seen = padded_vocabulary_rows(strategies, scenario) if scenario.stack.logits.gathered_logits else vocabulary
    held = logit_bytes(T, seen, scenario)
    if shared := scenario.stack.logits.shared_loss_bytes:
        held = held + np.where(t > 1, shared * T * seen, 0.0)
    if scenario.stack.switches.loss == "plain" and not scenario.stack.switches.loss_block:
        gathered = np.where((strategies.sequence_parallel > 0) & (t > 1), 2.0, 1.0)
        weights = 0.0 if scenario.head_frozen else vocabulary * h
        held = np.maximum(held, scenario.word * (T * vocabulary + weights + gathered * T * h))
    if scenario.further_forwards:  # logits of a pass without gradients, besides those that a gradient will read
        held = held + scenario.word * T * seen
    region, gathers = region_tokens(strategies, scenario), scenario.stack.exchange.keeps_gathered_inputs
    return held + 2.0 * scenario.word * h * region + gathers * scenario.word * h * (T - region)
