"""Every constraint of the solver's model alone, against all assignments of its switches."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from ortools.sat.python import cp_model

from planner.stages.boolean_model import (
    boolean_model,
    every_layer_is_held,
    layers_come_in_order,
    levels_come_in_order,
    scale_of,
    slowest_takes_what_stages_take,
)
from planner.stages.tables import objective, split_of, stage_table
from tests.planner.stages.test_stages import tight


class Every(cp_model.CpSolverSolutionCallback):
    """All assignments of some switches that a model allows."""

    def __init__(self, switches):
        super().__init__()
        self.switches, self.found = switches, set()

    def on_solution_callback(self):
        self.found.add(tuple(self.boolean_value(one) for one in self.switches))


def allowed(model, switches):
    """Which assignments the model allows."""
    solver, every = cp_model.CpSolver(), Every(switches)
    solver.parameters.enumerate_all_solutions = True
    solver.parameters.num_workers = 1
    solver.solve(model, every)
    return every.found


def switches_of(model, cells):
    return {cell: model.new_bool_var(str(cell)) for cell in cells}


def test_a_stage_that_holds_a_layer_holds_those_before_it():
    model = cp_model.CpModel()
    holds = switches_of(model, [(1, 0), (2, 0), (3, 0), (1, 1)])
    layers_come_in_order(model, holds)
    in_order = {(a, b, c, d) for a, b, c, d in product((False, True), repeat=4) if a >= b >= c}
    assert allowed(model, list(holds.values())) == in_order


def test_a_slowest_stage_that_takes_a_level_takes_the_shorter_ones():
    model = cp_model.CpModel()
    takes = list(switches_of(model, range(3)).values())
    levels_come_in_order(model, takes)
    assert allowed(model, takes) == {(False,) * 3, (True, False, False), (True, True, False), (True,) * 3}


def test_the_stages_hold_all_layers():
    model = cp_model.CpModel()
    holds = switches_of(model, [(n, s) for s in range(2) for n in (1, 2)])
    every_layer_is_held(model, holds, 3)
    assert {sum(found) for found in allowed(model, list(holds.values()))} == {3}


@pytest.fixture(name="parts")
def fixture_parts():
    problem = tight(0, 2)
    table = stage_table(problem)
    even = split_of(problem, table, np.array([problem.num_layers // 2] * 2))
    return problem, table, scale_of(problem, table, ceiling=2.0 * objective(problem, even))


def test_the_slowest_stage_takes_at_least_what_a_stage_takes(parts):
    _, table, scale = parts
    model = cp_model.CpModel()
    n = int(np.flatnonzero(np.isfinite(table.seconds[:, 0]) & (table.seconds[:, 0] > scale.levels[0]))[0])
    holds = switches_of(model, [(n, 0)])
    takes = list(switches_of(model, range(len(scale.levels))).values())
    levels_come_in_order(model, takes)
    slowest_takes_what_stages_take(model, holds, takes, table, scale)
    reached = int(np.searchsorted(scale.levels, table.seconds[n, 0], side="right"))
    counts = {(held, sum(levels)) for held, *levels in allowed(model, [holds[n, 0], *takes])}
    assert min(count for held, count in counts if held) == reached > 0
    assert min(count for held, count in counts if not held) == 0


def test_the_cost_of_a_split_is_that_of_its_switches(parts):
    problem, table, scale = parts
    half = problem.num_layers // 2
    for layers in ([half, half], [half + 1, half - 1], [half - 1, half + 1]):
        if not np.isfinite(table.seconds[layers, [0, 1]]).all():
            continue
        split = split_of(problem, table, np.array(layers))
        model = cp_model.CpModel()
        holds, cost = boolean_model(model, problem, table, scale)
        for (n, s), held in holds.items():
            model.add(held == int(n <= layers[s]))
        model.minimize(cost)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        assert solver.solve(model) == cp_model.OPTIMAL
        assert round(solver.objective_value) == scale.cost(split, table)


@pytest.mark.parametrize("vpp", [1, 2])
def test_a_cost_stands_for_the_objective_rounded_down(vpp):
    """Where stages differ in what a layer takes, as they do over several node groups."""
    problem = replace(tight(0, 2), vpp=vpp, layer_seconds=(0.010, 0.013), recompute_seconds=(0.003, 0.004))
    table = stage_table(problem)
    fewest, most = problem.num_layers - int(table.most[1]), int(table.most[0])
    splits = [split_of(problem, table, np.array([n, problem.num_layers - n])) for n in range(fewest, most + 1, 5)]
    values = np.array([objective(problem, split) for split in splits])
    scale = scale_of(problem, table, ceiling=values.min())
    said = np.array([scale.seconds(scale.cost(split, table)) for split in splits])
    assert (said <= values * (1 + 1e-14)).all()
    assert said == pytest.approx(values, rel=1e-7)
    assert len(splits) > 2
