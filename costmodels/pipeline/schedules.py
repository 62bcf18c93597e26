"""Pipeline schedules: the order in which a stage runs its passes, and what that order costs.

One entry of ``SCHEDULES`` is all that exists of a schedule: its passes in order (simulation and traces read
them), its idle time, its activations in flight, and where it can be used. The closed forms take arrays.

Symbols, as in the papers: ``p`` pipeline stages, ``m`` micro-batches per iteration, ``v`` model chunks per
stage (virtual pipeline stages, 1 where layers are not interleaved), ``stage`` counted from 0 at the input. GPipe is of
[Huang19], 1F1B of [NarayananBW21], its interleaving of [Narayanan21]; each entry names its own source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from costmodels.arrays import Bools, Floats, Ints, elementwise
from costmodels.pipeline import bubbles, interleaving, limits, zero_bubble
from costmodels.pipeline.slots import Path, Slot, alternate, both_ways, folded, looped
from hardware.errors import MeshwrightError


class BadSchedule(MeshwrightError, ValueError):
    """A schedule asked to run with stages, micro-batches and chunks that it cannot run with."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A pipeline schedule.

    Attributes:
        name: as in ``SCHEDULES``.
        order: ``(p, m, v, stage)`` to the passes of that stage, in the order in which they run.
        runs: ``(p, m, v)`` to whether the schedule can run so, arrays of one shape; ask ``allowed``.
        requires: what ``runs`` asks for, in words, as the end of a sentence.
        source: the publication that describes it.
        held: ``(p, m, v, stage)`` to the largest number of activations held at once, arrays of one shape; ask
            ``in_flight``.
        drain: ``(p, m, v, forward, backward, weight, barrier=False)`` to the idle seconds of a stage per iteration,
            for equal stages, as all of ``bubbles``.
        paths: ``(p, v)`` to the ways through the model; micro-batch i takes the (i mod len)-th of them.
        parameters_held: copies of every parameter that the stages hold together.
        splits_backward: whether the gradient of the weights is a pass of its own.
        pairs: ``(p, m, v)`` to how many forward passes run alongside a backward pass of the other direction, so that
            each hides its traffic behind the other's computation, on the stage with the fewest of them; in units of
            one micro-batch through the whole stage.
        delays: ``(p, m, v)`` to how many micro-batches' sends and receives of a stage an iteration waits for, arrays of
            one shape, where a send stops nobody and delays its receiver alone; None where it stops both stages. Ask
            ``waits``.
    """

    name: str
    order: Callable[[int, int, int, int], Sequence[Slot]]
    runs: Callable[..., ArrayLike]
    requires: str
    source: str
    held: Callable[..., ArrayLike] = limits.warmup_in_flight
    drain: Callable[..., Floats] = bubbles.fill_and_drain
    paths: Callable[[int, int], tuple[Path, ...]] = looped
    parameters_held: float = 1.0
    splits_backward: bool = False
    pairs: Callable[..., Floats] = limits.no_pairs
    delays: Callable[..., ArrayLike] | None = None

    def allowed(self, p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Bools:
        """Whether the schedule can run so, in the arguments' common shape."""
        return np.asarray(self.runs(*map(np.asarray, (p, m, v))))

    def in_flight(self, p: ArrayLike, m: ArrayLike, v: ArrayLike, stage: ArrayLike) -> Floats:
        """The largest number of activations held at once, in the arguments' common shape.

        In units of one micro-batch through the whole stage (chunks held, divided by ``v``). An activation is held
        until its last pass has run: ``W`` where there is one. That ``B`` could free part of it is not counted.
        """
        return elementwise(self.held)(p, m, v, stage)

    def waits(self, p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Floats:
        """How many micro-batches' sends and receives of a stage an iteration waits for, all chunks, both ways.

        All, where a send stops both stages. Schedules whose backward pass is split have weight gradients to run while
        an input travels, and executors that send and receive during the computation. The delays add up along the
        longest path of the order, so each form is a line in p and m; they were read off the simulation of the orders
        for passes of the same time and sends of up to a tenth of them, and agree with it to rounding, but for V-Half
        (3 % at most) and V-Min (8 %). Where forward, backward and weights take 0.28 to 0.4 of a stage's time each, the
        simulation waits for less, down to nothing, or at most for a tenth more.
        """
        return elementwise(self.delays or (lambda _p, m, _v: m))(p, m, v)

    def waited(self, p: ArrayLike, m: ArrayLike, v: ArrayLike) -> Floats:
        """Share of a stage's sends and receives that the price of a micro-batch has.

        What ``waits`` counts, over the micro-batches that the price counts: m, and those that fill the idle time.
        """
        third = 1.0 / 3.0
        return self.waits(p, m, v) / (np.asarray(m) + self.drain(p, m, v, third, third, third))

    @property
    def sends_overlap(self) -> bool:
        """Whether sends stop no computation and delay their receivers alone."""
        return self.delays is not None

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
        return [list(self.order(p, m, v, stage)) for stage in range(p)]


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


def _whole_groups(p: Ints, m: Ints, v: Ints) -> Bools:
    """Two chunks or more, whole groups of p micro-batches."""
    return (p >= 2) & (m >= 1) & (v >= 2) & (m % np.maximum(p, 1) == 0)


def _as_the_first(p: Ints, m: Ints, _v: Ints, _stage: Ints) -> Ints:
    """As much as the first stage of 1F1B, everywhere."""
    return np.minimum(p, m)


_ALL: tuple[Schedule, ...] = (
    Schedule(
        name="none",
        order=_one_forward_one_backward,
        runs=lambda p, m, v: (p == 1) & (m >= 1) & (v == 1),
        requires="one stage and one chunk",
        source="gradient accumulation without a pipeline",
    ),
    Schedule(
        name="gpipe",
        order=_forwards_then_backwards,
        runs=lambda p, m, v: (p >= 1) & (m >= 1) & (v == 1),
        requires="at least one stage, at least one micro-batch and one chunk per stage",
        source="Y. Huang et al., GPipe, NeurIPS 2019",
        held=lambda _p, m, _v, _stage: m,
    ),
    Schedule(
        name="1f1b",
        order=_one_forward_one_backward,
        runs=lambda p, m, v: (p >= 1) & (m >= 1) & (v == 1),
        requires="at least one stage, at least one micro-batch and one chunk per stage",
        source="D. Narayanan et al., PipeDream-2BW, ICML 2021; Megatron-LM",
    ),
    Schedule(
        name="interleaved-1f1b",
        order=lambda p, m, v, stage: interleaving.grouped(p, m, v, stage, p),
        runs=_whole_groups,
        requires="two stages or more, two chunks per stage or more, and a multiple of p micro-batches",
        source="D. Narayanan et al., SC 2021, section 2.2.2; Megatron-LM",
        held=limits.chunks_in_flight,
    ),
    Schedule(
        name="zb-1p",
        order=lambda p, m, _v, stage: zero_bubble.straight(p, m, 1)[stage],
        runs=lambda p, m, v: (p >= 2) & (m >= p) & (v == 1),
        requires="two stages or more, one chunk per stage and at least p micro-batches",
        source="P. Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241: ZB-H1",
        held=_as_the_first,
        drain=bubbles.zb_1p,
        splits_backward=True,
        delays=lambda p, _m, _v: 2.0 * (p - 1),  # once each way to fill and to drain
    ),
    Schedule(
        name="zb-2p",
        order=lambda p, m, _v, stage: zero_bubble.straight(p, m, 2)[stage],
        runs=lambda p, m, v: (p >= 2) & (m >= 2 * p - 1) & (v == 1),
        requires="two stages or more, one chunk per stage and at least 2 p - 1 micro-batches",
        source="P. Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241: ZB-H2",
        held=lambda p, m, _v, _stage: np.minimum(2 * p - 1, m),
        drain=bubbles.zb_2p,
        splits_backward=True,
        delays=lambda p, _m, _v: p - 1.0,  # to fill, or to drain
    ),
    Schedule(
        name="zb-v",
        order=lambda p, m, _v, stage: zero_bubble.zb_v_orders(p, m)[stage],
        runs=lambda p, m, v: (p >= 2) & (m >= 2 * p - 1) & (v == 2),
        requires="two stages or more, two chunks per stage and at least 2 p - 1 micro-batches",
        source="P. Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241: ZB-V",
        held=_as_the_first,
        drain=bubbles.zb_v,
        paths=folded,
        splits_backward=True,
        delays=lambda p, _m, _v: 1.5 * (p - 1),  # two chunks are as many hops
    ),
    Schedule(
        name="v-half",
        order=lambda p, m, _v, stage: zero_bubble.v_half(p, m)[stage],
        runs=lambda p, m, v: (p >= 3) & (m >= p) & (v == 2),
        requires="three stages or more, two chunks per stage and at least p micro-batches",
        source="P. Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362",
        held=lambda p, m, _v, _stage: np.minimum((p + 2) // 2, m),
        drain=bubbles.v_half,
        paths=folded,
        splits_backward=True,
        delays=lambda p, m, _v: m / 2.0 + 1.25 * (p - 2),  # half of its passes have no slack
    ),
    Schedule(
        name="v-min",
        order=lambda p, m, _v, stage: zero_bubble.v_min(p, m)[stage],
        runs=lambda p, m, v: (p >= 4) & (m >= p) & (v == 2),
        requires="four stages or more, two chunks per stage and at least p micro-batches",
        source="P. Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362",
        held=lambda p, m, _v, _stage: np.minimum((p + 4) // 3, m),
        drain=bubbles.v_min,
        paths=folded,
        splits_backward=True,
        delays=lambda p, m, _v: (1.5 - 2.0 / p) * m + 0.85 * (p - 1),  # nothing of it has any
    ),
    Schedule(
        name="dualpipe",
        order=lambda p, m, _v, stage: zero_bubble.dualpipe(p, m, stage),
        runs=lambda p, m, v: (p >= 2) & (p % 2 == 0) & (m % 2 == 0) & (m >= 2 * p) & (v == 1),
        requires="an even number of stages, one chunk per stage and an even number of at least 2 p micro-batches",
        source="DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3.2.1",
        held=lambda p, _m, _v, _stage: p + 1,
        drain=bubbles.dualpipe,
        paths=both_ways,
        parameters_held=2.0,
        splits_backward=True,
        pairs=limits.pairs_both_ways,
    ),
    Schedule(
        name="dualpipe-v",
        order=lambda p, m, _v, stage: zero_bubble.two_way(2 * p, m, stage),
        runs=lambda p, m, v: (p >= 2) & (m >= 2 * p) & (v == 2),
        requires="two stages or more, two chunks per stage and at least 2 p micro-batches",
        source="GitHub deepseek-ai/DualPipe: DualPipeV, after arXiv 2412.19437, section 3.2.1",
        held=lambda p, _m, _v, _stage: p + 0.5,  # half of what DualPipe does on twice the stages
        drain=bubbles.dualpipe_v,
        paths=folded,
        splits_backward=True,
        pairs=limits.pairs_folded,
    ),
    Schedule(
        name="breadth-first",
        order=lambda _p, m, v, _stage: interleaving.breadth_first(m, v),
        runs=lambda p, m, v: (p >= 2) & (m >= p) & (v >= 2),
        requires="two stages or more, two chunks per stage or more, and at least p micro-batches",
        source="J. Lamy-Poirier, Breadth-First Pipeline Parallelism, arXiv 2211.05953; PyTorch's ScheduleLoopedBFS",
        held=lambda _p, m, _v, _stage: m,
    ),
    Schedule(
        name="interleaved-groups",
        order=lambda p, m, v, stage: interleaving.grouped(p, m, v, stage, int(interleaving.group_size(p, m))),
        runs=lambda p, m, v: (p >= 2) & (m >= p) & (v >= 2),
        requires="two stages or more, two chunks per stage or more, and at least p micro-batches",
        source="Megatron-Core, --microbatch-group-size-per-virtual-pipeline-stage at its smallest",
        held=limits.groups_in_flight,
    ),
    Schedule(
        name="interleaved-zb",
        order=lambda p, m, v, stage: interleaving.zero_bubble(p, m, v)[stage],
        runs=lambda p, m, v: _whole_groups(p, m, v) & (m >= 2 * p),
        requires="two stages or more, two chunks or more, and a multiple of p micro-batches, at least 2 p",
        source="PyTorch's ScheduleInterleavedZeroBubble, after arXiv 2401.10241: ZB-H1",
        held=_as_the_first,
        drain=bubbles.interleaved_zb,
        splits_backward=True,
        delays=lambda p, _m, v: p + (p - 2) / v,
    ),
)
SCHEDULES: dict[str, Schedule] = {schedule.name: schedule for schedule in _ALL}
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
