"""The experts' traffic of a pass beside the computation of another micro-batch's.

[DeepSeek24]: DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 3.2.1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from costmodels.layer.forward_backward import Passes
from costmodels.layer.overlapped_experts import is_overlapped
from costmodels.layer.terms import LayerTerms
from costmodels.names import SCHEDULE_NAMES
from costmodels.pipeline.limits import no_pairs
from costmodels.pipeline.schedules import SCHEDULES
from costmodels.primitives.overlap import slowdown
from costmodels.stack.stack import Stack
from costmodels.strategy import Floats, Strategies

PAIRING = tuple(name for name, schedule in SCHEDULES.items() if schedule.pairs is not no_pairs)
"""Schedules that run a forward beside a backward pass of the other direction."""

PAIR_AXES = ("pp", "vpp", "num_microbatches")
"""What decides how many micro-batches of an iteration have no partner."""


def further_axes(stack: Stack) -> tuple[str, ...]:
    """Axes that the price of a layer depends on beside those of a block."""
    return PAIR_AXES if is_overlapped(stack) else ()


def paired_terms(
    terms: tuple[LayerTerms, ...], rows: Strategies, stack: Stack
) -> tuple[tuple[LayerTerms, ...], list[Floats]]:
    """Layers of each kind without the experts' traffic that another pass hides; and that traffic.

    Negative where a stack overlaps micro-batches: the traffic of those that have no partner comes back.
    """
    found = [_beside(one, rows, stack) for one in terms]
    each = zip(terms, found, strict=True)
    less = (_less(one, saved, beside) for one, (saved, beside) in each)
    return tuple(less), [saved for saved, _ in found]


def _less(layer: LayerTerms, saved: Floats, beside: Passes) -> LayerTerms:
    traffic = {"layer": layer.layer - saved, "layer_ep": layer.layer_ep - saved}
    return replace(layer, **traffic, paired_forward=beside.forward, paired_backward=beside.backward)


def _beside(layer: LayerTerms, rows: Strategies, stack: Stack) -> tuple[Floats, Passes]:
    """What the experts' traffic of a layer is less for another pass, and what runs beside that: nothing else hides."""
    if is_overlapped(stack):
        alone = alone_share(rows)
        return -alone * layer.layer_alone, Passes(
            (1.0 - alone) * layer.paired_forward, (1.0 - alone) * layer.paired_backward
        )
    window = layer.forward_window + layer.backward_window
    hidden = hidden_experts(rows, stack, traffic=layer.layer_ep, window=window)
    share = np.divide(hidden, window, out=np.zeros_like(window), where=window > 0.0)
    left = Passes(share * layer.forward_window, share * layer.backward_window)
    return hidden - slowdown(hidden, stack.overlap.compute_slowdown), left


def hidden_experts(rows: Strategies, stack: Stack, *, traffic: Floats, window: Floats) -> Floats:
    """Seconds of one layer's dispatch and combine beside another pass, on average over the micro-batches, (N,).

    Where a forward runs beside a backward pass, the traffic of both hides behind the computation of both, up to its
    length and at the price of ``overlap_slowdown``; the passes that fill and drain the pipeline have no partner
    [DeepSeek24]. What a recomputed layer exchanges again is not hidden.
    """
    share = np.zeros(len(rows))
    for name in PAIRING if stack.overlap.paired_passes else ():
        mine = rows.schedule == SCHEDULE_NAMES.index(name)
        pairs = SCHEDULES[name].pairs(rows.pp, rows.num_microbatches, rows.vpp)
        share = np.where(mine, pairs / rows.num_microbatches, share)
    return share * np.minimum(traffic, window)


def alone_share(rows: Strategies) -> Floats:
    """Share of an iteration's micro-batches that have no partner beside them, shape (N,).

    The first forward and the last backward pass have none, nor have the passes that fill and drain the pipeline:
    (1 + (p - 1) / v) of the m + (p - 1) / v micro-batches that an iteration lasts.
    """
    filling = (rows.pp - 1.0) / rows.vpp
    return (1.0 + filling) / (rows.num_microbatches + filling)
