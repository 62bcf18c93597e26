"""Which rules really leave nothing: those that refuse every strategy alone, else those without which some are left.

In a lattice each rule sees what those before it left, so that a rule about one value of a range may have refused much
and still not matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.scenario import Scenario
from planner.answer.plan import Rejection
from planner.request.budget import CORE, Budget
from planner.request.pins import Pin
from planner.rules.rule import Rule
from planner.space.lattice import LAYOUT, SHARDING, axes_of, build, layouts, sharding_degrees

EFFORT = 1e6
"""Effort in which lattices without one of the rules are laid out."""
MOST = 2_000_000
"""Combinations of what a rule reads that are looked at."""

Columns = Mapping[str, NDArray[Any]]


def decisive(
    found: Sequence[Rejection], scenario: Scenario, pins: Mapping[str, Pin], rules: Sequence[Rule]
) -> tuple[Rejection, ...]:
    """Of the refusals that left nothing, those that it is due to; all of them where no single rule decides."""
    known = {rule.name: rule for rule in rules}
    binding = [one for one in found if one.rule in known]
    alone = [one for one in binding if _refuses_all(known[one.rule], scenario, pins)]
    if alone:
        return tuple(alone)
    budget, needed = Budget(effort=EFFORT), []
    for one in reversed(binding):
        if budget.spent():
            break
        space = build(scenario, pins, without=one.rule)
        budget.spend(CORE * len(space.cores))
        if space.allowed.any():
            needed.append(one)
    return tuple(reversed(needed)) or tuple(found)


def _refuses_all(rule: Rule, scenario: Scenario, pins: Mapping[str, Pin]) -> bool:
    """Whether a rule refuses every combination of what it reads that the pins allow."""
    axes = axes_of(scenario, pins)
    stage, degree = axes.pop("sharding").T
    reads = set(rule.reads)
    columns: Columns = layouts(scenario.gpus, pins)
    if not reads & SHARDING:
        columns = _distinct({name: columns[name] for name in LAYOUT if name in reads})
    for axis in reads - SHARDING - set(LAYOUT):
        columns = _crossed(columns, {axis: axes[axis]})
    if reads & SHARDING:  # rows by options, as in the lattice
        columns = {name: column[:, None] for name, column in columns.items()} | {"zero_stage": stage[None, :]}
        columns = {**columns, "sharding_degree": sharding_degrees(columns, degree[None, :])}
    count = math.prod(np.broadcast_shapes(*(column.shape for column in columns.values())))
    return count <= MOST and not np.any(rule.passes(columns, scenario))


def _distinct(columns: Columns) -> Columns:
    """Every combination of values once."""
    if not columns:
        return columns
    rows = np.unique(np.stack(list(columns.values()), axis=1), axis=0)
    return dict(zip(columns, rows.T, strict=True))


def _crossed(columns: Columns, added: Columns) -> Columns:
    """Every row of some columns with every row of others."""
    rows = max((len(column) for column in columns.values()), default=1)
    times = max(len(column) for column in added.values())
    if rows * times > MOST:
        return {**columns, **{name: np.zeros(MOST + 1, dtype=np.int64) for name in added}}
    wide = {name: np.repeat(column, times) for name, column in columns.items()}
    return wide | {name: np.tile(column, rows) for name, column in added.items()}
