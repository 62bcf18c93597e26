"""Stages of a chain of slices that differ: the exact split, by dynamic programming over where a stage ends.

What a stage costs depends on where it starts, not only on how many slices it holds. Every window of slices that a
stage may hold has its seconds and the recomputed slices that memory asks for, in tables; a stage recomputes its
first slices (Megatron's "block" method). The fastest slowest stage is one pass over the stages. Where recomputation
is free to choose, a slower slowest stage may recompute less: between the two, every limit that could pay is settled
by another pass or by a bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from costmodels.arrays import Bools, Floats, Ints, distinct_values
from costmodels.pipeline.schedules import pipeline_seconds
from planner.request.budget import CELL, Budget
from planner.stages.problem import SLACK, SliceCosts, StageProblem

_ROUNDING = 1e-13
"""Relative difference of sums in another order."""


class Windows(NamedTuple):
    """Stages that hold n slices ending in front of slice b, n from 0: arrays (p, S + 1, longest + 1)."""

    seconds: Floats
    """Seconds of the stage; infinite where it does not fit, holds too few, or has no place for its slices."""
    again: Floats
    """Seconds of it beyond those of its slices where they are fastest, nothing recomputed."""
    recomputed: Ints


class Found(NamedTuple):
    """A split: slices and recomputed slices of every stage, its slowest stage and all stages, in seconds."""

    layers: tuple[int, ...]
    recomputed: tuple[int, ...]
    slowest: float
    total: float
    objective: float
    bound: float
    """Nothing is faster; the objective itself unless the budget ran out."""


def solve_chain(
    problem: StageProblem, *, budget: Budget, cutoff: float = math.inf, hint: Sequence[int] | None = None
) -> Found | float:
    """The fastest split below ``cutoff``, or the bound that shows there is none (infinite if nothing fits at all).

    Among equally fast splits it takes the most even one, and ``hint`` before any other.
    """
    chain = _Chain(problem, cutoff)
    given = chain.split(hint) if hint is not None and len(hint) == problem.num_stages else None
    if given is not None and given.objective < cutoff:
        chain = _Chain(problem, min(given.objective * (1 + SLACK), cutoff))
    fastest = chain.fastest()
    least = chain.objective(fastest, 0.0)
    if not least < chain.ceiling:
        return chain.ceiling if chain.cut else least
    best, bound = chain.best(fastest, budget)
    if given is not None and given.objective <= best.objective * (1 + _ROUNDING):
        best = given
    found = best._replace(bound=min(bound, best.objective))
    return found if found.objective < cutoff else max(bound, cutoff)


class _Chain:
    """One problem with its tables."""

    def __init__(self, problem: StageProblem, ceiling: float) -> None:
        self.problem, self.ceiling = problem, ceiling
        costs = problem.slices
        assert costs is not None
        self.costs, self.count, self.stages = costs, problem.num_layers, problem.num_stages
        self.plain = math.fsum(problem.extra_seconds) + self._everything()
        self.weight = problem.num_microbatches - 1 / problem.vpp
        self.fewest = np.asarray(problem.fewest if problem.fewest and problem.uneven else (1,) * self.stages)
        self.most = self.count - int(self.fewest.sum()) + int(self.fewest.max())
        self.longest = self._longest()
        self.starts = np.arange(self.count + 1)[:, None] - np.arange(self.longest + 1)
        self.nowhere = np.full(self.longest, math.inf)  # where a negative start leads, counted from the end
        self.table = self._windows()
        self.cut = problem.uneven and self.longest < self.most

    def _everything(self) -> float:
        """Seconds of all slices where they are fastest, nothing recomputed."""
        return math.fsum(self.costs.seconds.min(axis=0))

    def objective(self, slowest: float, again: float) -> float:
        """``pipeline_seconds`` of a slowest stage and of what all stages spend ``again``."""
        if not math.isfinite(slowest):
            return math.inf
        m, vpp = self.problem.num_microbatches, self.problem.vpp
        return float(pipeline_seconds(micro_batches=m, slowest=slowest, total=self.plain + again, vpp=vpp))

    def _longest(self) -> int:
        """Slices that a stage may hold at most, given that its seconds must leave the objective below the ceiling."""
        problem = self.problem
        if not problem.uneven:
            return self.count // self.stages
        if not (math.isfinite(self.ceiling) and self.weight > 0):
            return self.most
        limit = (self.ceiling - self.objective(0.0, 0.0)) / self.weight * (1 + SLACK)
        ordered = np.sort(self.costs.seconds.min(axis=0)).cumsum()
        return int(np.clip(np.count_nonzero(ordered + min(problem.extra_seconds) <= limit), 1, self.most))

    def _windows(self) -> Windows:
        problem, costs = self.problem, self.costs
        p, shape = self.stages, (self.stages, self.count + 1, self.longest + 1)
        ends, lengths = np.arange(self.count + 1)[:, None], np.arange(self.longest + 1)
        starts = self.starts
        inside = (starts >= 0) & (lengths >= self.fewest[:, None, None])
        if not problem.uneven:
            inside = inside & (lengths * p == self.count)
        starts = np.maximum(starts, 0)
        before = {name: _before(getattr(costs, name), p) for name in SliceCosts.__dataclass_fields__}
        state = _over(before["state_bytes"], starts, ends) + np.array(problem.fixed_bytes)[:, None, None]
        recomputed, working = np.full(shape, -1), problem.each("working_bytes")[:, None, None]
        options = self._options(before, state, starts, ends)
        for option in reversed(options):
            turn = np.minimum(starts + option, ends)
            held = state + _over(before["checkpoint_bytes"], starts, turn)
            held = held + _over(before["activation_bytes"], turn, ends) + (option > 0) * working
            fits = (option >= 0) & (option <= lengths) & (held <= problem.memory_limit)
            recomputed = np.where(fits, option, recomputed)
        if len(options) > 1:
            turn = np.minimum(starts + np.maximum(recomputed, 0), ends)
        plain = _over(before["seconds"], starts, ends) + _over(before["recompute_seconds"], starts, turn)
        seconds = plain + np.array(problem.extra_seconds)[:, None, None]
        least = _over(_before(costs.seconds.min(axis=0, keepdims=True), p), starts, ends)
        again = np.maximum(plain - least, 0.0)
        return Windows(np.where(inside & (recomputed >= 0), seconds, math.inf), again, recomputed)

    def _options(self, before: dict[str, Floats], state: Floats, starts: Ints, ends: Ints) -> list[Ints]:
        """Numbers of recomputed slices worth trying, ascending; the closed form may be off by one by rounding.

        One number where the stages have no say in it, (S + 1, longest + 1).
        """
        problem, none = self.problem, np.zeros_like(starts)
        if problem.recompute == "first":
            return [np.minimum(ends - starts, problem.first)]
        if problem.recompute != "free":
            return [ends - starts if problem.recompute == "all" else none]
        saved = before["activation_bytes"] - before["checkpoint_bytes"]
        without = state + problem.each("working_bytes")[:, None, None] - problem.memory_limit
        over = without + _over(before["activation_bytes"], starts, ends)
        place = [np.searchsorted(row, row[starts] + over[stage]) for stage, row in enumerate(saved)]
        guess = np.maximum(np.array(place) - starts, 1)
        return [none, np.maximum(guess - 1, 1), guess, guess + 1]

    def _last(self, values: list[Floats]) -> float:
        return float(values[-1][self.count])

    def fastest(self) -> float:
        """The fastest slowest stage of any split that fits; infinite where none does."""
        reach = np.full(self.count + 1, math.inf)
        reach[0] = 0.0
        for seconds in self.table.seconds:
            reach = np.maximum(self._from(reach), seconds).min(axis=1)
        return float(reach[self.count])

    def _from(self, values: Floats) -> Floats:
        """The value in front of every window, shape (S + 1, longest + 1)."""
        return np.concatenate([values, self.nowhere])[self.starts]

    def least_again(self, limit: float) -> tuple[float, list[Floats]]:
        """Least seconds ``again`` with no stage slower than ``limit``: in all, and in front of each end."""
        values = [np.concatenate([[0.0], np.full(self.count, math.inf)])]
        for seconds, again in zip(self.table.seconds, self.table.again, strict=True):
            allowed = np.where(seconds <= limit, again, math.inf)
            values.append((self._from(values[-1]) + allowed).min(axis=1))
        return self._last(values), values

    def best(self, fastest: float, budget: Budget) -> tuple[Found, float]:
        """The best split, and a bound that is its objective unless the budget ran out."""
        again, _ = self.least_again(fastest)
        choice = (self.objective(fastest, again), fastest)
        bound = choice[0]
        if again > 0:
            choice, bound = self._traded(fastest, again, budget)
        return self._traced(choice[1]), bound

    def _traded(self, fastest: float, again: float, budget: Budget) -> tuple[tuple[float, float], float]:
        """(objective, limit) of the best slower slowest stage that spends less ``again``, if any; and the bound."""
        best = (self.objective(fastest, again), fastest)
        spare = self.least_again(math.inf)[0]
        gain = (again - spare) / self.problem.vpp * (1 + SLACK)
        top = fastest + gain / self.weight if self.weight > 0 else math.inf
        cells = self.table.seconds
        limits = distinct_values(cells[(cells > fastest) & (cells <= top) & np.isfinite(cells)])
        open_, bound = [(0, len(limits), again, spare)] if len(limits) else [], best[0]
        while open_:
            low, high, most, least = open_.pop()
            optimistic = self.objective(float(limits[low]), least)
            if optimistic >= best[0] or most <= least:
                continue
            if budget.spent():
                bound = min(bound, optimistic)
                continue
            budget.spend(CELL * cells.size)
            middle = (low + high) // 2
            here = self.least_again(float(limits[middle]))[0]
            best = min(best, (self.objective(float(limits[middle]), here), float(limits[middle])))
            if low < middle:
                open_.append((low, middle, most, here))
            if middle + 1 < high:
                open_.append((middle + 1, high, here, least))
        return best, min(bound, best[0])

    def _traced(self, limit: float) -> Found:
        """The most even of the splits that spend least ``again`` within ``limit``."""
        _, values = self.least_again(limit)
        uneven, picks = np.concatenate([[0.0], np.full(self.count, math.inf)]), []
        lengths = np.arange(self.longest + 1)
        for stage, (seconds, again) in enumerate(zip(self.table.seconds, self.table.again, strict=True)):
            sums = self._from(values[stage]) + np.where(seconds <= limit, again, math.inf)
            kept = np.isfinite(sums) & (sums <= values[stage + 1][:, None] * (1 + _ROUNDING))
            worth = np.where(kept, self._from(uneven) + lengths**2.0, math.inf)
            picks.append(worth.argmin(axis=1))
            uneven = worth.min(axis=1)
        end, layers = self.count, []
        for pick in reversed(picks):
            layers.append(int(pick[end]))
            end -= layers[-1]
        found = self.split(layers[::-1])
        assert found is not None
        return found

    def split(self, layers: Sequence[int]) -> Found | None:
        """A given split; None where it does not fit, or a stage holds more than the ceiling allows."""
        held = np.asarray(layers, dtype=np.int64)
        if sum(layers) != self.count or (held < self.fewest).any() or held.max() > self.longest:
            return None
        cell = (np.arange(self.stages), np.cumsum(held), held)
        seconds, _again, recomputed = (part[cell] for part in self.table)
        slowest = float(seconds.max())
        if not math.isfinite(slowest):
            return None
        total = math.fsum(seconds)
        m, vpp = self.problem.num_microbatches, self.problem.vpp
        value = float(pipeline_seconds(micro_batches=m, slowest=slowest, total=total, vpp=vpp))
        return Found(tuple(held.tolist()), tuple(recomputed.tolist()), slowest, total, value, value)


def fewest_recomputed(problem: StageProblem, layers: Sequence[int]) -> Ints:
    """The fewest recomputed slices of each stage that memory allows, -1 where none does, shape (p,)."""
    held = np.asarray(layers, dtype=np.int64)
    table = _Chain(replace(problem, uneven=True, fewest=(0,) * len(held)), math.inf).table
    return np.asarray(table.recomputed[np.arange(len(held)), np.cumsum(held), held])


def may_beat(problem: StageProblem, ceiling: float) -> bool:
    """Whether a split may be faster than ``ceiling``, memory aside: its slowest stage and its sum each the least."""
    chain = _Chain(replace(problem, memory_limit=math.inf), ceiling)
    return chain.objective(chain.fastest(), chain.least_again(math.inf)[0]) < ceiling


def may_fit(problem: StageProblem) -> Bools:
    """Whether a split may fit of which every stage recomputes its first k slices, (S + 1,) by k.

    Each stage in turn takes as many slices as it has room for. It needs no more room for fewer of them, at either end:
    a slice that leaves at the front has another one behind recomputed in its place, and no slice holds less stored.
    """
    costs, count, stages = problem.slices, problem.num_layers, problem.num_stages
    assert costs is not None
    before = {name: _before(getattr(costs, name), stages) for name in SliceCosts.__dataclass_fields__}
    stored = before["state_bytes"] + before["activation_bytes"]
    saved = before["activation_bytes"] - before["checkpoint_bytes"]
    fewest = np.array(problem.fewest if problem.fewest and problem.uneven else (1,) * stages)
    last = count - (fewest.sum() - fewest.cumsum())
    limit, working = problem.each("memory_limit") * (1 + SLACK), problem.each("working_bytes")
    first, start = np.arange(count + 1), np.zeros(count + 1, dtype=np.int64)
    fits = np.ones(count + 1, dtype=np.bool_)
    for stage in range(stages):
        room = limit[stage] - problem.fixed_bytes[stage]
        turn = np.minimum((start + first)[:, None], first)
        most = room - working[stage] * (first > 0) + stored[stage, start] - saved[stage, start]
        inside = stored[stage] - saved[stage, turn] <= most[:, None]
        inside[first, start] |= room >= 0  # an empty stage recomputes nothing
        end = np.minimum(count - inside[:, ::-1].argmax(axis=1), last[stage])
        fits &= inside.any(axis=1) & (end - start >= fewest[stage])
        start = np.maximum(start, end)
    return fits & (start == count)


def _before(values: Floats, stages: int) -> Floats:
    """Sums in front of every slice, shape (p, S + 1)."""
    sums = np.concatenate([np.zeros((len(values), 1)), values.cumsum(axis=1)], axis=1)
    return np.broadcast_to(sums, (stages, sums.shape[1]))


def _over(before: Floats, starts: Ints, ends: Ints) -> Floats:
    """Sums from ``starts`` to ``ends``: indices (S + 1, n) or (p, S + 1, n)."""
    if starts.ndim == ends.ndim == 2:
        return before[:, ends] - before[:, starts]
    stage = np.arange(len(before))[:, None, None]
    return before[stage, ends] - before[stage, starts]
