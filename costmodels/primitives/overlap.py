"""Communication overlapped with computation: what of it lengthens a step.

[Rajbhandari20] and [Zhao23] hide collectives behind the layer that runs; [Liu23] hides the ring's sends behind its
steps; [TE] cuts a collective into pieces between pieces of a product.
"""

from __future__ import annotations

import numpy as np

from costmodels.arrays import Bools, Floats, Number


def slowdown(hidden: Number, slow: Number) -> Floats:
    """Seconds by which hidden communication holds up the computation that it runs alongside.

        t = T s / (1 + s)

    While both run, computation goes 1 / (1 + s) as fast.

    Args:
        hidden: T, seconds for which both run, shape (N,).
        slow: s, how much longer computation takes meanwhile, a share.

    Returns:
        Seconds, shape (N,).

    Source:
        Measured for products during collectives [copy_engines].

    >>> slowdown(1.3, 0.3)  # of 1.3 s during a collective, 1 s would have done
    0.3
    """
    return hidden * slow / (1.0 + slow)


def exposed(seconds: Number, window: Number, share: Number, *, slow: Number, hidden: bool) -> Floats:
    """What of a collective in buckets lengthens the iteration.

        t = f T + max(T - f T - W, 0) + slowdown(min(T - f T, W))

    The last bucket has nothing left to hide behind; the others hide behind the pass that makes them.

    Args:
        seconds: T, of all buckets, shape (N,).
        window: W, seconds of computation to hide behind, shape (N,).
        share: f, the last bucket's share of all, shape (N,).
        slow: share by which computation is slowed meanwhile.
        hidden: whether it overlaps computation at all; else all of it is exposed.

    Returns:
        Seconds, shape (N,).

    Source:
        Buckets of PyTorch's and Megatron's data-parallel reductions [Rajbhandari20].

    >>> float(exposed(2.0, 1.5, 0.1, slow=0.0, hidden=True))  # 0.2 s of the last bucket, 0.3 s that outlast the pass
    0.5
    """
    if not hidden:
        return seconds
    first = share * seconds
    rest = seconds - first
    return first + np.maximum(rest - window, 0.0) + slowdown(np.minimum(rest, window), slow)


def prefetched(seconds: Number, window: Number, *, slow: Number, hidden: Bools) -> Floats:
    """What of one layer's collective lengthens a pass that starts it one layer ahead.

        t = max(T - W, 0) + slowdown(min(T, W))

    Args:
        seconds: T, of the collective, shape (N,).
        window: W, seconds of the layer that runs meanwhile, shape (N,).
        slow: share by which that layer is slowed.
        hidden: where it is started ahead; elsewhere all of it is exposed, shape (N,).

    Returns:
        Seconds, shape (N,).

    Source:
        [Zhao23], section 3.3.

    >>> float(prefetched(0.5, 0.4, slow=0.0, hidden=np.array(True)).round(9))
    0.1
    """
    left = np.maximum(seconds - window, 0.0) + slowdown(np.minimum(seconds, window), slow)
    return np.where(hidden, left, seconds)


def ring_attention_exposed(*, ranks: Number, send: Number, attention: Number, floor: Number) -> Floats:
    """What a ring of keys and values adds to the attention that it runs alongside.

        t = max((r - 1) T - A (r - 1) / r, f (r - 1) T)

    Each of the r - 1 sends hides behind one of the r steps of attention.

    Args:
        ranks: r, ranks of the ring, shape (N,).
        send: T, seconds of one send, shape (N,).
        attention: A, seconds of all steps of the pass, shape (N,).
        floor: f, share of the sends that is exposed in any case.

    Returns:
        Seconds, shape (N,).

    Source:
        [Liu23], section 3.

    >>> float(ring_attention_exposed(ranks=4, send=0.2, attention=0.4, floor=0.0).round(9))
    0.3
    """
    hops = ranks - 1
    return np.maximum(hops * send - attention * hops / ranks, floor * hops * send)


def pipelined_exposed(moving: Number, product: Number, ranks: Number) -> Floats:
    """What is left of a collective that travels in pieces while a product is multiplied in pieces.

        t = max(T - P (r - 1) / r, 0)

    Args:
        moving: T, seconds of the collective, shape (N,).
        product: P, seconds of the product, shape (N,).
        ranks: r, pieces of the product; the first one meets nothing that travels, shape (N,).

    Returns:
        Seconds, shape (N,).

    Source:
        ``CommOverlapP2PBase::split_overlap_ag`` of comm_gemm_overlap.cpp [TE].

    >>> float(pipelined_exposed(1.0, 0.8, 4.0).round(9))
    0.4
    """
    return np.maximum(moving - product * (ranks - 1.0) / ranks, 0.0)


def shared_units(moving: Number, product: Number, taken: float) -> Floats:
    """What a collective adds to a product that runs at the same time by taking some of the device's compute units.

        t = max(T - P', 0) + a min(T, P')  with  P' = P / (1 - a)

    Args:
        moving: T, seconds of the collective, shape (N,).
        product: P, seconds of the product on all units, shape (N,).
        taken: a, share of the units that the collective takes, below 1.

    Returns:
        Seconds, shape (N,).

    Source:
        ``CommOverlapBase::bulk_overlap`` of comm_gemm_overlap.cpp [TE].

    >>> float(shared_units(0.5, 1.0, 0.2))  # a fifth of the units for half a second
    0.1
    """
    longer = product / (1.0 - taken)
    return np.maximum(moving - longer, 0.0) + np.minimum(moving, longer) * taken
