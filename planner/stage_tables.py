"""What each pipeline stage can hold: its seconds and recomputed layers by its number of layers, exactly.

For a stage that holds n layers, recomputing fewer of them is never slower, so the stage recomputes just what
memory asks for. That settles memory here, in bytes, before any solver: what is left is how many layers each
stage holds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodels.schedules import pipeline_seconds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_SLACK = 1e-9
"""Relative room for rounding wherever a limit must not cut off what just fits."""


@dataclass(frozen=True, slots=True)
class StageProblem:
    """How to spread the layers of one model over the stages of one pipeline.

    Attributes:
        num_layers: equal layers to spread, or equal slices of one layer per chunk.
        num_stages: pipeline stages p.
        vpp: model chunks per stage, or what else divides the bubble: its objective share is 1 / vpp.
        num_microbatches: micro-batches m per iteration, or what else the slowest stage counts by.
        layer_seconds: forward and backward of one layer for one micro-batch, nothing recomputed; positive.
        recompute_seconds: extra seconds of a recomputed layer.
        extra_seconds: (p,) seconds per micro-batch beside the layers: embedding, head, exposed sends.
        memory_limit: bytes that a stage may use.
        fixed_bytes: (p,) bytes beside the layers: states of embedding and head, logits, the framework.
        layer_bytes: weights, gradients and optimizer states of one layer.
        activation_bytes: (p,) bytes held per layer that stores its activations, all micro-batches in flight.
        checkpoint_bytes: (p,) bytes held per recomputed layer, all micro-batches in flight.
        recompute: one of ``RECOMPUTE_MODES``.
        uneven: whether stages may hold different numbers of layers.
        working_bytes: one layer's activations while it is recomputed; counted where a stage recomputes any.
        fewest: (p,) layers that each stage holds at least where they may differ; one unless said.
    """

    num_layers: int
    num_stages: int
    vpp: float
    num_microbatches: float
    layer_seconds: float
    recompute_seconds: float
    extra_seconds: tuple[float, ...]
    memory_limit: float
    fixed_bytes: tuple[float, ...]
    layer_bytes: float
    activation_bytes: tuple[float, ...]
    checkpoint_bytes: tuple[float, ...]
    recompute: Literal["none", "free", "all"]
    uneven: bool
    working_bytes: float = 0.0
    fewest: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("extra_seconds", "fixed_bytes", "activation_bytes", "checkpoint_bytes", "fewest"):
            if getattr(self, name) is not None and len(getattr(self, name)) != self.num_stages:
                raise ValueError(f"{name} has {len(getattr(self, name))} entries for {self.num_stages} stages")

    def stage_seconds(self, layers: ArrayLike, recomputed: ArrayLike) -> Floats:
        """Forward and backward seconds per stage and micro-batch; the arguments' last axis is the stage."""
        n, r = np.asarray(layers, dtype=np.float64), np.asarray(recomputed, dtype=np.float64)
        return np.asarray(n * self.layer_seconds + r * self.recompute_seconds + np.asarray(self.extra_seconds))

    def stage_bytes(self, layers: ArrayLike, recomputed: ArrayLike) -> Floats:
        """Bytes per stage; the arguments' last axis is the stage."""
        n, r = np.asarray(layers, dtype=np.float64), np.asarray(recomputed, dtype=np.float64)
        held = (n - r) * np.asarray(self.activation_bytes) + r * np.asarray(self.checkpoint_bytes)
        working = np.where(r > 0, self.working_bytes, 0.0)
        return np.asarray(n * self.layer_bytes + held + working + np.asarray(self.fixed_bytes))


class StageTable(NamedTuple):
    """Seconds and recomputed layers by stage and number of layers, and the range that each stage may hold."""

    seconds: Floats
    recomputed: Ints
    fewest: Ints
    most: Ints


class Split(NamedTuple):
    """Layers per stage with what they cost: the slowest stage, and the recomputed layers of all stages."""

    layers: Ints
    slowest: float
    recomputed: int


def stage_table(problem: StageProblem) -> StageTable:
    """Every number of layers from 0 to all, for every stage: arrays of shape (num_layers + 1, num_stages)."""
    L, p = problem.num_layers, problem.num_stages
    n = np.broadcast_to(np.arange(L + 1)[:, None], (L + 1, p))
    recomputed = np.full((L + 1, p), -1)
    for option in reversed(_recompute_options(problem, n)):
        fits = (option <= n) & (problem.stage_bytes(n, option) <= problem.memory_limit)
        recomputed = np.where(fits, option, recomputed)
    fewest = np.asarray(problem.fewest or (1,) * p) if problem.uneven else np.full(p, -(-L // p))
    largest = L if problem.uneven else L // p
    holds = np.logical_and.accumulate((recomputed >= 0) | (n < fewest), axis=0)[: largest + 1]
    most = np.maximum(np.count_nonzero(holds, axis=0) - 1, fewest - 1)
    return StageTable(problem.stage_seconds(n, recomputed), recomputed, fewest, most)


def _recompute_options(problem: StageProblem, n: Ints) -> list[Ints]:
    """Numbers of recomputed layers worth trying, ascending; the closed form may be off by one by rounding."""
    if problem.recompute != "free":
        return [n if problem.recompute == "all" else np.zeros_like(n)]
    saved = np.subtract(problem.activation_bytes, problem.checkpoint_bytes)
    over = problem.stage_bytes(n, 0) + problem.working_bytes - problem.memory_limit
    needed = np.ceil(over / np.where(saved > 0, saved, np.inf))
    guess = np.clip(needed, 1, problem.num_layers + 1).astype(np.int64)
    return [np.zeros_like(n), np.maximum(guess - 1, 1), guess, guess + 1]


def has_split(problem: StageProblem, table: StageTable) -> bool:
    """Whether the stages together can hold the layers, each within its range."""
    return bool(np.all(table.fewest <= table.most) and table.fewest.sum() <= problem.num_layers <= table.most.sum())


def steps_above(table: StageTable) -> Bools:
    """Which (layers, stage) cells are steps above the fewest layers that the stage may hold."""
    n = np.arange(len(table.seconds))[:, None]
    return (n > table.fewest) & (n <= table.most)


def floors(problem: StageProblem, table: StageTable) -> tuple[float, int]:
    """Lower bounds on the slowest stage, which some split attains, and on the recomputed layers of any split.

    Any split takes ``num_layers - sum(fewest)`` of the steps, so it has at least the cheapest so many.
    """
    stages, steps = np.arange(problem.num_stages), steps_above(table)
    taken = problem.num_layers - int(table.fewest.sum())
    slowest = float(table.seconds[table.fewest, stages].max())
    recomputed = int(table.recomputed[table.fewest, stages].sum())
    if taken:
        slowest = max(slowest, float(np.partition(table.seconds[steps], taken - 1)[taken - 1]))
        extra = np.diff(table.recomputed, axis=0, prepend=0)[steps]
        recomputed += int(np.partition(extra, taken - 1)[:taken].sum())
    return slowest, recomputed


def objective(problem: StageProblem, split: Split) -> float:
    """``pipeline_seconds`` of a split, or of a bound written as one."""
    total = problem.num_layers * problem.layer_seconds + split.recomputed * problem.recompute_seconds
    return float(
        pipeline_seconds(
            micro_batches=problem.num_microbatches,
            slowest=split.slowest,
            total=total + math.fsum(problem.extra_seconds),
            vpp=problem.vpp,
        )
    )


def slowest_below(problem: StageProblem, ceiling: float, recomputed: int) -> float:
    """The longest a stage may take if the objective is to stay below ``ceiling``."""
    rest = objective(problem, Split(np.empty(0, np.int64), 0.0, recomputed))
    weight = problem.num_microbatches - 1 / problem.vpp
    return (ceiling - rest) / weight * (1 + _SLACK) if weight else math.inf


def within(problem: StageProblem, table: StageTable, slowest: float) -> StageTable:
    """The table without the cells that are slower than ``slowest``, or that leave others too much to hold."""
    n = np.arange(len(table.seconds))[:, None]
    allowed = (n >= table.fewest) & (n <= table.most) & (table.seconds <= slowest)
    most = table.fewest - 1 + np.count_nonzero(allowed, axis=0)
    fewest = np.maximum(table.fewest, problem.num_layers - (most.sum() - most))
    return table._replace(fewest=fewest, most=most)


def split_of(table: StageTable, layers: Ints) -> Split:
    """What these layers per stage cost."""
    stages = np.arange(len(layers))
    return Split(layers, float(table.seconds[layers, stages].max()), int(table.recomputed[layers, stages].sum()))


def incumbent(problem: StageProblem, table: StageTable, hint: Sequence[int] | None) -> Split:
    """The best of three: a fill with the fastest slowest stage, one without that care, and the hint."""
    slowest, _ = floors(problem, table)
    splits = [_filled(problem, within(problem, table, cap)) for cap in (slowest, math.inf)]
    if hint is not None and len(hint) == problem.num_stages and sum(hint) == problem.num_layers:
        layers = np.asarray(hint, dtype=np.int64)
        if np.all((table.fewest <= layers) & (layers <= table.most)):
            splits.append(split_of(table, layers))
    return min(splits, key=lambda split: (objective(problem, split), split.recomputed))


def _filled(problem: StageProblem, table: StageTable) -> Split:
    """Layer by layer to the stage that then recomputes the fewest more; among those, the fastest."""
    layers = table.fewest.tolist()
    most, seconds, recomputed = table.most.tolist(), table.seconds.tolist(), table.recomputed.tolist()

    def offer(stage: int) -> tuple[int, float, int]:
        n = layers[stage]
        return recomputed[n + 1][stage] - recomputed[n][stage], seconds[n + 1][stage], stage

    heap = [offer(stage) for stage in range(problem.num_stages) if layers[stage] < most[stage]]
    heapq.heapify(heap)
    for _ in range(problem.num_layers - sum(layers)):
        _, _, stage = heap[0]
        layers[stage] += 1
        if layers[stage] < most[stage]:
            heapq.heapreplace(heap, offer(stage))
        else:
            heapq.heappop(heap)
    return split_of(table, np.array(layers))


def evened(problem: StageProblem, table: StageTable, split: Split) -> Split:
    """Layers moved from fuller to emptier stages while that costs neither time nor recomputation."""
    stages = np.arange(problem.num_stages)
    table = within(problem, table, split.slowest)
    layers = split.layers
    while True:
        here = table.recomputed[layers, stages]
        freed = here - table.recomputed[layers - 1, stages]
        added = table.recomputed[np.minimum(layers + 1, problem.num_layers), stages] - here
        gain = layers[:, None] - layers[None, :] - 1
        movable = (layers > table.fewest)[:, None] & (layers < table.most)[None, :]
        gain = np.where(movable & (freed[:, None] >= added[None, :]), gain, 0)
        giver, taker = np.unravel_index(int(gain.argmax()), gain.shape)
        if gain[giver, taker] <= 0:
            return split_of(table, layers)
        layers = layers + (stages == taker) - (stages == giver)
