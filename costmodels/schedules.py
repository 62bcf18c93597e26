"""Pipeline schedules: the order in which a stage runs its passes, and what that order costs.

One entry of ``SCHEDULES`` is all that exists of a schedule: its passes in order (simulation and traces read
them), its idle time, its activations in flight, and where it can be used. The closed forms take arrays.

Symbols, as in the papers: ``p`` pipeline stages, ``m`` micro-batches per iteration, ``v`` model chunks per
stage (virtual pipeline stages, 1 where layers are not interleaved), ``stage`` counted from 0 at the input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.errors import MeshwrightError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class BadSchedule(MeshwrightError, ValueError):
    """A schedule asked to run with stages, micro-batches and chunks that it cannot run with."""


class Slot(NamedTuple):
    """One pass of one stage: ``F`` forward or ``B`` backward of one micro-batch through one model chunk."""

    kind: Literal["F", "B"]
    micro_batch: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A pipeline schedule.

    Attributes:
        name: as in ``SCHEDULES``.
        order: ``(p, m, v, stage)`` to the passes of that stage, in the order in which they run.
        bubble_passes: ``(p, v)`` to the idle time of a stage per iteration, in units of one stage's forward
            and backward time per micro-batch, for equal stages.
        in_flight: ``(p, m, v, stage)`` to the largest number of activations held at once, in units of one
            micro-batch through the whole stage (chunks held, divided by ``v``).
        allowed: ``(p, m, v)`` to whether the schedule can run so.
        requires: what ``allowed`` asks for, in words, as the end of a sentence.
        source: the publication that describes it.
    """

    name: str
    order: Callable[[int, int, int, int], list[Slot]]
    bubble_passes: Callable[[ArrayLike, ArrayLike], Floats]
    in_flight: Callable[[ArrayLike, ArrayLike, ArrayLike, ArrayLike], Floats]
    allowed: Callable[[ArrayLike, ArrayLike, ArrayLike], Bools]
    requires: str
    source: str

    def passes(self, *, p: int, m: int, v: int) -> list[list[Slot]]:
        """The passes of every stage, in order.

        Raises:
            BadSchedule: if the schedule cannot run so.
        """
        if not self.allowed(p, m, v):
            raise BadSchedule(
                f"schedule {self.name} cannot run {p} stages, {m} micro-batches and {v} chunks per stage: "
                f"it needs {self.requires}"
            )
        return [self.order(p, m, v, stage) for stage in range(p)]


def pipeline_seconds(*, micro_batches: ArrayLike, slowest: ArrayLike, total: ArrayLike, vpp: ArrayLike) -> Floats:
    """Seconds of one iteration's pipeline: ``m * slowest + (total - slowest) / v``.

    The slowest stage works through all its micro-batches and waits, once, for the first chunk of every other
    stage to fill and drain. With equal stages this is the ``(m + (p - 1) / v) * t`` of Narayanan et al.
    (2021).

    Exact for equal stages with equal chunks when sending takes no time: the event simulation agrees to
    rounding. For unequal stages it is an estimate. Against the simulation, which is never less than
    ``m * slowest``, over 70,000 random pipelines of 2 to 8 stages:

    * Every stage with the same ratio of forward to backward time, and equal chunks: an upper bound. Exact for
      ``gpipe``; ``1f1b`` finishes up to 22 % earlier (median 1 %), the interleaved schedule up to 10 % (1 %).
    * Stages of whole layers, some recomputed, with an embedding and a head: never exceeded by ``1f1b``.
      ``gpipe`` takes up to 8 % longer, since its forward and its backward half are each held up by a
      slowest stage of their own. Interleaved, a head or an odd layer makes chunks unequal, every stage waits
      for the slowest at each chunk in turn, and the iteration takes up to 19 % longer (median 0.5 %, 95th
      percentile 5 %; without embedding and head 8 % and 1 %).
    * Forward to backward ratios that no transformer has (1:19 to 19:1 side by side) break it by more: 13 %
      for ``1f1b``, 40 % and more for the others. Simulate such pipelines.

    Args:
        micro_batches: m, per data-parallel rank and iteration.
        slowest: largest, over the stages, of the forward and backward seconds of one micro-batch through all
            chunks of the stage.
        total: the same seconds, summed over the stages.
        vpp: v, model chunks per stage.

    Source:
        D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
        Megatron-LM", SC 2021, section 2.2.
    """
    m, longest, v = (np.asarray(x, dtype=np.float64) for x in (micro_batches, slowest, vpp))
    seconds: Floats = m * longest + (np.asarray(total, dtype=np.float64) - longest) / v
    return seconds


def _forwards_then_backwards(_p: int, m: int, _v: int, _stage: int) -> list[Slot]:
    return [Slot("F", i, 0) for i in range(m)] + [Slot("B", i, 0) for i in range(m)]


def _one_forward_one_backward(p: int, m: int, _v: int, stage: int) -> list[Slot]:
    forward = [Slot("F", i, 0) for i in range(m)]
    backward = [Slot("B", i, 0) for i in range(m)]
    return _alternate(forward, backward, warmup=p - stage - 1)


def _interleaved(p: int, m: int, v: int, stage: int) -> list[Slot]:
    """Groups of p micro-batches go through every chunk in turn before the next group starts."""
    turns = [(start + i, chunk) for start in range(0, m, p) for chunk in range(v) for i in range(p)]
    forward = [Slot("F", micro_batch, chunk) for micro_batch, chunk in turns]
    backward = [Slot("B", micro_batch, v - 1 - chunk) for micro_batch, chunk in turns]
    return _alternate(forward, backward, warmup=(p - stage - 1) * 2 + (v - 1) * p)


def _alternate(forward: list[Slot], backward: list[Slot], *, warmup: int) -> list[Slot]:
    """``warmup`` forward passes, then forward and backward in turns, then the backward passes left over."""
    warmup = min(warmup, len(forward))
    steady = [slot for pair in zip(forward[warmup:], backward, strict=False) for slot in pair]
    return forward[:warmup] + steady + backward[len(forward) - warmup :]


def _fill_and_drain(p: ArrayLike, v: ArrayLike) -> Floats:
    return np.asarray((np.asarray(p, dtype=np.float64) - 1) / np.asarray(v))


def _all_in_flight(p: ArrayLike, m: ArrayLike, v: ArrayLike, stage: ArrayLike) -> Floats:
    return _spread(np.asarray(m), p, v, stage)


def _warmup_in_flight(p: ArrayLike, m: ArrayLike, v: ArrayLike, stage: ArrayLike) -> Floats:
    return _spread(np.minimum(m, np.asarray(p) - np.asarray(stage)), v)


def _chunks_in_flight(p: ArrayLike, m: ArrayLike, v: ArrayLike, stage: ArrayLike) -> Floats:
    p, m, v, stage = (np.asarray(x) for x in (p, m, v, stage))
    return np.asarray(np.minimum(m * v, (p - stage - 1) * 2 + (v - 1) * p + 1) / v, dtype=np.float64)


def _spread(held: NDArray[np.int64], *others: ArrayLike) -> Floats:
    """``held`` in the common shape of all arguments: a closed form answers for every row it was asked."""
    return np.broadcast_to(held, np.broadcast_shapes(*map(np.shape, (held, *others)))).astype(np.float64)


def _single(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    return np.asarray((np.asarray(p) == 1) & _plain(p, m, v))


def _plain(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    return np.asarray((np.asarray(p) >= 1) & (np.asarray(m) >= 1) & (np.asarray(v) == 1))


def _whole_groups(p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
    p, m, v = (np.asarray(x) for x in (p, m, v))
    return np.asarray((p >= 2) & (m >= 1) & (v >= 2) & (m % np.maximum(p, 1) == 0))


SCHEDULES: dict[str, Schedule] = {
    "none": Schedule(
        name="none",
        order=_one_forward_one_backward,
        bubble_passes=_fill_and_drain,
        in_flight=_warmup_in_flight,
        allowed=_single,
        requires="one stage and one chunk",
        source="gradient accumulation without a pipeline",
    ),
    "gpipe": Schedule(
        name="gpipe",
        order=_forwards_then_backwards,
        bubble_passes=_fill_and_drain,
        in_flight=_all_in_flight,
        allowed=_plain,
        requires="at least one stage, at least one micro-batch and one chunk per stage",
        source="Y. Huang et al., GPipe, NeurIPS 2019",
    ),
    "1f1b": Schedule(
        name="1f1b",
        order=_one_forward_one_backward,
        bubble_passes=_fill_and_drain,
        in_flight=_warmup_in_flight,
        allowed=_plain,
        requires="at least one stage, at least one micro-batch and one chunk per stage",
        source="D. Narayanan et al., PipeDream-2BW, ICML 2021; Megatron-LM",
    ),
    "interleaved-1f1b": Schedule(
        name="interleaved-1f1b",
        order=_interleaved,
        bubble_passes=_fill_and_drain,
        in_flight=_chunks_in_flight,
        allowed=_whole_groups,
        requires="two stages or more, two chunks per stage or more, and a multiple of p micro-batches",
        source="D. Narayanan et al., SC 2021, section 2.2.2; Megatron-LM",
    ),
}
"""Every pipeline schedule by its name."""
