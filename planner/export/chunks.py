"""Layers of every chunk of a pipeline, in the order in which a micro-batch passes them."""

from __future__ import annotations

from planner.document import Strategy
from planner.export.job import Inexpressible


def chunk_layers(strategy: Strategy, *, folded: bool = False) -> list[int]:
    """Layers of chunk after chunk; looped pipelines pass all stages once a round, folded ones come back.

    Raises:
        Inexpressible: a stage's layers are no multiple of its chunks.
    """
    held = [stage.layers for stage in strategy.stages]
    if folded:
        each = [n // 2 for n in held]
        return [*(n - low for n, low in zip(held, each, strict=True)), *reversed(each)]
    if uneven := [n for n in held if n % strategy.vpp]:
        raise Inexpressible(f"{uneven[0]} layers of a stage do not make {strategy.vpp} equal chunks")
    return [n // strategy.vpp for n in held] * strategy.vpp
