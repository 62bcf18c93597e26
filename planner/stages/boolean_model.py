"""The stage problem as CP-SAT reads it: two kinds of switches, four constraints, one cost.

``holds[n, s]``: stage s holds n layers or more. ``takes[k]``: the slowest stage takes level k or longer, a level being
seconds that a stage can take. A split is the switches that hold; what it costs is counted in whole numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from costmodels.arrays import Floats, Ints
from planner.stages.problem import StageProblem
from planner.stages.tables import Split, StageTable, floors, objective, steps_above, total_seconds

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    Holds = dict[tuple[int, int], cp_model.IntVar]
    Takes = list[cp_model.IntVar]


RESOLUTION = 1e10
"""The solver counts seconds in units of the best known objective divided by this."""


class Scale(NamedTuple):
    """Whole numbers for the solver: ``(seconds above base, in units) * weight + recomputed layers``.

    Everything is rounded down, so that the solver's bound is a bound on the seconds too. ``layer`` and
    ``recompute`` are by stage: a layer beyond the fastest stage's seconds, and a recomputed layer.
    """

    levels: Floats
    steps: Ints
    base: float
    unit: float
    weight: int
    layer: Ints
    recompute: Ints

    def cost(self, split: Split, table: StageTable) -> int:
        """The cost of one split in the solver's numbers."""
        level = int(np.searchsorted(self.levels, split.slowest, side="right"))
        again = table.recomputed[split.layers, np.arange(len(split.layers))]
        beyond = int(split.layers @ self.layer + again @ self.recompute)
        return self.weight * (int(self.steps[:level].sum()) + beyond) + int(again.sum())

    def seconds(self, cost: float) -> float:
        """The least objective that a split of this cost can have."""
        return self.base + self.unit * math.floor(cost / self.weight)


def scale_of(problem: StageProblem, table: StageTable, *, ceiling: float) -> Scale:
    """Levels are the seconds that the slowest stage can take, each with its step in the objective."""
    slowest = floors(problem, table)[0]
    cells = table.seconds[steps_above(table)]
    levels = np.unique(cells[cells > slowest])
    unit = ceiling / RESOLUTION
    each, nothing = problem.each("layer_seconds"), np.zeros(problem.num_stages, dtype=np.int64)
    above = np.floor((levels - slowest) * (problem.num_microbatches - 1 / problem.vpp) / unit)
    return Scale(
        levels=levels,
        steps=np.diff(above, prepend=0.0).astype(np.int64),
        base=objective(problem, Split(table.fewest, slowest, total_seconds(problem, nothing, nothing), 0)),
        unit=unit,
        weight=problem.num_layers + 1,
        layer=np.floor((each - each.min()) / problem.vpp / unit).astype(np.int64),
        recompute=np.floor(problem.each("recompute_seconds") / problem.vpp / unit).astype(np.int64),
    )


def boolean_model(
    model: cp_model.CpModel, problem: StageProblem, table: StageTable, scale: Scale
) -> tuple[Holds, cp_model.LinearExprT]:
    """The switches of layers, and the cost of what they say in the numbers of ``scale``."""
    holds = {(n, s): model.new_bool_var(f"stage {s} holds {n}") for n, s in np.argwhere(steps_above(table)).tolist()}
    takes = [model.new_bool_var(f"slowest takes level {k}") for k in range(len(scale.levels))]
    layers_come_in_order(model, holds)
    levels_come_in_order(model, takes)
    slowest_takes_what_stages_take(model, holds, takes, table, scale)
    every_layer_is_held(model, holds, problem.num_layers - int(table.fewest.sum()))
    return holds, cost_of(holds, takes, problem, table, scale)


def layers_come_in_order(model: cp_model.CpModel, holds: Holds) -> None:
    """A stage that holds n layers holds n - 1."""
    for (n, s), held in holds.items():
        if (n - 1, s) in holds:
            model.add_implication(held, holds[n - 1, s])


def levels_come_in_order(model: cp_model.CpModel, takes: Takes) -> None:
    """A slowest stage that takes a level takes every shorter one."""
    for longer, shorter in zip(takes[1:], takes, strict=False):
        model.add_implication(longer, shorter)


def slowest_takes_what_stages_take(
    model: cp_model.CpModel, holds: Holds, takes: Takes, table: StageTable, scale: Scale
) -> None:
    """A stage with so many layers makes the slowest take the level of its seconds."""
    for (n, s), held in holds.items():
        level = int(np.searchsorted(scale.levels, table.seconds[n, s], side="right"))
        if level:
            model.add_implication(held, takes[level - 1])


def every_layer_is_held(model: cp_model.CpModel, holds: Holds, layers: int) -> None:
    """The stages hold so many layers beyond the fewest that each must."""
    model.add(sum(holds.values()) == layers)


def cost_of(holds: Holds, takes: Takes, problem: StageProblem, table: StageTable, scale: Scale) -> cp_model.LinearExprT:
    """Seconds above the base in units times the weight, and the recomputed layers, of what the switches say."""
    again = scale.weight * scale.recompute + 1
    first = scale.weight * int(table.fewest @ scale.layer)
    first += int(table.recomputed[table.fewest, np.arange(problem.num_stages)] @ again)
    price = scale.weight * scale.layer + np.diff(table.recomputed, axis=0, prepend=0) * again
    beyond = first + sum(int(price[cell]) * held for cell, held in holds.items())
    slower = sum(int(step) * taken for step, taken in zip(scale.steps, takes, strict=True))
    return scale.weight * slower + beyond
