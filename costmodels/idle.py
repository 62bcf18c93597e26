"""What a pipeline waits for, as shares of its seconds: its other stages, and the slowest of all nodes."""

from __future__ import annotations

import numpy as np

from costmodels.schedules import FILLING, SCHEDULES
from costmodels.stack import Stack
from costmodels.strategy import SCHEDULE_NAMES, Floats, Strategies


def straggler_share(stack: Stack, nodes: float) -> float:
    """Share by which the slowest of that many nodes stretches the pipeline: the mean of a normal maximum."""
    return float(stack.straggler * np.sqrt(2.0 * np.log(max(nodes, 1.0))))


def bubble_share(rows: Strategies, stack: Stack, *, forward: Floats, total: Floats, weight: Floats) -> Floats:
    """Share of the other stages' seconds per micro-batch that the slowest stage idles once an iteration, (N,).

    ``forward``, ``total`` and ``weight`` are seconds of one layer: its forward pass, everything, its weight
    gradients. For the schedules that do not tell weight gradients apart the share is 1 / v.
    """
    share = 1.0 / rows.vpp
    for code, name in enumerate(SCHEDULE_NAMES):
        mine = (rows.schedule == code) & (rows.pp > 1)
        if name in FILLING and mine.any():
            entry = SCHEDULES[name]
            drain = entry.drain if stack.post_validation else entry.drain_at_barrier
            p = np.maximum(rows.pp, 2)
            idle = drain(p, rows.num_microbatches, rows.vpp, forward, total - forward - weight, weight)
            share = np.where(mine, idle / ((p - 1) * total), share)
    return share
