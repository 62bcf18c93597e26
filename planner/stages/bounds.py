"""An optimistic answer to many stage problems at once: arrays, no solver.

For a limit M on the slowest stage, a stage holds at most as many layers as fit its time and its memory, and
all stages together must hold the model. The least such M is found in two steps: on a concave outline of each
stage's capacity by Newton's method, which approaches from below, then among the whole numbers of layers just
above it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from costmodels.arrays import Bools, Floats, Ints

Figures = Any
"""Numbers as numpy takes them: one for all, or an array."""

RECOMPUTE_MODES = ("none", "free", "all")
"""Modes of recomputation of a stage: nothing, as many layers as it likes, or every layer; the code is the index."""

_FREE, _ALL = 1, 2
_SLACK = 1e-9
"""Relative room for rounding: a bound must stay on the optimistic side."""
_CELLS = 1 << 12
"""Rows times stages to work on at a time, so that temporaries stay in the processor's cache."""
_NEWTON_STEPS = 12
"""Far more than it takes; stopping early only loosens the bound."""
BY_STAGE = ("extra_seconds", "fixed_bytes", "activation_bytes", "checkpoint_bytes", "fewest")
"""Fields of a stage problem that differ from stage to stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRows:
    """N stage problems as columns; the fields are those of ``StageProblem``.

    Every field is (N,) or one number for all rows. The five fields by stage are (N, P) or anything that
    broadcasts to it: P is the most stages of any row, and what stands behind a row's last stage is never
    read. Where stages differ, what a layer costs and what a stage may use is (N, P) too.
    ``recompute`` is an index into ``RECOMPUTE_MODES``; ``layer_seconds`` must be positive.
    """

    num_layers: Figures
    num_stages: Figures
    vpp: Figures
    num_microbatches: Figures
    layer_seconds: Figures
    recompute_seconds: Figures
    extra_seconds: Figures
    memory_limit: Figures
    fixed_bytes: Figures
    layer_bytes: Figures
    activation_bytes: Figures
    checkpoint_bytes: Figures
    recompute: Figures
    uneven: Figures
    working_bytes: Figures = 0.0
    fewest: Figures = 1

    def take(self, index: Ints | Bools) -> StageRows:
        """The given problems."""
        given = {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}
        return StageRows(**{name: x[index] if x.ndim else x for name, x in given.items()})


class StageBound(NamedTuple):
    """Lower bounds of N stage problems, (N,) each; infinite where ``feasible`` is false."""

    slowest: Floats
    total: Floats
    feasible: Bools


def stage_lower_bound(rows: StageRows) -> StageBound:
    """Bounds on the slowest stage's seconds and on their sum over the stages, for N problems at once.

    No split of a row has a smaller slowest stage, and ``pipeline_seconds`` of the two never exceeds the
    optimum (to a relative 1e-9). The sum goes with the slowest stage: a split that lets its slowest stage
    take longer may recompute less, and have a smaller sum. Exact where memory does not bind and where
    layers are even. A row marked infeasible has no split; one marked feasible has, but for rounding.
    """
    given = {field.name: np.asarray(getattr(rows, field.name)) for field in fields(rows)}
    by_stage = {name for name, x in given.items() if name in BY_STAGE or x.ndim > 1}
    given = {name: x if name in by_stage else x[..., None] for name, x in given.items()}
    N, P = np.broadcast_shapes((1, 1), *(x.shape for x in given.values()))
    stages = np.broadcast_to(given["num_stages"], (N, 1))[:, 0]
    widths = {name: max(P, stages.max(initial=1)) if name in by_stage else 1 for name in given}
    columns = {name: np.broadcast_to(x, (N, widths[name])) for name, x in given.items()}
    bound = StageBound(np.empty(N), np.empty(N), np.empty(N, dtype=np.bool_))
    for p in np.flatnonzero(np.bincount(stages)).tolist():
        same = np.flatnonzero(stages == p)
        for part in np.array_split(same, -(-len(same) * p // _CELLS)):
            _fill(bound, part, StageRows(**{name: x[part, :p] for name, x in columns.items()}))
    return bound


class _Outline(NamedTuple):
    """Layers that a stage can hold: ``stored`` layers without recomputation, ``most`` with it, both whole numbers.

    Past ``knee`` layers, which is ``stored`` or more, every further layer asks for at least ``rate``
    recomputed ones. ``over`` is the bytes beyond the limit of an empty stage that recomputes, ``held`` those
    of a stored layer, ``saved`` those that recomputing one gives back (infinite where it gives back nothing).
    """

    stored: Floats
    most: Floats
    knee: Floats
    rate: Floats
    over: Floats
    held: Floats
    saved: Floats
    slopes: Floats
    """Layers that a further second adds to a stage, before its knee and behind it, (2, rows, stages)."""

    def take(self, which: Ints | Bools) -> _Outline:
        """The given rows."""
        return _Outline(*(x[..., which, :] for x in self))


def _fill(bound: StageBound, part: Ints, rows: StageRows) -> None:
    """Write the bounds of ``rows`` into their places; those without any split need no more than that said."""
    outline = _outline(rows)
    fewest = np.where(rows.uneven, rows.fewest, -(-rows.num_layers // rows.num_stages))
    feasible = (outline.most >= fewest).all(axis=1) & (outline.most.sum(axis=1) >= rows.num_layers[:, 0])
    feasible &= fewest.sum(axis=1) <= rows.num_layers[:, 0]
    bound.slowest[part] = bound.total[part] = np.inf
    bound.feasible[part] = feasible
    if not feasible.all():
        part, rows, fewest = part[feasible], rows.take(feasible), fewest[feasible]
        outline = outline.take(feasible)
    if len(part):
        slowest, total = _least(rows, outline, fewest)
        bound.slowest[part], bound.total[part] = slowest * (1 - _SLACK), total * (1 - _SLACK)


def _least(rows: StageRows, outline: _Outline, fewest: Ints) -> tuple[Floats, Floats]:
    """The slowest stage's seconds and all stages' of rows that have a split, (rows,) each."""
    least = _seconds(rows, outline, fewest).max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        slowest, layers = _newton(rows, outline, least)
        slowest = _whole(rows, outline, slowest, layers, fewest)
        total = _least_total(rows, outline, slowest)
    if not rows.uneven.all():
        even = _seconds(rows, outline, fewest).sum(axis=1)
        total = np.where(rows.uneven[:, 0], total, even)
    return slowest[:, 0], total


def _outline(rows: StageRows) -> _Outline:
    room = rows.memory_limit - rows.fixed_bytes
    left = room - rows.working_bytes
    held = rows.layer_bytes + rows.activation_bytes
    saved = rows.activation_bytes - rows.checkpoint_bytes
    free, every = rows.recompute == _FREE, rows.recompute == _ALL
    limit = np.where(rows.uneven, rows.num_layers, rows.num_layers // rows.num_stages)
    stored = np.where(every, 0.0, _layers_in(room, held, limit))
    thin = _layers_in(left, rows.layer_bytes + rows.checkpoint_bytes, limit)
    thin = np.maximum(thin, np.where(room < 0, -1.0, 0.0))  # an empty stage recomputes nothing
    most = np.where(every, thin, np.where(free & (saved > 0), np.maximum(stored, thin), stored))
    saved = np.where(saved > 0, saved, np.inf)
    knee, rate = _bend(rows, stored=stored, most=most, held=held, left=left, saved=saved)
    rate = np.where(every, 1.0, np.where(free, rate, 0.0))
    return _Outline(
        stored=stored,
        most=most,
        knee=np.where(every, 0.0, np.where(free, knee, most)),
        rate=rate,
        over=-left,
        held=held,
        saved=saved,
        slopes=1.0 / (rows.layer_seconds + np.stack([np.zeros_like(rate), rate]) * rows.recompute_seconds),
    )


def _bend(
    rows: StageRows, *, stored: Floats, most: Floats, held: Floats, left: Floats, saved: Floats
) -> tuple[Floats, Floats]:
    """Knee and rate of the outline under free recomputation: of two true ones, the steeper at mean depth.

    One starts where memory is full to the byte, and follows the line of bytes. The other starts at ``stored``
    whole layers; the first layer beyond asks for whole recomputed ones, and so do the first two together.
    """
    room = np.maximum(most - stored, 1.0)
    first, second, third, last = (((stored + k) * held - left) / saved for k in (1.0, 2.0, 3.0, room))
    single, double = (np.maximum(np.ceil(x * (1 - _SLACK) - _SLACK), 1.0) for x in (first, second))
    whole = np.minimum(
        np.minimum(single, double / 2), np.minimum(np.maximum(third, 1.0) / 3, np.maximum(last, 1.0) / room)
    )
    knee = np.clip(left / np.where(held > 0, held, 1.0), stored, most)
    line = np.maximum(((stored + room) * held - left) / saved, 0.0) / np.maximum(stored + room - knee, _SLACK)
    depth = np.maximum(rows.num_layers / rows.num_stages, stored + 1)
    steeper = (depth - stored) * whole > (depth - knee) * line
    return np.where(steeper, stored, knee), np.where(steeper, whole, line)


def _layers_in(room: Floats, each: Floats, limit: Ints) -> Floats:
    """Whole layers that fit in ``room`` bytes, rounding in favour of one more; -1 where not even none do."""
    number = np.floor(room / np.where(each > 0, each, 1.0) * (1 + _SLACK) + _SLACK)
    return np.where(room < 0, -1.0, np.where(each > 0, np.minimum(number, limit), limit))


def _recomputed(rows: StageRows, outline: _Outline, layers: Floats | Ints) -> Floats:
    """Recomputed layers that each stage needs to hold ``layers``, at least."""
    needed = np.ceil((layers * outline.held + outline.over) / outline.saved * (1 - _SLACK) - _SLACK)
    needed = np.where(layers > outline.stored, np.maximum(needed, 1.0), 0.0)
    return np.where(rows.recompute == _ALL, layers, needed)


def _seconds(rows: StageRows, outline: _Outline, layers: Floats | Ints) -> Floats:
    """Seconds of each stage that holds ``layers``; infinite where it cannot."""
    seconds = layers * rows.layer_seconds + rows.extra_seconds
    seconds += _recomputed(rows, outline, layers) * rows.recompute_seconds
    return np.where(layers <= outline.most, seconds, np.inf)


def _capacity(rows: StageRows, outline: _Outline, slowest: Floats) -> tuple[Floats, Floats]:
    """Layers on the concave outline within ``slowest`` seconds, and how many a further second adds."""
    first, second = outline.slopes
    plain = (slowest - rows.extra_seconds) * first
    bent = outline.knee + (plain - outline.knee) * (second / first)
    layers = np.minimum(np.minimum(plain, bent), outline.most)
    gain = np.where(layers < outline.most, np.where(plain < bent, first, second), 0.0)
    return layers, gain


def _newton(rows: StageRows, outline: _Outline, slowest: Floats) -> tuple[Floats, Floats]:
    """The least limit, from ``slowest`` upwards, at which the outlines hold all layers; and what each holds.

    The sum of capacities is concave in the limit, so each step of Newton's method stops short of the answer.
    """
    for _ in range(_NEWTON_STEPS):
        layers, gain = _capacity(rows, outline, slowest)
        missing = rows.num_layers - layers.sum(axis=1, keepdims=True)
        step = missing / gain.sum(axis=1, keepdims=True)
        step = np.where((missing > _SLACK * rows.num_layers) & np.isfinite(step), step, 0.0)
        if not step.any():
            break
        slowest = slowest + step
    return slowest, layers


def _whole(rows: StageRows, outline: _Outline, slowest: Floats, held: Floats, fewest: Ints) -> Floats:
    """The limit raised to what whole layers need.

    From ``base`` layers per stage, some d more must be placed, and each has its seconds: the d-th fastest of
    all is a lower bound. Two candidates per stage are looked at; a third one's seconds end what they can
    prove.
    """
    base = np.maximum(np.floor(held * (1 + _SLACK)), fewest)
    base -= (base > fewest) & (_seconds(rows, outline, base) > slowest * (1 + _SLACK))
    missing = (rows.num_layers - base.sum(axis=1, keepdims=True)).astype(np.int64)
    p = base.shape[1]
    steps = np.concatenate([_seconds(rows, outline, base + 1), _seconds(rows, outline, base + 2)], axis=1)
    steps.sort(axis=1)
    needed = np.take_along_axis(steps, np.clip(missing - 1, 0, 2 * p - 1), axis=1)
    beyond = _seconds(rows, outline, base + 3).min(axis=1, keepdims=True)
    raised = np.maximum(slowest, np.minimum(needed, beyond))
    return np.where(missing > 0, raised, slowest)


def _least_total(rows: StageRows, outline: _Outline, slowest: Floats) -> Floats:
    """Seconds of all stages that, together with ``slowest``, never overstate the objective."""
    extra = rows.extra_seconds.sum(axis=1)
    if rows.layer_seconds.shape[1] > 1:
        return np.asarray(extra + _least_filled(rows, outline, slowest, *(1 / outline.slopes), unit=1.0))
    layers, each = rows.num_layers[:, 0].astype(np.float64), rows.recompute_seconds[:, 0]
    recomputed = np.where(rows.recompute[:, 0] == _ALL, layers, 0.0)
    (free,) = np.nonzero(rows.recompute[:, 0] == _FREE)
    if len(free):
        some, their = rows.take(free), outline.take(free)
        recomputed[free] = _least_filled(some, their, slowest[free], 0.0, their.rate, unit=each[free])
    return np.asarray(extra + layers * rows.layer_seconds[:, 0] + recomputed * each)


def _least_filled(
    rows: StageRows, outline: _Outline, slowest: Floats, first: Floats | float, second: Floats, *, unit: Floats | float
) -> Floats:
    """What all layers cost at least where the cheapest parts of the outlines are filled first, (rows,).

    ``first`` and ``second`` are the costs of a layer before the knee and behind it, in ``unit`` seconds each: all its
    seconds where stages differ, else the layers that are recomputed for it. On the outline that sum falls convexly with
    the limit on the slowest stage, so that where a further second of the limit costs the objective more than it saves,
    no higher limit pays; elsewhere it is the sum without limit.
    """
    needed, saving = _filled(rows, outline, slowest, first, second)
    pays = rows.num_microbatches[:, 0] * rows.vpp[:, 0] - 1 < saving * unit
    if pays.any():
        unlimited, _ = _filled(rows, outline, np.full_like(slowest, np.inf), first, second)
        needed = np.where(pays, unlimited, needed)
    return needed


def _filled(
    rows: StageRows, outline: _Outline, slowest: Floats, first: Floats | float, second: Floats
) -> tuple[Floats, Floats]:
    """The cost of all layers within ``slowest``, (rows,), and how much a further second saves."""
    layers, gain = _capacity(rows, outline, slowest)
    stored = np.minimum(layers, outline.knee)
    price, room, wanted = second, layers - stored, rows.num_layers
    if np.ndim(first):
        price, room = np.concatenate([first, second], axis=1), np.concatenate([stored, room], axis=1)
    else:  # nothing before the knee costs anything
        wanted = wanted - stored.sum(axis=1, keepdims=True)
    needed, last = _cheapest(price, room, wanted)
    cheaper = np.maximum(last - np.where(layers < outline.knee, first, second), 0.0)
    return needed * (1 - _SLACK), (gain * cheaper).sum(axis=1)


def _cheapest(price: Floats, room: Floats, wanted: Ints | Floats) -> tuple[Floats, Floats]:
    """The price of filling ``wanted`` places, (n, 1), the cheapest first, (n,), and the price of the last, (n, 1).

    ``price`` and ``room`` are those of every part that can be filled, (n, parts).
    """
    order = np.argsort(price, axis=1)
    price, room = np.take_along_axis(price, order, axis=1), np.take_along_axis(room, order, axis=1)
    filled = np.clip(wanted - (np.cumsum(room, axis=1) - room), 0.0, room)
    return (filled * price).sum(axis=1), np.where(filled > 0, price, 0.0).max(axis=1, keepdims=True)
