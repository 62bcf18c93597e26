"""Which pieces of the model a stage holds: where its two ends sit, and how many copies of it there are.

Looped schedules have the embedding on the first stage and the head on the last. Folded ones, a V of two chunks, have
both on the first. DualPipe sends micro-batches from both ends: stage s holds pieces s and p - 1 - s, the outer stages
both ends of the model, and half of the micro-batches pass each piece. ``copies`` is 2 there and 1 elsewhere; what a
stage holds is ``copies`` times what one micro-batch passes on it, on average. And how many micro-batches it holds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from costmodels.names import SCHEDULE_NAMES
from costmodels.pipeline.schedules import SCHEDULES
from costmodels.pipeline.slots import folded as _folded_paths
from costmodels.strategy import Bools, Floats, Ints, Strategies

_COPIES = np.array([SCHEDULES[name].parameters_held for name in SCHEDULE_NAMES])
_FOLDED = np.array([SCHEDULES[name].paths is _folded_paths for name in SCHEDULE_NAMES])


def copies(strategies: Strategies) -> Floats:
    """Times that the stages together hold every parameter, shape (N,)."""
    return strategies.once("copies", lambda: _COPIES[strategies.schedule])


def folded(strategies: Strategies) -> Bools:
    """Whether the last piece of the model sits on the first stage, with the first one, shape (N,)."""
    return strategies.once("folded", lambda: _FOLDED[strategies.schedule])


def joined(strategies: Strategies) -> Bools:
    """Whether the same stage holds both ends of the model, shape (N,)."""
    return (strategies.pp == 1) | folded(strategies) | (copies(strategies) > 1)


def ends(strategies: Strategies, stage: NDArray[np.int64]) -> tuple[Bools, Bools]:
    """Whether a stage holds the embedding, and whether it holds the head; ``stage`` is (N,) or (N, P)."""
    pp, twice, fold = (
        x[:, None] if stage.ndim > 1 else x for x in (strategies.pp, copies(strategies) > 1, folded(strategies))
    )
    outer, last = stage == 0, stage == pp - 1
    return outer | (twice & last), np.where(fold, outer, last | (twice & outer))


def end_sends(strategies: Strategies) -> Floats:
    """What the first and the last stage of a pipeline send and receive over what a middle one does, shape (N,).

    Of the 4 v messages that a micro-batch has to and from a stage of v chunks, forward and backward, the outer two
    stages lack the two beyond the ends of the model. In a V the stages at its ends and at its turn have one
    neighbour; so have the outer stages of DualPipe in each direction.
    """
    return strategies.once("end sends", lambda: 1.0 - 0.5 / np.where(folded(strategies), 1, strategies.vpp))


def of_both_ways(pieces: Ints, held: float) -> Floats:
    """Layers that one micro-batch passes on every stage, on average, from those of every piece, shape (pp,)."""
    return (pieces + pieces[::-1]) / 2.0 if held > 1.0 else pieces.astype(np.float64)


def by_chunk(strategies: Strategies) -> Bools:
    """Whether a chunk sees all its micro-batches before the next one starts, shape (N,) [LamyPoirier22]."""
    return strategies.schedule == SCHEDULE_NAMES.index("breadth-first")


def in_flight_at(strategies: Strategies, place: Callable[[Ints], Ints]) -> Floats:
    """``in_flight`` of the stage that ``place`` names of so many, once for all of one schedule, (N,)."""

    def gather() -> Floats:
        few, inverse = strategies.distinct("schedule", "pp", "vpp", "num_microbatches")
        return in_flight(few, place(few.pp))[inverse]

    return strategies.once(("in flight", place), gather)


def stages_in_flight(strategies: Strategies, width: int) -> Floats:
    """``in_flight`` of every stage, (N, width), once for all of one schedule; behind the last stage of no meaning."""
    few, inverse = strategies.distinct("schedule", "pp", "vpp", "num_microbatches")
    return in_flight(few, np.tile(np.arange(width), (len(few), 1)))[inverse]


def in_flight(strategies: Strategies, stage: Ints) -> Floats:
    """Micro-batches whose activations a ``stage`` holds at the worst moment, in whole stages, (N,) or (N, D) as it."""
    held = np.ones(stage.shape)
    for code in strategies.schedules():
        mine = np.flatnonzero(strategies.schedule == code)
        shape = (strategies.pp[mine], strategies.num_microbatches[mine], strategies.vpp[mine])
        held[mine] = SCHEDULES[SCHEDULE_NAMES[code]].in_flight(*shape, stage[mine].T).T
    return held


def mtp_in_flight(strategies: Strategies) -> Floats:
    """Micro-batches whose activations the layers that predict further tokens hold, shape (N,).

    They stand behind the last chunk, which passes a micro-batch back as soon as it came; under GPipe and breadth first
    all come first.
    """
    everything = (strategies.schedule == SCHEDULE_NAMES.index("gpipe")) | by_chunk(strategies)
    return np.where(everything, strategies.num_microbatches, 1).astype(np.float64)


def queued(strategies: Strategies, waits: float) -> Floats:
    """Micro-batches that stages hold beyond the schedule's where they share the vocabulary, (N,): one a wait."""
    return np.asarray(waits * strategies.vocabulary, dtype=np.float64)
