"""An optimistic answer to many stage problems whose slices differ: arrays, no solver.

Given a limit on the slowest stage, each stage in turn takes as many slices as its time and its memory allow; the
limit is too low for any split if the stages together do not reach the end. What a stage asks for grows with what it
holds, so that taking the most is never worse. Bisection brings the limit up to where it may be high enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.arrays import Columns
from costmodels.iteration import RowSeconds, all_sides, end_send, fullest_stage, pipeline_within, stage_extras
from costmodels.layout.layers_by_kind import kind_slices
from costmodels.layout.stage_contents import ends, folded, in_flight
from costmodels.memory.limits import memory_limit
from costmodels.memory.rows import RowBytes
from costmodels.names import Recompute
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats, Ints, Strategies
from planner.stages.bounds import StageBound

_SLACK = 1e-9
"""Relative room for rounding: a bound must stay on the optimistic side."""
_HALVINGS = 14
"""Halvings of the distance between a limit that is too low and one that is not."""
_COARSE = 1e-3
"""Room for how coarsely a bisection ends."""
_CELLS = 1 << 20
"""Rows times stages times slices to work on at a time."""


def chain_lower_bound(
    rows: Strategies, seconds: RowSeconds, memory: RowBytes, scenario: Scenario, fewest: Ints, below: float
) -> StageBound:
    """Bounds on the slowest stage's seconds and on their sum over the stages, arrays (N,).

    No split of a row has a smaller slowest stage or a smaller sum. A row marked infeasible has no split that fits
    in memory and takes less than ``below`` seconds an iteration; one marked feasible may have none. ``fewest`` (N, P)
    is the slices that each stage holds at least.
    """
    assert seconds.kinds is not None
    layers = scenario.model.num_layers
    total = layers * seconds.layer + seconds.embedding + seconds.head + all_sides(rows, seconds)
    total = total + np.where(rows.recompute == Recompute.FULL, layers * seconds.recompute, 0.0)
    fullest = fullest_stage(rows, seconds.layer, seconds.kinds, layers, np.zeros(len(rows)))
    low = np.maximum(total / rows.pp, fullest + end_send(rows, seconds) + seconds.host + seconds.vocabulary_spread)
    bound = StageBound(np.zeros(len(rows)), total * (1 - _SLACK), np.zeros(len(rows), dtype=np.bool_))
    limit = _slowest_below(rows, seconds, total, below)
    worth = np.flatnonzero(low < limit)
    for some in _alike(rows.take(worth), scenario):
        part = worth[some]
        chains = _chains(rows.take(part), seconds.take(part), memory.take(part), scenario, fewest[part])
        if len(held := np.flatnonzero(chains.reaches(limit[part]))):
            bound.feasible[part[held]] = True
            bound.slowest[part[held]] = _lowest(chains.take(held), low[part[held]]) * (1 - _SLACK)
    return bound


def _slowest_below(rows: Strategies, seconds: RowSeconds, total: Floats, below: float) -> Floats:
    """Seconds of the slowest stage from which an iteration takes ``below`` seconds, and a little more, (N,)."""
    if not np.isfinite(below):
        return np.full(len(rows), np.inf)
    times = rows.num_microbatches - seconds.bubble
    left = pipeline_within(seconds, below) - total * seconds.bubble
    return np.where(times > 0, left / np.where(times > 0, times, 1.0) * (1 + _COARSE), np.inf)


def _alike(rows: Strategies, scenario: Scenario) -> Iterator[Ints]:
    """Rows with the same stages and slices, few enough at a time."""
    keys = np.stack([rows.pp, rows.vpp, folded(rows).astype(np.int64)])
    distinct, place = np.unique(keys, axis=1, return_inverse=True)
    for index in range(distinct.shape[1]):
        same = np.flatnonzero(place.reshape(-1) == index)
        cells = len(same) * int(distinct[0, index]) * scenario.model.num_layers
        yield from np.array_split(same, -(-cells // _CELLS))


def _lowest(chains: _Chains, low: Floats) -> Floats:
    """A limit on the slowest stage that is too low or just enough, (n,): no split is below."""
    low = np.maximum(low, chains.least)
    high, enough = chains.most, chains.reaches(low)
    for _ in range(_HALVINGS):
        middle = np.minimum((low + high) / 2.0, 1.25 * low)
        reached = chains.reaches(middle)
        high, low = np.where(reached, middle, high), np.where(reached | enough, low, middle)
    return low


@dataclass(frozen=True, slots=True)
class _Chains(Columns):
    """Rows with the same number of stages p and slices S."""

    extra: Floats
    """Seconds of each stage beside its slices, (n, p)."""
    least: Floats
    """No slowest stage is below, (n,)."""
    most: Floats
    """Seconds that no slowest stage needs more than, (n,)."""
    behind: Ints
    """Slices that the stages behind each one hold at least, (n, p)."""
    sums: tuple[Floats, ...]
    """Of each stage (n, 3, S + 1): in front of every slice its seconds; bytes of slices in their leanest form; seconds
    and what memory asks to recompute for each slice stored."""
    room: tuple[Floats, ...]
    """Bytes that a stage has for its slices, (n,) for each stage."""
    spare: tuple[Floats, ...]
    """Recomputation that the room of a stage saves, seconds, (n,) for each stage."""

    def reaches(self, limit: Floats) -> Bools:
        """Whether stages within ``limit`` can hold all slices, some each at least, as far as this bound sees, (n,)."""
        start, slices = np.zeros(len(limit), dtype=np.int64), self.sums[0].shape[2] - 1
        for stage, sums in enumerate(self.sums):
            left = limit - self.extra[:, stage]
            budget = np.stack([left, self.room[stage], left + self.spare[stage]], axis=1)
            start = np.maximum(start, np.minimum(_within(sums, start, budget), slices - self.behind[:, stage]))
        return (start >= slices) & (np.array(self.room) >= 0.0).all(axis=0)


def _within(before: Floats, start: Ints, budget: Floats) -> Ints:
    """The last slice boundary whose sums from ``start`` are all within their budgets, (n, 3): (n,)."""
    target = before[np.arange(len(start)), :, start] + budget
    target = target + _SLACK * np.abs(target) + _SLACK * before[:, :, -1]
    return np.asarray((before <= target[:, :, None]).sum(axis=2).min(axis=1) - 1)


def _chains(rows: Strategies, seconds: RowSeconds, memory: RowBytes, scenario: Scenario, fewest: Ints) -> _Chains:
    assert seconds.kinds is not None
    assert memory.kinds is not None
    pp = int(rows.pp[0])
    counts = kind_slices(seconds.kinds.depth, int(rows.vpp[0]), folded=bool(folded(rows)[0]))
    every, free = rows.recompute == Recompute.FULL, rows.recompute == Recompute.PARTIAL
    again = counts @ seconds.kinds.each("recompute")
    plain = counts @ seconds.kinds.each("layer") + every * again
    state, stored = counts @ memory.kind_states, counts @ memory.kinds.each("stored")
    light = counts.sum(axis=1)[:, None] * memory.checkpoint
    places = np.broadcast_to(np.arange(pp), (len(rows), pp))
    held = in_flight(rows, places) + memory.queued[:, None]
    extra, (first, last) = stage_extras(rows, seconds, places), ends(rows, places)
    fewest = fewest[:, :pp] if bool(scenario.stack.supports.uneven_stages) else np.ones_like(held, dtype=np.int64)
    usable = memory_limit(scenario, rows) - memory.everywhere
    lean = np.where(every, light, np.where(free, np.minimum(light, stored), stored))
    cheapest = np.where(free, _cheapest(again, np.maximum(stored - light, 0.0)), 0.0)
    passed, states, whole, leanest = (_sums(each) for each in (plain, state, stored, lean))
    sums, room, spare = [], [], []
    for stage in range(pp):
        mine = held[:, stage]
        fixed = first[:, stage] * (memory.first + mine * memory.embedding_activation) + last[:, stage] * memory.last
        left = usable - fixed - (every & (fewest[:, stage] > 0)) * memory.working_at(last[:, stage]) + _SLACK * usable
        rate, times = cheapest / mine, mine[:, None]
        bent = passed + rate[:, None] * (states + times * whole)
        sums.append(np.stack([passed, states + times * leanest, bent], axis=1))
        room.append(left)
        spare.append(rate * left)
    least = ((fewest > 0) * plain.min(axis=0)[:, None] + extra).max(axis=1)
    behind = fewest[:, ::-1].cumsum(axis=1)[:, ::-1] - fewest
    most = passed[:, -1] + extra.max(axis=1) + again.sum(axis=0)
    return _Chains(extra, least, most, behind, tuple(sums), tuple(room), tuple(spare))


def _cheapest(again: Floats, saved: Floats) -> Floats:
    """Least seconds per byte that recomputing any slice takes, (n,); 0 where none saves any."""
    rate = np.where(saved > 0, again / np.where(saved > 0, saved, 1.0), np.inf).min(axis=0)
    return np.where(np.isfinite(rate), rate, 0.0)


def _sums(each: NDArray[Any]) -> Floats:
    """Sums in front of every slice: (S, n) to (n, S + 1)."""
    return np.concatenate([np.zeros((1, each.shape[1])), each.cumsum(axis=0)]).T.copy()
