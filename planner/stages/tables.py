"""Tables of each pipeline stage: its seconds and recomputed layers by the number of layers that it holds.

For a stage that holds n layers, recomputing fewer of them is never slower, so the stage recomputes just what
memory asks for. That settles memory here, in bytes, before any solver: what is left is how many layers each
stage holds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from costmodels.arrays import Bools, Floats, Ints
from costmodels.pipeline.schedules import pipeline_seconds
from planner.stages.problem import SLACK, StageProblem


class StageTable(NamedTuple):
    """Seconds and recomputed layers by stage and number of layers, and the range that each stage may hold."""

    seconds: Floats
    recomputed: Ints
    fewest: Ints
    most: Ints


class Split(NamedTuple):
    """Layers per stage with what they cost: the slowest stage, all stages together, their recomputed layers."""

    layers: Ints
    slowest: float
    total: float
    recomputed: int


def stage_table(problem: StageProblem) -> StageTable:
    """Every number of layers from 0 to all, for every stage: arrays of shape (num_layers + 1, num_stages)."""
    L, p = problem.num_layers, problem.num_stages
    n = np.broadcast_to(np.arange(L + 1)[:, None], (L + 1, p))
    recomputed, limit = np.full((L + 1, p), -1), problem.each("memory_limit")
    for option in reversed(_recompute_options(problem, n)):
        fits = (option <= n) & (problem.stage_bytes(n, option) <= limit)
        recomputed = np.where(fits, option, recomputed)
    fewest = np.asarray(problem.fewest or (1,) * p) if problem.uneven else np.full(p, -(-L // p))
    largest = L if problem.uneven else L // p
    holds = np.logical_and.accumulate((recomputed >= 0) | (n < fewest), axis=0)[: largest + 1]
    most = np.maximum(np.count_nonzero(holds, axis=0) - 1, fewest - 1)
    return StageTable(problem.stage_seconds(n, recomputed), recomputed, fewest, most)


def _recompute_options(problem: StageProblem, n: Ints) -> list[Ints]:
    """Numbers of recomputed layers worth trying, ascending; the closed form may be off by one by rounding."""
    if problem.recompute == "first":
        return [np.minimum(n, problem.first)]
    if problem.recompute != "free":
        return [n if problem.recompute == "all" else np.zeros_like(n)]
    saved = np.subtract(problem.activation_bytes, problem.checkpoint_bytes)
    over = problem.stage_bytes(n, 0) + problem.each("working_bytes") - problem.each("memory_limit")
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


def floors(problem: StageProblem, table: StageTable) -> tuple[float, float, int]:
    """Lower bounds of any split: its slowest stage (attained by some split), all its seconds, its recomputed layers.

    Any split takes ``num_layers - sum(fewest)`` of the steps, so it has at least the cheapest so many.
    """
    stages, steps = np.arange(problem.num_stages), steps_above(table)
    taken = problem.num_layers - int(table.fewest.sum())
    least = table.recomputed[table.fewest, stages]
    slowest, recomputed = float(table.seconds[table.fewest, stages].max()), int(least.sum())
    total = total_seconds(problem, table.fewest, least)
    if taken:
        slowest = max(slowest, float(np.partition(table.seconds[steps], taken - 1)[taken - 1]))
        more = np.diff(table.recomputed, axis=0, prepend=0)
        recomputed += int(np.partition(more[steps], taken - 1)[:taken].sum())
        dearer = problem.each("layer_seconds") - problem.each("layer_seconds").min()
        price = (dearer + more * problem.each("recompute_seconds"))[steps]
        total += float(np.partition(price, taken - 1)[:taken].sum())
    return slowest, total, recomputed


def total_seconds(problem: StageProblem, layers: Ints, recomputed: Ints) -> float:
    """Seconds of all stages; layers that ``layers`` leaves out stand on the fastest stage.

    Written as the fastest stage's seconds and what the others take beyond, so that splits of one price compare
    as equal where stages are alike.
    """
    each, again = problem.each("layer_seconds"), problem.each("recompute_seconds")
    beyond = layers @ (each - each.min()) + recomputed @ (again - again.min())
    plain = problem.num_layers * float(each.min()) + int(recomputed.sum()) * float(again.min())
    return plain + float(beyond) + math.fsum(problem.extra_seconds)


def objective(problem: StageProblem, split: Split) -> float:
    """``pipeline_seconds`` of a split, or of a bound written as one."""
    return float(
        pipeline_seconds(
            micro_batches=problem.num_microbatches,
            slowest=split.slowest,
            total=split.total,
            vpp=problem.vpp,
        )
    )


def slowest_below(problem: StageProblem, ceiling: float, total: float) -> float:
    """The longest a stage may take if the objective is to stay below ``ceiling``, all stages taking ``total``."""
    rest = objective(problem, Split(np.empty(0, np.int64), 0.0, total, 0))
    weight = problem.num_microbatches - 1 / problem.vpp
    return (ceiling - rest) / weight * (1 + SLACK) if weight else math.inf


def within(problem: StageProblem, table: StageTable, slowest: float) -> StageTable:
    """The table without the cells that are slower than ``slowest``, or that leave others too much to hold."""
    n = np.arange(len(table.seconds))[:, None]
    allowed = (n >= table.fewest) & (n <= table.most) & (table.seconds <= slowest)
    most = table.fewest - 1 + np.count_nonzero(allowed, axis=0)
    fewest = np.maximum(table.fewest, problem.num_layers - (most.sum() - most))
    return table._replace(fewest=fewest, most=most)


def split_of(problem: StageProblem, table: StageTable, layers: Ints) -> Split:
    """A split of so many layers per stage, with its seconds and recomputed layers."""
    stages = np.arange(len(layers))
    recomputed = table.recomputed[layers, stages]
    slowest = float(table.seconds[layers, stages].max())
    return Split(layers, slowest, total_seconds(problem, layers, recomputed), int(recomputed.sum()))


def incumbent(problem: StageProblem, table: StageTable, hint: Sequence[int] | None) -> Split:
    """The best of three, of equals the first: the hint, a fill with the fastest slowest stage, one without that."""
    slowest, splits = floors(problem, table)[0], []
    if hint is not None and len(hint) == problem.num_stages and sum(hint) == problem.num_layers:
        layers = np.asarray(hint, dtype=np.int64)
        if np.all((table.fewest <= layers) & (layers <= table.most)):
            splits.append(split_of(problem, table, layers))
    splits += [_filled(problem, within(problem, table, cap)) for cap in (slowest, math.inf)]
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
    return split_of(problem, table, np.array(layers))


def evened(problem: StageProblem, table: StageTable, split: Split) -> Split:
    """Layers moved from fuller to emptier stages while that costs neither time nor recomputation."""
    stages = np.arange(problem.num_stages)
    table = within(problem, table, split.slowest)
    layers, each, again = split.layers, problem.each("layer_seconds"), problem.each("recompute_seconds")
    while True:
        here = table.recomputed[layers, stages]
        freed = here - table.recomputed[layers - 1, stages]
        added = table.recomputed[np.minimum(layers + 1, problem.num_layers), stages] - here
        gain = layers[:, None] - layers[None, :] - 1
        movable = (layers > table.fewest)[:, None] & (layers < table.most)[None, :]
        cheaper = (each + freed * again)[:, None] >= (each + added * again)[None, :]
        gain = np.where(movable & cheaper & (freed[:, None] >= added[None, :]), gain, 0)
        giver, taker = np.unravel_index(int(gain.argmax()), gain.shape)
        if gain[giver, taker] <= 0:
            return split_of(problem, table, layers)
        layers = layers + (stages == taker) - (stages == giver)
