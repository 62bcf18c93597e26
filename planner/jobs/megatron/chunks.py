"""Layers of every chunk of a pipeline, in the order in which a micro-batch passes them."""

from __future__ import annotations

from collections.abc import Sequence

from costmodels.layout.split import ends_of_cut, odd_stage
from planner.answer.plan import Strategy
from planner.jobs.job import Inexpressible


def chunk_layers(strategy: Strategy, *, folded: bool = False) -> list[int]:
    """Layers of chunk after chunk; looped pipelines pass all stages once a round, folded ones come back.

    Raises:
        Inexpressible: a stage's layers are no multiple of its chunks.
    """
    held = [stage.layers for stage in strategy.stages]
    if folded:
        each = [n // 2 for n in held]
        return [*(n - low for n, low in zip(held, each, strict=True)), *reversed(each)]
    try:
        return looped_chunks(held, strategy.vpp)
    except ValueError as reason:
        raise Inexpressible(f"no chunks are alike: {reason}") from None


def looped_chunks(held: Sequence[int], vpp: int) -> list[int]:
    """Layers of chunk after chunk; embedding and head may take the place of a layer in the first and the last.

    Raises:
        ValueError: a stage's layers make no equal chunks.
    """
    ends = ends_of_cut(held, vpp, counted=True)
    if ends is None:
        raise ValueError(f"{held[odd_stage(held, vpp)]} layers split over {vpp} chunks")
    embedding, head = ends
    places = [held[0] + embedding, *held[1:]]
    places[-1] += head
    chunks = [n // vpp for n in places] * vpp
    chunks[0] -= embedding
    chunks[-1] -= head
    return chunks
