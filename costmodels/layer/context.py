"""Context parallelism: what its ranks exchange, at which shapes attention runs, and what is held meanwhile.

The c ranks of a sequence each hold s/c tokens, in 2c chunks dealt out so that the causal half is shared evenly.
They form c = u r: among u near ranks all-to-alls exchange tokens for heads [Jacobs23]; around a ring of r such
groups keys and values pass [Liu23]. The ring alone is u = 1, Ulysses alone r = 1, both together [Fang24]. Or all
keys and values are gathered on every rank (Llama 3, [Dubey24], section 3.3.2).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from costmodels.layer.forward_backward import Passes, no_passes, streamed, tokens_per_rank
from costmodels.layout.placement import group_of
from costmodels.names import CP_KINDS, WORD
from costmodels.primitives.collectives import all_to_all_seconds, gather_seconds, send_seconds
from costmodels.primitives.overlap import ring_attention_exposed
from costmodels.primitives.rank_groups import Group, split_group
from costmodels.primitives.sizes import key_value_bytes
from costmodels.scenario import Scenario
from costmodels.stack.stack import Stack
from costmodels.strategy import DENSE_AXES, Bools, Floats, Ints, Strategies, of_axes

RING, ULYSSES, GATHER, BOTH = range(len(CP_KINDS))
MERGE_PASSES = 3.0
"""Times that a partial result moves through memory to be added up: it and the sum are read, the sum is written."""


def is_gathered(strategies: Strategies) -> Bools:
    """Where all keys and values are gathered, shape (N,)."""
    return (strategies.cp_kind == GATHER) & (strategies.cp > 1)


def near_ranks(cp: Ints, tp: Ints, scenario: Scenario) -> Ints:
    """Ranks among which a2a+p2p exchanges tokens for heads, (N,).

    As many as the innermost domain holds and as divide a tensor rank's heads, and its keys and values.
    """
    model, domain = scenario.model, scenario.group.tiers[0].domain
    fits = np.gcd(cp, np.maximum(domain // tp, 1)) if domain else cp
    heads = np.gcd(fits, np.maximum(model.num_heads // tp, 1))
    if scenario.stack.exchange.repeats_key_values:
        return heads
    return np.gcd(heads, np.maximum(model.num_query_groups // tp, 1))


def ulysses_ranks(strategies: Strategies, scenario: Scenario) -> Ints:
    """u: ranks that exchange tokens for heads, (N,)."""
    inner = np.where(strategies.cp_kind == ULYSSES, strategies.cp, 1)
    if not (strategies.cp_kind == BOTH).any():
        return inner
    return np.where(strategies.cp_kind == BOTH, near_ranks(strategies.cp, strategies.tp, scenario), inner)


def ring_ranks(strategies: Strategies, scenario: Scenario) -> Ints:
    """r: groups of ranks around which keys and values pass, (N,); 1 without a ring."""
    return np.where(strategies.cp_kind == GATHER, 1, strategies.cp // ulysses_ranks(strategies, scenario))


def merge_seconds(strategies: Strategies, scenario: Scenario) -> Passes:
    """Adding up what the steps of a ring leave: outputs forward, gradients of queries, keys and values backward.

    Behind the first step each works on one of a rank's two chunks.
    """
    moved = MERGE_PASSES * WORD * tokens_per_rank(strategies, scenario) / 2.0 / strategies.tp
    moved = moved * (ring_ranks(strategies, scenario) - 1)
    return streamed(moved * scenario.model.attention_output_width, moved * scenario.model.qkv_width, scenario)


def context_parallel(strategies: Strategies, scenario: Scenario, attention: Passes) -> Passes:
    """Exposed seconds of the exchange between context ranks, by each strategy's kind."""
    if not (strategies.cp > 1).any():
        return no_passes(strategies)
    near, far = split_group(group_of(strategies, "cp"), ulysses_ranks(strategies, scenario))
    both = _ring(strategies, scenario, far, attention) + _all_to_alls(strategies, scenario, near)
    gathers = is_gathered(strategies)
    return _gathered(strategies, scenario).where(gathers, both) if gathers.any() else both


def _ring(strategies: Strategies, scenario: Scenario, ring: Group, attention: Passes) -> Passes:
    """R - 1 exchanges of keys and values, and of their gradients too backward, each hidden behind one step of r."""
    ranks, step = ring.size.astype(np.float64), ring.parts[0][1].astype(np.float64)
    send = send_seconds(exchanged_key_values(strategies, scenario), step, ranks, scenario.group.tiers)
    ranks = np.where(is_gathered(strategies), 1, ring.size)
    exposed = partial(ring_attention_exposed, ranks=ranks, floor=scenario.stack.overlap.cp)
    forward = exposed(send=send, attention=attention.forward)
    return Passes(forward, exposed(send=2.0 * send, attention=attention.backward))


def _all_to_alls(strategies: Strategies, scenario: Scenario, near: Group) -> Passes:
    """Queries, keys and values there, outputs back; backward the gradients of all four the other way."""
    model, tokens = scenario.model, WORD * tokens_per_rank(strategies, scenario)
    heads = np.maximum(np.maximum(model.num_query_groups / strategies.tp, 1.0), near.size)
    widths = [model.attention_width / strategies.tp, heads * model.head_dim]
    if model.mla is not None:  # outputs and values are narrower than queries and keys
        widths += [model.attention_output_width / strategies.tp, heads * model.v_head_dim]
    once = np.mean([all_to_all_seconds(tokens * width, near, scenario.group.tiers) for width in widths], axis=0)
    exposed = _exposed(np.where(near.size > 1, 4.0 * once, 0.0), scenario.stack)
    return Passes(exposed, exposed)


def _exposed(seconds: Floats, stack: Stack) -> Floats:
    return seconds * stack.overlap.cp_collective / stack.calibrated.reached("tensor")


def _gathered(strategies: Strategies, scenario: Scenario) -> Passes:
    """Keys and values gathered forward and once more backward, where their gradients are scattered."""
    full = exchanged_key_values(strategies, scenario) * strategies.cp
    once = gather_seconds(full, group_of(strategies, "cp"), scenario.group.tiers)
    exposed = _exposed(np.where(strategies.cp > 1, once, 0.0), scenario.stack)
    return Passes(exposed, 2.0 * exposed)


def exchanged_key_values(strategies: Strategies, scenario: Scenario) -> Floats:
    """Keys and values of one micro-batch that a rank attends with before any travel, all-to-alls done, (N,).

    Where there are more ranks than heads of them, each rank has one.
    """
    model, inner = scenario.model, ulysses_ranks(strategies, scenario)
    heads = np.maximum(model.num_query_groups / (strategies.tp * inner), 1.0)
    widths = {"key_width": model.head_dim, "value_width": model.v_head_dim}
    return key_value_bytes(tokens=tokens_per_rank(strategies, scenario) * inner, heads=heads, word=WORD, **widths)


@of_axes(*DENSE_AXES)
def repeated_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes per layer and micro-batch kept beyond one copy of keys and values over tensor and context ranks, (N,)."""
    width = scenario.model.key_value_width + scenario.model.value_width
    once = WORD * tokens_per_rank(strategies, scenario) * width / strategies.tp
    return np.maximum(exchanged_key_values(strategies, scenario) - once, 0.0)


@of_axes(*DENSE_AXES)
def exchange_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes held while one layer's attention runs, for the exchange alone, (N,).

    A ring receives keys and values, and their gradients, into two buffers each. An all-to-all receives queries, keys
    and values in addition to those it sends. A gather holds all keys and values, and backward all their gradients.
    """
    if not (strategies.cp > 1).any():
        return np.zeros(len(strategies))
    keys = exchanged_key_values(strategies, scenario)
    queries = WORD * tokens_per_rank(strategies, scenario) * scenario.model.attention_width / strategies.tp
    ring = np.where(ring_ranks(strategies, scenario) > 1, 4.0 * keys, 0.0)
    exchanged = np.where(ulysses_ranks(strategies, scenario) > 1, queries + keys, 0.0)
    held = np.where(strategies.cp_kind == GATHER, 2.0 * strategies.cp * keys, ring + exchanged)
    return np.where(strategies.cp > 1, held, 0.0)
