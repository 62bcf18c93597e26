"""The experts' traffic of a pass, overlapped with the computation of another micro-batch.

Megatron-Core runs the forward pass of one micro-batch alongside the backward pass of another, layer by layer, on one
stream that computes and one that communicates (``model_chunk_schedule_plan.py``): what comes before dispatch
(attention, norms, router) with the other's combine, experts backward with dispatch, experts forward with the other's
dispatch, and attention backward with combine. Each stream waits for the other's part before the next.
Schedules of both directions pair whole passes instead [DeepSeek24].
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from costmodels.layer.forward_backward import Passes
from costmodels.layer.terms import LayerTerms
from costmodels.names import SCHEDULE_NAMES
from costmodels.pipeline.limits import no_pairs
from costmodels.pipeline.schedules import SCHEDULES
from costmodels.primitives.overlap import slowdown
from costmodels.stack.stack import Stack
from costmodels.strategy import Floats, Strategies

PAIRING = tuple(name for name, schedule in SCHEDULES.items() if schedule.pairs is not no_pairs)
"""Schedules that run a forward alongside a backward pass of the other direction."""

PAIR_AXES = ("pp", "vpp", "num_microbatches")
"""What decides how many micro-batches of an iteration have no partner."""


def is_overlapped(stack: Stack) -> bool:
    """Whether forward and backward passes of neighbouring micro-batches run alongside each other [MegatronMoE26]."""
    return 0.0 < stack.overlap.ep < 1.0 and not stack.overlap.paired_passes


def further_axes(stack: Stack) -> tuple[str, ...]:
    """Axes that the price of a layer depends on in addition to those of a block."""
    return PAIR_AXES if is_overlapped(stack) else ()


def exposed_seconds(traffic: Passes, *, layer: Passes, experts: Passes, stack: Stack) -> tuple[Passes, Passes]:
    """Seconds of dispatch and combine that lengthen a layer with a partner; and those of computation that hide them.

    Each of the four exchanges outlasts the part that it overlaps, or takes ``overlap.ep`` of the units from it for
    as long as both run. The sum over both passes is what counts; each pass is given its own exchanges' part. What hides
    them is given by the pass that computes: the other one's exchanges run alongside it.

    Args:
        traffic: dispatch and combine, halves of each pass.
        layer: everything else of the layer, the experts included, that hides no traffic of its own.
        experts: what lies between dispatch and combine.
        stack: its ``overlap.ep`` is the share of the units that dispatch and combine take.
    """
    around, freed = layer - experts, 1.0 - stack.overlap.ep
    hiding = Passes(
        _hidden(traffic.backward, around.forward, experts.forward),
        _hidden(traffic.forward, around.backward, experts.backward),
    )
    return traffic - freed * Passes(hiding.backward, hiding.forward), hiding


def _hidden(traffic: Floats, around: Floats, experts: Floats) -> Floats:
    """Seconds for which the two exchanges of one pass run alongside the parts of the other."""
    return np.minimum(traffic / 2.0, around) + np.minimum(traffic / 2.0, experts)


def paired_terms(
    terms: tuple[LayerTerms, ...], strategies: Strategies, stack: Stack
) -> tuple[tuple[LayerTerms, ...], list[Floats]]:
    """Layers of each kind without the experts' traffic that another pass hides; and that traffic.

    Negative where a stack overlaps micro-batches: the traffic of those that have no partner comes back.
    """
    found = [_paired(layer, strategies, stack) for layer in terms]
    less = (
        replace(layer, layer=layer.layer - saved, layer_ep=layer.layer_ep - saved, paired=paired)
        for layer, (saved, paired) in zip(terms, found, strict=True)
    )
    return tuple(less), [saved for saved, _ in found]


def _paired(layer: LayerTerms, strategies: Strategies, stack: Stack) -> tuple[Floats, Passes]:
    """Traffic of a layer's experts that another pass hides, and the computation that hides nothing else then."""
    if is_overlapped(stack):
        alone = unpaired_share(strategies)
        return -alone * layer.layer_alone, (1.0 - alone) * layer.paired
    window = layer.window.total
    hidden = hidden_experts(strategies, stack, traffic=layer.layer_ep, window=window)
    share = np.divide(hidden, window, out=np.zeros_like(window), where=window > 0.0)
    return hidden - slowdown(hidden, stack.overlap.compute_slowdown), share * layer.window


def hidden_experts(strategies: Strategies, stack: Stack, *, traffic: Floats, window: Floats) -> Floats:
    """Seconds of one layer's dispatch and combine that overlap another pass, averaged over micro-batches, (N,).

    Where a forward runs alongside a backward pass, the traffic of both hides behind the computation of both, up to its
    length and at the price of ``overlap_slowdown``; the passes that fill and drain the pipeline have no partner
    [DeepSeek24]. What a recomputed layer exchanges again is not hidden.
    """
    share = np.zeros(len(strategies))
    for name in PAIRING if stack.overlap.paired_passes else ():
        mine = strategies.schedule == SCHEDULE_NAMES.index(name)
        pairs = SCHEDULES[name].pairs(strategies.pp, strategies.num_microbatches, strategies.vpp)
        share = np.where(mine, pairs / strategies.num_microbatches, share)
    return share * np.minimum(traffic, window)


def unpaired_share(strategies: Strategies) -> Floats:
    """Share of an iteration's micro-batches that have no partner to overlap with, shape (N,).

    The first forward and the last backward pass have none, nor have the passes that fill and drain the pipeline:
    (1 + (p - 1) / v) of the m + (p - 1) / v micro-batches that an iteration lasts.
    """
    filling = (strategies.pp - 1.0) / strategies.vpp
    return (1.0 + filling) / (strategies.num_microbatches + filling)
