"""The price of strategies: seconds and bytes, of many rows under an even split or of one row under any split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.by_kind import stage_layers
from costmodels.iteration import (
    Breakdown,
    RowSeconds,
    at_stage,
    breakdown,
    compose,
    even_split,
    row_seconds,
    stage_extras,
)
from costmodels.memory import Footprint, RowBytes, footprint, row_bytes
from costmodels.scenario import Scenario
from costmodels.split import even_stages
from costmodels.strategy import Floats, Ints, Recompute, Strategies


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds of one iteration for N strategies under the best even split, and what they are composed of."""

    seconds: RowSeconds
    slowest: Floats
    total: Floats
    iteration: Floats


def price(rows: Strategies, scenario: Scenario) -> Prices:
    """Price N strategies at full fidelity; layers are split evenly, recompute FULL and PARTIAL repeat every layer."""
    seconds = row_seconds(rows, scenario)
    again = (rows.recompute >= Recompute.FULL).astype(np.float64)
    slowest, total = even_split(rows, seconds, scenario.model.num_layers, again)
    return Prices(seconds, slowest, total, compose(rows, seconds, slowest, total))


@dataclass(frozen=True, slots=True)
class Assignment:
    """Layers and recomputed layers of every stage, arrays (pp,)."""

    layers: Ints
    recomputed: Ints


@dataclass(frozen=True, slots=True)
class Quote:
    """The price of one strategy under one assignment of layers to stages."""

    iteration: float
    stage_seconds: Floats
    breakdown: dict[str, float]
    footprint: Footprint
    seconds: RowSeconds
    memory: RowBytes


def quote(rows: Strategies, scenario: Scenario, assignment: Assignment, *, row: int = 0) -> Quote:
    """Price one row of ``rows`` under an explicit assignment."""
    one = rows.take(np.array([row]))
    seconds, memory = row_seconds(one, scenario), row_bytes(one, scenario)
    stages = stage_seconds(one, seconds, assignment)
    slow = int(np.argmax(stages))
    held, again = stage_layers(one, scenario.depth, assignment.layers, assignment.recomputed)
    terms: Breakdown = breakdown(
        one,
        at_stage(seconds, held[slow], again[slow]),
        slowest=stages[slow : slow + 1],
        total=np.array([stages.sum()]),
        layers=assignment.layers[slow : slow + 1].astype(np.float64),
        recomputed=assignment.recomputed[slow : slow + 1].astype(np.float64),
    )
    return Quote(
        iteration=float(compose(one, seconds, stages[slow : slow + 1], np.array([stages.sum()]))[0]),
        stage_seconds=stages,
        breakdown=terms.row(0),
        footprint=footprint(one, memory, scenario, row=0, layers=assignment.layers, recomputed=assignment.recomputed),
        seconds=seconds,
        memory=memory,
    )


def stage_seconds(one: Strategies, seconds: RowSeconds, assignment: Assignment) -> Floats:
    """Forward and backward seconds of every stage for one micro-batch, shape (pp,)."""
    layers = assignment.layers * seconds.layer[0] + assignment.recomputed * seconds.recompute[0]
    if seconds.kinds is not None:
        held, again = stage_layers(one, seconds.kinds.depth, assignment.layers, assignment.recomputed)
        layers = held @ seconds.kinds.each("layer")[:, 0] + again @ seconds.kinds.each("recompute")[:, 0]
    return layers + stage_extras(seconds, 0, int(one.pp[0]))


def even_assignment(
    num_layers: int, pp: int, recompute: int, layers: Sequence[int] | None = None, *, vpp: int = 1
) -> Assignment:
    """The even split (shorter stages last, then first), or the given layers; FULL recomputes all of them."""
    held = even_stages(num_layers, pp, vpp) if layers is None else np.asarray(layers, dtype=np.int64)
    again = held if recompute >= Recompute.FULL else np.zeros_like(held)
    return Assignment(held, again.copy())


def row_assignment(row: Strategies, num_layers: int, layers: Sequence[int] | None = None) -> Assignment:
    """The even split of a single row, or the given layers."""
    return even_assignment(num_layers, int(row.pp[0]), int(row.recompute[0]), layers, vpp=int(row.vpp[0]))
