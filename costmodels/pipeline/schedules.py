"""Pipeline schedules: the order in which a stage runs its passes, and what that order costs.

One entry of ``SCHEDULES`` is all that exists of a schedule: its passes in order (simulation and traces read
them), its idle time, its activations in flight, and where it can be used. The closed forms take arrays.

Symbols, as in the papers: ``p`` pipeline stages, ``m`` micro-batches per iteration, ``v`` model chunks per
stage (virtual pipeline stages, 1 where layers are not interleaved), ``stage`` counted from 0 at the input. GPipe is of
[Huang19], 1F1B of [NarayananBW21], its interleaving of [Narayanan21]; each entry names its own source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from costmodels.arrays import Bools, Floats
from costmodels.pipeline import bubbles, interleaving, limits, sends, zero_bubble
from costmodels.pipeline.slots import Path, Slot, alternate, both_ways, folded, looped
from hardware.errors import MeshwrightError

Drain = Callable[[ArrayLike, ArrayLike, ArrayLike, ArrayLike, ArrayLike, ArrayLike], Floats]


class BadSchedule(MeshwrightError, ValueError):
    """A schedule asked to run with stages, micro-batches and chunks that it cannot run with."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A pipeline schedule.

    Attributes:
        name: as in ``SCHEDULES``.
        order: ``(p, m, v, stage)`` to the passes of that stage, in the order in which they run.
        drain: ``(p, m, v, forward, backward, weight)`` to the idle seconds of a stage per iteration, for equal
            stages, where no stage waits for the others before its next iteration; the seconds are those of
            one micro-batch through all chunks of the stage, ``backward`` without the gradient of the weights.
        drain_at_barrier: the same where all stages wait for each other between iterations.
        in_flight: ``(p, m, v, stage)`` to the largest number of activations held at once, in units of one
            micro-batch through the whole stage (chunks held, divided by ``v``). An activation is held until
            its last pass has run: ``W`` where there is one. That ``B`` could free part of it is not counted.
        allowed: ``(p, m, v)`` to whether the schedule can run so.
        requires: what ``allowed`` asks for, in words, as the end of a sentence.
        source: the publication that describes it.
        paths: ``(p, v)`` to the ways through the model; micro-batch i takes the (i mod len)-th of them.
        parameters_held: copies of every parameter that the stages hold together.
        splits_backward: whether the gradient of the weights is a pass of its own.
        pairs: ``(p, m, v)`` to how many forward passes run beside a backward pass of the other direction, so that
            each hides its traffic behind the other's computation, on the stage with the fewest of them; in units of
            one micro-batch through the whole stage.
        waits: ``(p, m, v)`` to how many micro-batches' sends and receives of a stage an iteration waits for.
    """

    name: str
    order: Callable[[int, int, int, int], list[Slot]]
    drain: Drain
    drain_at_barrier: Drain
    in_flight: Callable[[ArrayLike, ArrayLike, ArrayLike, ArrayLike], Floats]
    allowed: Callable[[ArrayLike, ArrayLike, ArrayLike], Bools]
    requires: str
    source: str
    paths: Callable[[int, int], tuple[Path, ...]] = looped
    parameters_held: float = 1.0
    splits_backward: bool = False
    pairs: Callable[[ArrayLike, ArrayLike, ArrayLike], Floats] = limits.no_pairs
    waits: sends.Waits = sends.all_of_them

    def waited(self, p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Floats:
        """Share of a stage's sends and receives that the price of a micro-batch has.

        What ``waits`` counts, over the micro-batches that the price counts: m, and those that fill the idle time.
        """
        third = 1.0 / 3.0
        return self.waits(p, m, v) / (np.asarray(m) + self.drain(p, m, v, third, third, third))

    @property
    def sends_beside(self) -> bool:
        """Whether sends stop no computation and delay their receivers alone."""
        return self.waits is not sends.all_of_them

    def bubble_passes(self, p: ArrayLike, v: ArrayLike) -> Floats:
        """Idle time of a stage per iteration, for equal stages and three passes of the same time.

        In units of one stage's forward and backward time per micro-batch.
        """
        third = 1.0 / 3.0
        return self.drain(p, 2 * np.asarray(p), v, third, third, third)

    def seconds(
        self,
        *,
        p: ArrayLike,
        m: ArrayLike,
        v: ArrayLike,
        forward: ArrayLike,
        backward: ArrayLike,
        weight: ArrayLike,
        total: ArrayLike,
    ) -> Floats:
        """Seconds of one iteration's pipeline: ``m * slowest + drain * (total - slowest) / ((p - 1) slowest)``.

        That is ``pipeline_seconds`` for the schedules without ``W`` passes, and exact for equal stages as far
        as ``drain`` is. Unequal stages of whole layers, with an embedding and a head, take a few percent
        less: of 1,000 random pipelines of 2 to 8 stages the simulation was between 7 % below and 3.5 %
        above (median 2 % below), but for V-Min between 12 % below and 5 % above.

        Args:
            p: stages.
            m: micro-batches.
            v: model chunks per stage.
            forward: seconds of the slowest stage for one micro-batch through all its chunks; of ``dualpipe``,
                whose stages run two pieces of the model in turns, their mean.
            backward: the same, without the gradient of the weights.
            weight: the gradient of the weights.
            total: all three, summed over the stages.
        """
        slowest = np.asarray(forward) + np.asarray(backward) + np.asarray(weight)
        others = (np.asarray(total) - slowest) / (np.maximum(np.asarray(p) - 1, 1) * slowest)
        return np.asarray(m * slowest + self.drain(p, m, v, forward, backward, weight) * others)

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

    >>> float(pipeline_seconds(micro_batches=32, slowest=1.0, total=8.0, vpp=2))  # (32 + 7 / 2) of equal stages
    35.5
    """
    m, longest, v = (np.asarray(x, dtype=np.float64) for x in (micro_batches, slowest, vpp))
    seconds: Floats = m * longest + (np.asarray(total, dtype=np.float64) - longest) / v
    return seconds


def _forwards_then_backwards(_p: int, m: int, _v: int, _stage: int) -> list[Slot]:
    return [Slot("F", i, 0) for i in range(m)] + [Slot("B", i, 0) for i in range(m)]


def _one_forward_one_backward(p: int, m: int, _v: int, stage: int) -> list[Slot]:
    forward = [Slot("F", i, 0) for i in range(m)]
    backward = [Slot("B", i, 0) for i in range(m)]
    return alternate(forward, backward, warmup=p - stage - 1)


SCHEDULES: dict[str, Schedule] = {
    "none": Schedule(
        name="none",
        order=_one_forward_one_backward,
        drain=bubbles.fill_and_drain,
        drain_at_barrier=bubbles.fill_and_drain,
        in_flight=limits.warmup_in_flight,
        allowed=limits.single,
        requires="one stage and one chunk",
        source="gradient accumulation without a pipeline",
    ),
    "gpipe": Schedule(
        name="gpipe",
        order=_forwards_then_backwards,
        drain=bubbles.fill_and_drain,
        drain_at_barrier=bubbles.fill_and_drain,
        in_flight=limits.all_in_flight,
        allowed=limits.plain,
        requires="at least one stage, at least one micro-batch and one chunk per stage",
        source="Y. Huang et al., GPipe, NeurIPS 2019",
    ),
    "1f1b": Schedule(
        name="1f1b",
        order=_one_forward_one_backward,
        drain=bubbles.fill_and_drain,
        drain_at_barrier=bubbles.fill_and_drain,
        in_flight=limits.warmup_in_flight,
        allowed=limits.plain,
        requires="at least one stage, at least one micro-batch and one chunk per stage",
        source="D. Narayanan et al., PipeDream-2BW, ICML 2021; Megatron-LM",
    ),
    "interleaved-1f1b": Schedule(
        name="interleaved-1f1b",
        order=interleaving.depth_first,
        drain=bubbles.fill_and_drain,
        drain_at_barrier=bubbles.fill_and_drain,
        in_flight=limits.chunks_in_flight,
        allowed=limits.whole_groups,
        requires="two stages or more, two chunks per stage or more, and a multiple of p micro-batches",
        source="D. Narayanan et al., SC 2021, section 2.2.2; Megatron-LM",
    ),
    "zb-1p": Schedule(
        name="zb-1p",
        order=zero_bubble.zb_1p,
        drain=bubbles.zb_1p,
        drain_at_barrier=bubbles.zb_1p_at_barrier,
        in_flight=limits.as_the_first,
        allowed=limits.filled_once,
        requires="two stages or more, one chunk per stage and at least p micro-batches",
        source="P. Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241: ZB-H1",
        splits_backward=True,
        waits=sends.zb_1p,
    ),
    "zb-2p": Schedule(
        name="zb-2p",
        order=zero_bubble.zb_2p,
        drain=bubbles.zb_2p,
        drain_at_barrier=bubbles.zb_2p_at_barrier,
        in_flight=limits.twice_the_first,
        allowed=limits.filled_twice,
        requires="two stages or more, one chunk per stage and at least 2 p - 1 micro-batches",
        source="P. Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241: ZB-H2",
        splits_backward=True,
        waits=sends.zb_2p,
    ),
    "zb-v": Schedule(
        name="zb-v",
        order=zero_bubble.zb_v,
        drain=bubbles.zb_v,
        drain_at_barrier=bubbles.zb_v_at_barrier,
        in_flight=limits.as_the_first,
        allowed=limits.folded_twice,
        requires="two stages or more, two chunks per stage and at least 2 p - 1 micro-batches",
        source="P. Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241: ZB-V",
        paths=folded,
        splits_backward=True,
        waits=sends.zb_v,
    ),
    "v-half": Schedule(
        name="v-half",
        order=zero_bubble.v_half,
        drain=bubbles.v_half,
        drain_at_barrier=bubbles.v_half,
        in_flight=limits.half_of_the_first,
        allowed=limits.folded_from_three,
        requires="three stages or more, two chunks per stage and at least p micro-batches",
        source="P. Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362",
        paths=folded,
        splits_backward=True,
        waits=sends.v_half,
    ),
    "v-min": Schedule(
        name="v-min",
        order=zero_bubble.v_min,
        drain=bubbles.v_min,
        drain_at_barrier=bubbles.v_min,
        in_flight=limits.third_of_the_first,
        allowed=limits.folded_from_four,
        requires="four stages or more, two chunks per stage and at least p micro-batches",
        source="P. Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362",
        paths=folded,
        splits_backward=True,
        waits=sends.v_min,
    ),
    "dualpipe": Schedule(
        name="dualpipe",
        order=zero_bubble.dualpipe,
        drain=bubbles.dualpipe,
        drain_at_barrier=bubbles.dualpipe_at_barrier,
        in_flight=limits.one_more_than_ranks,
        allowed=limits.even_both_ways,
        requires="an even number of stages, one chunk per stage and an even number of at least 2 p micro-batches",
        source="DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3.2.1",
        paths=both_ways,
        parameters_held=2.0,
        splits_backward=True,
        pairs=limits.pairs_both_ways,
    ),
    "dualpipe-v": Schedule(
        name="dualpipe-v",
        order=zero_bubble.dualpipe_v,
        drain=bubbles.dualpipe_v,
        drain_at_barrier=bubbles.dualpipe_v_at_barrier,
        in_flight=limits.half_more_than_ranks,
        allowed=limits.folded_both_ways,
        requires="two stages or more, two chunks per stage and at least 2 p micro-batches",
        source="GitHub deepseek-ai/DualPipe: DualPipeV, after arXiv 2412.19437, section 3.2.1",
        paths=folded,
        splits_backward=True,
        pairs=limits.pairs_folded,
    ),
    "breadth-first": Schedule(
        name="breadth-first",
        order=interleaving.breadth_first,
        drain=bubbles.fill_and_drain,
        drain_at_barrier=bubbles.fill_and_drain,
        in_flight=limits.all_in_flight,
        allowed=limits.chunks_filled,
        requires="two stages or more, two chunks per stage or more, and at least p micro-batches",
        source="J. Lamy-Poirier, Breadth-First Pipeline Parallelism, arXiv 2211.05953; PyTorch's ScheduleLoopedBFS",
    ),
    "interleaved-groups": Schedule(
        name="interleaved-groups",
        order=interleaving.grouped,
        drain=bubbles.fill_and_drain,
        drain_at_barrier=bubbles.fill_and_drain,
        in_flight=limits.groups_in_flight,
        allowed=limits.chunks_filled,
        requires="two stages or more, two chunks per stage or more, and at least p micro-batches",
        source="Megatron-Core, --microbatch-group-size-per-virtual-pipeline-stage at its smallest",
    ),
    "interleaved-zb": Schedule(
        name="interleaved-zb",
        order=interleaving.zero_bubble,
        drain=bubbles.interleaved_zb,
        drain_at_barrier=bubbles.interleaved_zb_at_barrier,
        in_flight=limits.as_the_first,
        allowed=limits.whole_groups_twice,
        requires="two stages or more, two chunks or more, and a multiple of p micro-batches, at least 2 p",
        source="PyTorch's ScheduleInterleavedZeroBubble, after arXiv 2401.10241: ZB-H1",
        splits_backward=True,
        waits=sends.interleaved_zb,
    ),
}
"""Every pipeline schedule by its name."""

FILLING = tuple(name for name, schedule in SCHEDULES.items() if schedule.splits_backward)
"""Schedules whose idle time depends on how long weight gradients take."""

ALIASES: dict[str, str] = {
    "interleaved": "interleaved-1f1b",
    "interleaved1f1b": "interleaved-1f1b",
    "loopedbfs": "breadth-first",
    "interleavedzerobubble": "interleaved-zb",
    "zbvzerobubble": "zb-v",
    "dualpipev": "dualpipe-v",
    "zb-h1": "zb-1p",
    "zb-h2": "zb-2p",
}
"""Other names of schedules, in lower case: PyTorch's classes without their prefix, and those of the papers."""
