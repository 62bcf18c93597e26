"""The alphabet of pipeline schedules: passes of a stage, and the ways of a micro-batch through the stages."""

from __future__ import annotations

from typing import Literal, NamedTuple

Path = tuple[tuple[int, int], ...]
"""The (stage, chunk) pairs that a micro-batch goes through, in forward order."""


class Slot(NamedTuple):
    """One pass of one stage for one micro-batch and model chunk.

    ``F`` is the forward pass, ``B`` the backward pass and ``W`` the gradient of the weights. Where a schedule
    has ``W`` passes, its ``B`` is the gradient of the input alone; elsewhere ``B`` is both.
    """

    kind: Literal["F", "B", "W"]
    micro_batch: int
    chunk: int


def looped(p: int, v: int) -> tuple[Path, ...]:
    """Through all stages, then again for the next chunk: chunk c of stage s is the (c p + s)-th piece."""
    return (tuple((stage, chunk) for chunk in range(v) for stage in range(p)),)


def folded(p: int, _v: int) -> tuple[Path, ...]:
    """Down the stages through chunk 0 and back up through chunk 1, a V: stage 0 has both ends of the model."""
    down = tuple((stage, 0) for stage in range(p))
    return (down + tuple((stage, 1) for stage in reversed(range(p))),)


def both_ways(p: int, _v: int) -> tuple[Path, ...]:
    """Even micro-batches from stage 0 down, odd ones from the last stage up; each stage holds two pieces."""
    down = tuple((stage, 0) for stage in range(p))
    return (down, down[::-1])


def alternate(forward: list[Slot], backward: list[Slot], *, warmup: int) -> list[Slot]:
    """``warmup`` forward passes, then forward and backward in turns, then the backward passes left over."""
    warmup = min(warmup, len(forward))
    steady = [slot for pair in zip(forward[warmup:], backward, strict=False) for slot in pair]
    return forward[:warmup] + steady + backward[len(forward) - warmup :]
