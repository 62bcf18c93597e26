"""An optimistic answer to many stage problems whose slices differ: arrays, no solver.

Given a limit on the slowest stage, each stage in turn takes as many slices as its time and its memory allow; the
limit is too low for any split if the stages together do not reach the end. What a stage asks for grows with what it
holds, so that taking the most is never worse. Some limits at a time bring the one that is too low up to where it may
be high enough. Most limits are too low by the slices of the usual kind alone, however the others are split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

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
_NEAR = 2e-5
"""How near they come to each other: 18 halvings at most, in a third of the calls, which cost more than they compare."""
_COARSE = 1e-3
"""Room for how coarsely that ends."""
_SECONDS = np.array([1.0, 0.0, 1.0])
"""Which of the three sums that stages are limited in are seconds."""
_TINY = 1e-30
"""Seconds or bytes that stand for none where something is divided by them."""
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
        stages = _stages(rows.take(part), seconds.take(part), memory.take(part), scenario, fewest[part])
        limits = np.minimum(limit[part], stages.most)
        likely = np.flatnonzero(stages.may_reach(limits))
        if not len(likely):
            continue
        chains = _chains(stages.take(likely))
        held = np.flatnonzero(chains.reaches(limits[likely, None])[:, 0])
        if len(held):
            part = part[likely[held]]
            bound.feasible[part] = True
            bound.slowest[part] = _lowest(chains.take(held), low[part], limits[likely[held]]) * (1 - _SLACK)
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


def _lowest(chains: _Chains, low: Floats, high: Floats) -> Floats:
    """A limit on the slowest stage that is too low or just enough, (n,), as ``high`` is: no split is below."""
    low = np.maximum(low, chains.stages.least)
    high, each = np.maximum(low, high), np.arange(len(low))
    while (high > low * (1.0 + _NEAR)).any():
        limits = low[:, None] * (high / low)[:, None] ** _SHARES
        too_low = (~chains.reaches(limits[:, :-1])).sum(axis=1)
        low, high = limits[each, np.maximum(too_low - 1, 0)], limits[each, too_low]
    return low


@dataclass(frozen=True, slots=True)
class _Stages(Columns):
    """What stages have, of rows with the same number of stages p and slices S, and what slices ask for."""

    least: Floats
    """Seconds that no slowest stage is below, (n,)."""
    most: Floats
    """Seconds that no slowest stage needs more than, (n,)."""
    possible: Bools
    """Whether every stage has room for what it holds besides its slices, (n,)."""
    last: Ints
    """The last slice boundary that leaves enough slices to the stages behind each one, (n, p)."""
    budget: Floats
    """What a stage has for each of the sums that ``_asked`` of it, (n, p, 3), and a limit on its seconds."""
    times: Floats
    """Micro-batches whose activations a stage holds, (n, p)."""
    rate: Floats
    """Least seconds that it takes to recompute a byte of a stage, (n, p)."""
    slices: Floats
    """Seconds, bytes of states, of activations in their leanest form and stored, of each slice, (n, 4, S)."""
    usual: Ints
    """A slice of the kind that is most frequent, and how many there are, (n, 2)."""

    def may_reach(self, limits: Floats) -> Bools:
        """Whether stages within the ``limits``, (n,), can hold all slices of the usual kind, and no others, (n,)."""
        (place, number), slices = self.usual.T, self.slices
        one = np.take_along_axis(slices, place[:, None, None], axis=2)
        each = _asked(one.transpose(1, 0, 2), self.times, self.rate)
        have = (self.budget + limits[:, None, None] * _SECONDS) * (1.0 + _SLACK)
        held = np.floor((have / np.maximum(each, _TINY)).min(axis=2))
        return self.possible & (np.maximum(held, 0.0).sum(axis=1) >= number)


@dataclass(frozen=True, slots=True)
class _Chains(Columns):
    """Stages, and what all slices in front of each ask of them."""

    stages: _Stages
    sums: tuple[Floats, ...]
    """Of each stage (n, 3, S + 2): what slices in front of every one ``_asked`` of it; infinite behind the last."""

    def reaches(self, limits: Floats) -> Bools:
        """Whether stages within k ``limits`` can hold all slices, some each at least, as far as seen here, (n, k)."""
        start, slices = np.zeros(limits.shape, dtype=np.int64), self.stages.slices.shape[2]
        each, allowed = np.arange(len(limits))[:, None], limits[:, :, None] * _SECONDS
        for stage, before in enumerate(self.sums):
            target = (before[each, :, start] + (allowed + self.stages.budget[:, stage, None])) * (1.0 + _SLACK)
            held = (before[:, None] > target[..., None]).argmax(axis=3).min(axis=2) - 1
            start = np.maximum(start, np.minimum(held, self.stages.last[:, stage, None]))
        return (start >= slices) & self.stages.possible[:, None]


def _chains(stages: _Stages) -> _Chains:
    slices = np.pad(stages.slices.cumsum(axis=2), ((0, 0), (0, 0), (1, 0))).transpose(1, 0, 2)
    sums = []
    for times, rate in zip(stages.times.T[:, :, None], stages.rate.T[:, :, None], strict=True):
        before = np.full((len(times), 3, slices.shape[2] + 1), np.inf)
        before[:, :, :-1] = _asked(slices, times, rate).transpose(0, 2, 1)
        sums.append(before)
    return _Chains(stages, tuple(sums))


def _asked(slices: Floats, times: Floats, rate: Floats) -> Floats:
    """What slices (4, ...) ask of stages that hold activations so many ``times``, arrays (..., 3).

    Seconds; bytes in their leanest form; seconds and what memory asks to recompute for each byte stored.
    """
    seconds, states, leanest, stored = slices
    lean, bent = states + times * leanest, seconds + rate * (states + times * stored)
    return np.stack(np.broadcast_arrays(seconds, lean, bent), axis=-1)


def _stages(rows: Strategies, seconds: RowSeconds, memory: RowBytes, scenario: Scenario, fewest: Ints) -> _Stages:
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
    rate = np.where(free, _cheapest(again, np.maximum(stored - light, 0.0)), 0.0)[:, None] / held
    room = (usable * (1.0 + _SLACK))[:, None] - _bytes_at_ends(memory, held, first, last)
    room = room - (every[:, None] & (fewest > 0)) * memory.working_at(last)
    slices = np.stack([plain, state, lean, stored]).transpose(2, 0, 1)
    whole = _asked(slices.sum(axis=2).T[:, :, None], held, rate)
    behind = fewest[:, ::-1].cumsum(axis=1)[:, ::-1] - fewest
    _, kinds, number = np.unique(counts, axis=0, return_index=True, return_counts=True)
    return _Stages(
        least=((fewest > 0) * plain.min(axis=0)[:, None] + extra).max(axis=1),
        most=plain.sum(axis=0) + extra.max(axis=1) + again.sum(axis=0),
        possible=(room >= 0.0).all(axis=1),
        last=len(counts) - behind,
        budget=np.stack([-extra, room, rate * room - extra], axis=2) + _SLACK * whole,
        times=held,
        rate=rate,
        slices=slices,
        usual=np.broadcast_to([kinds[number.argmax()], number.max()], (len(rows), 2)),
    )


def _bytes_at_ends(memory: RowBytes, held: Floats, first: Bools, last: Bools) -> Floats:
    """Bytes of the embedding and the head, by stage, (n, p)."""
    embedding = memory.first[:, None] + held * memory.embedding_activation[:, None]
    return first * embedding + last * memory.last[:, None]


def _cheapest(again: Floats, saved: Floats) -> Floats:
    """Least seconds per byte that recomputing any slice takes, (n,); 0 where none saves any."""
    rate = np.where(saved > 0, again / np.where(saved > 0, saved, 1.0), np.inf).min(axis=0)
    return np.where(np.isfinite(rate), rate, 0.0)
