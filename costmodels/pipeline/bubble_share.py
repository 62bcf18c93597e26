"""What a pipeline waits for, as shares of its seconds: its other stages, and the slowest of all nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from costmodels.names import SCHEDULE_NAMES, Recompute
from costmodels.pipeline.schedules import SCHEDULES
from costmodels.stack.stack import Stack
from costmodels.strategy import Floats, Strategies


def straggler_share(spread: float, nodes: float) -> float:
    """Share by which the slowest of many nodes stretches the pipeline: the mean of the largest of n normal draws.

        sigma sqrt(2 ln n)

    Args:
        spread: sigma, standard deviation of a node's time over its mean.
        nodes: n.

    Returns:
        Share of the mean time.

    Source:
        E. Gumbel, "Statistics of Extremes", 1958; for large n.

    >>> round(straggler_share(0.01, 128.0), 4)
    0.0312
    """
    return float(spread * np.sqrt(2.0 * np.log(max(nodes, 1.0))))


def bubble_share(
    strategies: Strategies, stack: Stack, *, forward: Floats, layer: Floats, recompute: Floats, weight: Floats
) -> Floats:
    """Share of the other stages' seconds per micro-batch that the slowest stage idles once an iteration, (N,).

    ``forward``, ``layer``, ``recompute`` and ``weight`` are seconds of one layer: its forward pass, both passes, its
    second forward pass, its weight gradients. For the schedules that do not tell weight gradients apart the share is
    1 / v; of the others, where some layers are recomputed, it is the most that any number of them leaves idle: the
    longest path is a sum of passes, whose share of a layer rises or falls with what is recomputed throughout.
    """
    share = 1.0 / strategies.vpp
    for code in strategies.schedules():
        schedule = SCHEDULES[SCHEDULE_NAMES[code]]
        if not schedule.splits_backward:
            continue
        mine = (strategies.schedule == code) & (strategies.pp > 1)
        if mine.any():
            drain = partial(schedule.drain, barrier=not stack.pipeline.post_validation)
            none, every = (_idle(strategies, drain, forward, total, weight) for total in (layer, layer + recompute))
            some = np.where(strategies.recompute == Recompute.PARTIAL, np.maximum(none, every), none)
            share = np.where(mine, np.where(strategies.recompute == Recompute.FULL, every, some), share)
    return share


def _idle(
    strategies: Strategies, drain: Callable[..., Floats], forward: Floats, total: Floats, weight: Floats
) -> Floats:
    """The share of a schedule that fills its bubble, of layers that take ``total`` seconds, (N,)."""
    p = np.maximum(strategies.pp, 2)
    return drain(p, strategies.num_microbatches, strategies.vpp, forward, total - forward - weight, weight) / (
        (p - 1) * total
    )
