"""Bytes that publications print: activations of a layer, sharded states, what ranks exchange."""

from __future__ import annotations

import numpy as np

from costmodels.arrays import Bools, Floats, Number


def layer_activation_bytes(
    *, tokens: Number, region: Number, tensor_ranks: Number, gathered: Number, whole: Number, split: Number
) -> Floats:
    """Bytes that one layer keeps of one micro-batch for its backward pass.

        M = (T - T_r) g + T_r w + T i / t;  of a GPT block in 16 bits  s b h (10 + 24 / t + 5 a s / (h t))

    Args:
        tokens: T, s b of a micro-batch on one rank, before any split over tensor ranks, shape (N,).
        region: T_r, tokens of a rank outside the split products: T, or T / t under sequence parallelism.
        tensor_ranks: t, over which the products are split.
        gathered: g, bytes per token of inputs that are kept whole although tokens are split.
        whole: w, bytes per token of what tensor ranks do not split by width: norms' and products' inputs, dropout
            masks; 10 h of the block.
        split: i, bytes per token of what they do: queries, keys, values, output, both sides of the activation, 24 h,
            and scores with softmax and dropout, 5 a s.

    Returns:
        Bytes of one rank, shape (N,).

    Source:
        [Korthikanti22], equation 2.

    >>> s, h, a = 2048, 12288, 96
    >>> size = {"gathered": 0.0, "whole": 10 * h, "split": 24 * h + 5 * a * s}
    >>> layer_activation_bytes(tokens=s, region=s, tensor_ranks=8, **size) / 2**20  # GPT-3: 10 + 3 + 10, times s h
    552.0
    >>> layer_activation_bytes(tokens=s, region=s / 8, tensor_ranks=8, **size) / 2**20  # with sequence parallelism
    342.0
    """
    return (tokens - region) * gathered + region * whole + tokens * split / tensor_ranks


def checkpoint_bytes(*, tokens: Number, hidden_size: Number, word: Number) -> Floats:
    """Bytes of the input of one layer, all that is kept of one that is recomputed whole.

        M = w T h;  2 s b h in 16 bits

    Args:
        tokens: T, of a micro-batch on one rank, shape (N,).
        hidden_size: h.
        word: w, bytes of a value.

    Returns:
        Bytes of one rank, shape (N,).

    Source:
        [Korthikanti22], section 5.

    >>> checkpoint_bytes(tokens=2048, hidden_size=12288, word=2.0) / 2**20
    48.0
    """
    return word * hidden_size * tokens


def sharded_bytes(whole: Number, shards: Number, sharded: Bools) -> Floats:
    """Bytes per parameter that one rank holds of weights, gradients or optimizer states under ZeRO.

        M / N where they are sharded, M elsewhere

    With 2 bytes of weight, 2 of gradient and K = 12 of states, stage 1 leaves 2 + 2 + K / N of the 2 + 2 + K bytes,
    stage 2 leaves 2 + (2 + K) / N and stage 3 (2 + 2 + K) / N.

    Args:
        whole: M, bytes of all of it.
        shards: N, ranks that share it, shape (N,).
        sharded: where they do: states from stage 1 on, gradients from 2, weights from 3, shape (N,).

    Returns:
        Bytes, shape (N,).

    Source:
        [Rajbhandari20], figure 1.

    >>> psi, stages = 7.5e9, np.array([0, 1, 2, 3])
    >>> parts = [sharded_bytes(size * psi, 64, stages >= first) for size, first in ((2, 3), (2, 2), (12, 1))]
    >>> (sum(parts) / 1e9).round(1).tolist()  # 7.5 billion parameters on 64 ranks, GB
    [120.0, 31.4, 16.6, 1.9]
    """
    return np.where(sharded, whole / shards, whole)


def optimizer_traffic(*, updated: Number, step: Number, held: Number, gradient: Number) -> Floats:
    """Bytes through a device's memory to clip, step and cast, and to zero the gradients.

        S = N_u k + N_h g

    Args:
        updated: N_u, parameters that a rank steps, shape (N,).
        step: k, bytes per parameter: states read and written, gradients read, weights written.
        held: N_h, parameters whose gradients it zeroes.
        gradient: g, bytes of a gradient.

    Returns:
        Bytes, shape (N,).

    Source:
        [Rajbhandari20], section 3: Adam in mixed precision keeps 12 bytes in addition to weight and gradient.

    >>> optimizer_traffic(updated=1e9, step=30.0, held=1e9, gradient=4.0)
    34000000000.0
    """
    return updated * step + held * gradient


def key_value_bytes(*, tokens: Number, heads: Number, key_width: Number, value_width: Number, word: Number) -> Floats:
    """Bytes of keys and values of some tokens: what a rank of a ring sends on at every step.

        S = w T a (d_k + d_v)

    Args:
        tokens: T, shape (N,).
        heads: a, heads of keys and values that a rank has, shape (N,).
        key_width: d_k, width of a key.
        value_width: d_v, width of a value.
        word: w, bytes of a value.

    Returns:
        Bytes, shape (N,).

    Source:
        [Liu23], section 3; [Dubey24], section 3.3.2.

    >>> key_value_bytes(tokens=8192, heads=8, key_width=128, value_width=128, word=2.0) / 2**20
    32.0
    """
    return word * tokens * heads * (key_width + value_width)


def dispatched_bytes(*, copies: Number, hidden_size: Number, word: Number, extra: Number = 0.0) -> Floats:
    """Bytes that one rank sends to experts, or gets back from them.

        S = k T (w h + c)

    Args:
        copies: k T, tokens of a rank times the experts that each goes to, shape (N,).
        hidden_size: h, width of a token at the experts.
        word: w, bytes of a value on its way.
        extra: c, bytes that travel with every copy, such as the router's weights.

    Returns:
        Bytes, shape (N,).

    Source:
        [Lepikhin20], section 3.2; [DeepSeek24], section 3.2.2.

    >>> dispatched_bytes(copies=4096 * 8, hidden_size=7168, word=1.0) / 2**20  # 4,096 tokens to 8 experts in 8 bits
    224.0
    """
    return copies * (word * hidden_size + extra)


def expert_places(*, tokens: Number, top_k: Number, capacity: Number) -> Floats:
    """Places of all experts together where each has a capacity.

        E C = k T f

    Args:
        tokens: T, that are routed together.
        top_k: k, experts that each goes to.
        capacity: f, places over tokens that come when all experts get as many.

    Returns:
        Places, each of one token.

    Source:
        [Lepikhin20], section 2.2.

    >>> expert_places(tokens=1024.0, top_k=2, capacity=1.25)
    2560.0
    """
    return top_k * tokens * capacity
