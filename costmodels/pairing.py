"""The experts' traffic of a pass beside the computation of another micro-batch's.

[DeepSeek24]: DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 3.2.1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from costmodels.beside import overlaps
from costmodels.by_kind import LayerTerms
from costmodels.schedule_limits import no_pairs
from costmodels.schedules import SCHEDULES
from costmodels.sharded import slowdown
from costmodels.stack import Stack
from costmodels.strategy import SCHEDULE_NAMES, Floats, Strategies

PAIRING = tuple(name for name, schedule in SCHEDULES.items() if schedule.pairs is not no_pairs)
"""Schedules that run a forward beside a backward pass of the other direction."""

PAIR_AXES = ("pp", "vpp", "num_microbatches")
"""What decides how many micro-batches of an iteration have no partner."""


def further_axes(stack: Stack) -> tuple[str, ...]:
    """Axes that the price of a layer depends on beside those of a block."""
    return PAIR_AXES if overlaps(stack) else ()


def paired_terms(
    terms: tuple[LayerTerms, ...], rows: Strategies, stack: Stack
) -> tuple[tuple[LayerTerms, ...], list[Floats]]:
    """Layers of each kind without the experts' traffic that another pass hides; and that traffic.

    Negative where a stack overlaps micro-batches: the traffic of those that have no partner comes back.
    """
    hidden = [_hidden(one, rows, stack) for one in terms]
    pairs = zip(terms, hidden, strict=True)
    less = (replace(one, layer=one.layer - saved, layer_ep=one.layer_ep - saved) for one, saved in pairs)
    return tuple(less), hidden


def _hidden(layer: LayerTerms, rows: Strategies, stack: Stack) -> Floats:
    if overlaps(stack):
        return -alone_share(rows) * layer.layer_alone
    return hidden_experts(rows, stack, traffic=layer.layer_ep, window=layer.forward + layer.backward)


def hidden_experts(rows: Strategies, stack: Stack, *, traffic: Floats, window: Floats) -> Floats:
    """Seconds of one layer's dispatch and combine that lengthen nothing, on average over the micro-batches, (N,).

    Where a forward runs beside a backward pass, the traffic of both hides behind the computation of both, up to its
    length and at the price of ``overlap_slowdown``; the passes that fill and drain the pipeline have no partner
    [DeepSeek24]. What a recomputed layer exchanges again is not hidden.
    """
    share = np.zeros(len(rows))
    for name in PAIRING if stack.overlap.pairs else ():
        mine = rows.schedule == SCHEDULE_NAMES.index(name)
        pairs = SCHEDULES[name].pairs(rows.pp, rows.num_microbatches, rows.vpp)
        share = np.where(mine, pairs / rows.num_microbatches, share)
    behind = np.minimum(traffic, window)
    return share * (behind - slowdown(behind, stack))


def alone_share(rows: Strategies) -> Floats:
    """Share of an iteration's micro-batches that have no partner beside them, shape (N,).

    The first forward and the last backward pass have none, nor have the passes that fill and drain the pipeline:
    (1 + (p - 1) / v) of the m + (p - 1) / v micro-batches that an iteration lasts.
    """
    filling = (rows.pp - 1.0) / rows.vpp
    return (1.0 + filling) / (rows.num_microbatches + filling)
