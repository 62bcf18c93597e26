"""What the allocator has reserved beyond its peak: blocks that it cannot hand out yet, or that fit nothing else.

A block that a collective's stream has used returns to PyTorch's pool only once the host has seen an event behind that
use (its pull request 76861), and the host is hundreds of kernels ahead of the device. In the forward pass the partial
sums of every row-parallel product pile up so, on top of what is kept. Flat copies of gradients need room that the many
small blocks of activations, free by then, do not offer; and a stream keeps to blocks of its own. All show in what a
device reports, and fail no run: before an allocation does, the allocator waits for the device and gives back what is
idle.
"""

from __future__ import annotations

import numpy as np

from costmodels.layer.forward_backward import region_tokens, tokens_per_rank
from costmodels.layout.parameters_per_rank import vocabulary_rows
from costmodels.names import SHARDED_GRADIENTS, WORD, Recompute
from costmodels.scenario import Scenario
from costmodels.stack.optimizers import ADAM_MOMENTS
from costmodels.strategy import Bools, Floats, Strategies

LAUNCHES_AHEAD = 1024.0
"""Kernels that the host may launch before the device has started the first of them."""


def unreleased_sums(strategies: Strategies, scenario: Scenario, layers: Floats, *, first: Bools) -> Floats:
    """Bytes that wait for collectives of the tensor ranks as a forward pass of ``layers`` layers ends, (N,).

    On the ``first`` stage it follows the backward pass of the micro-batch before it, of twice as many kernels and as
    many sums, which the host has left behind unless it read what the next batch is: Megatron's ``broadcast_data`` reads
    sizes. Other stages wait for what arrives.
    """
    stack, model = scenario.stack, scenario.model
    if not stack.switches.record_streams:
        return np.zeros(len(strategies))
    sums = 1.0 if model.parallel_block else 2.0
    reach = LAUNCHES_AHEAD / stack.host.kernels_per_layer
    unreleased = np.minimum(layers, reach)
    before = first & (strategies.num_microbatches > 1) & stack.allocator.unread_batches
    unreleased = unreleased + before * np.minimum(layers, (reach - unreleased) / 2.0)
    whole = scenario.word * model.hidden_size * tokens_per_rank(strategies, scenario)
    return np.where(strategies.tp > 1, unreleased * sums * whole, 0.0)


def gradient_copy_bytes(
    strategies: Strategies, scenario: Scenario, parameters: Floats, *, largest: Floats, scattered: Floats | float = 0.0
) -> Floats:
    """Bytes of blocks that a stage's gradients want once an iteration, of ``parameters`` on a rank, (N,).

    First ``scattered``, the embedding's dense gradient. Then, where gradients are in 16 bits, the bucket that they are
    reduced in, whose block waits for the collective; copies of each in 4 and in 8 bytes a value where a step checks
    them one by one, of which ``largest`` is that of the largest tensor; and all of a rank's own, flat, in 2 and in 4.
    Of those that come one after the other only one that is larger than all before takes a block of its own.
    """
    stack, sharded = scenario.stack, strategies.zero_stage > 0
    if stack.gradients.gradient_bytes > scenario.word or scenario.precision == "fp32":
        return scattered + np.zeros(len(strategies))
    own = parameters / np.where(sharded, strategies.sharding_degree, 1)
    bucket = np.where(
        sharded, np.minimum(stack.gradients.flat_bucket, stack.gradients.gradient_bytes * parameters), 0.0
    )
    one = np.minimum(own, largest) * (stack.gradients.overflow_check & sharded)
    total, free = scattered + bucket, scattered + np.zeros(len(strategies))
    for block in (4.0 * one, 8.0 * one):
        total, free = total + np.where(block > free, block, 0.0), np.maximum(block, free)
    flat = stack.gradients.flat_step_bytes * own
    return total + np.where(one > 0, np.where(free < 4.0 * own, flat, 0.0), flat)


def gather_list_bytes(
    strategies: Strategies, scenario: Scenario, *, parameters: Floats, optimizer: Floats, last: Bools
) -> Floats:
    """Bytes beyond its peak that the allocator takes to gather ``parameters`` of a rank into a list of buffers, (N,).

    The framework makes a buffer for every rank and one for its own part, and PyTorch gathers into one flat tensor first
    (``ProcessGroupNCCL.cpp``, ``newLikeFlat``). Either finds room where something as large has been let go: what the
    first matrix of a layer returned, or, on the ``last`` stage, logits in fp32. Moments, of ``optimizer`` bytes, are
    made by the first step, in front of the first gather and out of what activations had: the next ones take the
    buffers' room instead.
    """
    model, stack, T = scenario.model, scenario.stack, tokens_per_rank(strategies, scenario)
    logits = 4.0 * T * vocabulary_rows(strategies, scenario, "head") * last
    free = np.maximum(scenario.word * T * np.maximum(model.fc1_width / strategies.tp, model.hidden_size), logits)
    whole = scenario.word * parameters * ((strategies.zero_stage > 0) & (stack.sharding.parameter_exchange == "listed"))
    piece = whole / strategies.sharding_degree
    taken = (free < whole) * whole + (free < piece) * (whole + piece)
    moments = optimizer * ADAM_MOMENTS / stack.states.optimizer_bytes
    return np.where(strategies.sharding_degree > 1, np.maximum(taken - moments, 0.0), 0.0)


def gather_buffer_bytes(
    strategies: Strategies, scenario: Scenario, *, layer: Floats, ends: tuple[Floats, Floats]
) -> Floats:
    """Bytes of the buffer that the largest unit of full sharding is gathered into, (N,).

    ``layer`` are the parameters of one layer on a rank, ``ends`` those of the stage's embedding and head, which travel
    as one where only layers are units of their own.
    """
    embedding, head = ends
    outer = embedding + head if scenario.stack.sharding.root_unit else np.maximum(embedding, head)
    gathers = scenario.stack.sharding.gather_pool & (strategies.zero_stage >= SHARDED_GRADIENTS)
    return np.where(gathers, scenario.word * np.maximum(layer, outer), 0.0)


def logits_block_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes of blocks that lie idle while the logits exist, on the stage with the head, (N,).

    An eager loss in fp32 leaves the block that the model's own logits had. In fixed segments logits cannot use what
    the last layer's forward pass let go; and since the first step makes its states in blocks that are idle then, one of
    the logits' blocks is cut and taken anew, where the loss has none but these and their gradients'.
    """
    stack, T = scenario.stack, tokens_per_rank(strategies, scenario)
    logits = scenario.word * T * vocabulary_rows(strategies, scenario, "head")
    if stack.switches.loss != "plain" or stack.switches.loss_block:
        return np.zeros(len(strategies))
    idle = logits * stack.allocator.logits_freed_early
    if stack.switches.expandable_segments:
        return idle
    passed, largest = _let_go(strategies, scenario)
    unused = idle + np.where(logits > largest, passed, 0.0)
    return np.maximum(unused, logits) if stack.logits.cross_entropy_bytes <= 2 * WORD else unused


def _let_go(strategies: Strategies, scenario: Scenario) -> tuple[Floats, Floats]:
    """Bytes that the forward pass of one dense layer makes and does not keep, and its largest block, (N,).

    Gate, its other half and their product, less those that are kept for the backward pass; and under tensor
    parallelism the whole input and the whole partial sums, unless both travel in pieces during the products.
    """
    stack, model, T = scenario.stack, scenario.model, tokens_per_rank(strategies, scenario)
    inner, outer = T * model.ffn_hidden_size / strategies.tp, T * model.hidden_size
    listed = (strategies.recompute == Recompute.SELECTIVE) & (stack.switches.recompute_policy == "operators")
    gone = np.where(strategies.recompute >= Recompute.FULL, model.ffn_branches + 1.0, listed * model.ffn_branches)
    whole = (stack.overlap.tp_forward == 1.0) * (1.0 * (strategies.tp > 1) + (region_tokens(strategies, scenario) < T))
    largest = np.maximum(inner, np.where(whole > 0, outer, 0.0))
    return scenario.word * (gone * inner + whole * outer), scenario.word * largest


def embedding_gradient_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes of the block of the embedding's dense gradient, in 16 bits, (N,).

    In fixed segments it fits no block that activations had, unless these are as large. A frozen embedding has none.
    """
    stack, model = scenario.stack, scenario.model
    gradient = scenario.word * vocabulary_rows(strategies, scenario, "embedding") * model.embedding_width
    gradient = gradient * (not scenario.embedding_frozen)
    return np.where(
        (not stack.switches.expandable_segments) & (gradient > _let_go(strategies, scenario)[1]), gradient, 0.0
    )
