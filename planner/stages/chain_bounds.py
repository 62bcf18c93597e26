"""An optimistic answer to many stage problems whose slices differ: arrays, no solver.

Given a limit on the slowest stage, each stage in turn takes as many slices as its time and its memory allow; the
limit is too low for any split if the stages together do not reach the end. What a stage asks for grows with what it
holds, so that taking the most is never worse. Some limits at a time bring the one that is too low up to where it may
be high enough.
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
_SHARES = np.linspace(0.0, 1.0, 9)
"""Limits to try between one that is too low and one that is not: these shares of the way, as ratios."""
_TIMES = 6
"""How often: as fine as 18 halvings, in a third of the calls, which cost more than what they compare."""
_COARSE = 1e-3
"""Room for how coarsely that ends."""
_SECONDS = np.array([1.0, 0.0, 1.0])
"""Which of the three sums that stages are limited in are seconds."""
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
        reached = chains.reaches(np.minimum(limit[part], chains.most)[:, None])[:, 0]
        if len(held := np.flatnonzero(reached)):
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
    high, each = np.maximum(low, chains.most), np.arange(len(low))
    for _ in range(_TIMES):
        limits = low[:, None] * (high / low)[:, None] ** _SHARES
        too_low = (~chains.reaches(limits[:, :-1])).sum(axis=1)
        low, high = limits[each, np.maximum(too_low - 1, 0)], limits[each, too_low]
    return low


@dataclass(frozen=True, slots=True)
class _Chains(Columns):
    """Rows with the same number of stages p and slices S."""

    least: Floats
    """No slowest stage is below, (n,)."""
    most: Floats
    """Seconds that no slowest stage needs more than, (n,)."""
    possible: Bools
    """Whether every stage has room for what it holds beside its slices, (n,)."""
    most_held: Ints
    """The last slice boundary that leaves enough slices to the stages behind each one, (n, p)."""
    sums: tuple[Floats, ...]
    """Of each stage (n, 3, S + 2): in front of every slice its seconds; bytes of slices in their leanest form; seconds
    and what memory asks to recompute for each slice stored. Infinite behind the last."""
    budget: Floats
    """What a stage has for each of these, (n, p, 3), to which a limit on its seconds adds where ``_SECONDS`` says."""

    def reaches(self, limits: Floats) -> Bools:
        """Whether stages within k ``limits`` can hold all slices, some each at least, as far as seen here, (n, k)."""
        start, slices = np.zeros(limits.shape, dtype=np.int64), self.sums[0].shape[2] - 2
        each, allowed = np.arange(len(limits))[:, None], limits[:, :, None] * _SECONDS
        for stage, before in enumerate(self.sums):
            target = (before[each, :, start] + (allowed + self.budget[:, stage, None])) * (1.0 + _SLACK)
            held = (before[:, None] > target[..., None]).argmax(axis=3).min(axis=2) - 1
            start = np.maximum(start, np.minimum(held, self.most_held[:, stage, None]))
        return (start >= slices) & self.possible[:, None]


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
    stages = np.arange(pp)
    held = in_flight(rows.take(np.repeat(np.arange(len(rows)), pp)), np.tile(stages, len(rows))).reshape(-1, pp)
    held = held + memory.queued[:, None]
    places = np.broadcast_to(stages, held.shape)
    extra, (first, last) = stage_extras(rows, seconds, places), ends(rows, places)
    fewest = fewest[:, :pp] if bool(scenario.stack.supports.uneven_stages) else np.ones_like(held, dtype=np.int64)
    usable = memory_limit(scenario, rows) - memory.everywhere
    lean = np.where(every, light, np.where(free, np.minimum(light, stored), stored))
    cheapest = np.where(free, _cheapest(again, np.maximum(stored - light, 0.0)), 0.0)
    passed, states, whole, leanest = (_sums(each) for each in (plain, state, stored, lean))
    room = (usable * (1.0 + _SLACK))[:, None] - _bytes_at_ends(memory, held, first, last)
    room = room - (every[:, None] & (fewest > 0)) * memory.working_at(last)
    rate = cheapest[:, None] / held
    sums = []
    for times, per_byte in zip(held.T[:, :, None], rate.T[:, :, None], strict=True):
        before = np.full((len(rows), 3, len(counts) + 2), np.inf)
        before[:, 0, :-1] = passed
        before[:, 1, :-1] = states + times * leanest
        before[:, 2, :-1] = passed + per_byte * (states + times * whole)
        sums.append(before)
    least = ((fewest > 0) * plain.min(axis=0)[:, None] + extra).max(axis=1)
    behind = fewest[:, ::-1].cumsum(axis=1)[:, ::-1] - fewest
    most = passed[:, -1] + extra.max(axis=1) + again.sum(axis=0)
    budget = np.stack([-extra, room, rate * room - extra], axis=2)
    budget += _SLACK * np.stack([each[:, :, -2] for each in sums], axis=1)
    return _Chains(least, most, (room >= 0.0).all(axis=1), len(counts) - behind, tuple(sums), budget)


def _bytes_at_ends(memory: RowBytes, held: Floats, first: Bools, last: Bools) -> Floats:
    """Bytes of the embedding and the head beside layers, by stage, (n, p)."""
    embedding = memory.first[:, None] + held * memory.embedding_activation[:, None]
    return first * embedding + last * memory.last[:, None]


def _cheapest(again: Floats, saved: Floats) -> Floats:
    """Least seconds per byte that recomputing any slice takes, (n,); 0 where none saves any."""
    rate = np.where(saved > 0, again / np.where(saved > 0, saved, 1.0), np.inf).min(axis=0)
    return np.where(np.isfinite(rate), rate, 0.0)


def _sums(each: NDArray[Any]) -> Floats:
    """Sums in front of every slice: (S, n) to (n, S + 1)."""
    return np.concatenate([np.zeros((1, each.shape[1])), each.cumsum(axis=0)]).T.copy()
