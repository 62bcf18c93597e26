"""Choices that the solver does not see are no better in anything than one that it sees."""

import numpy as np
import pytest

from costmodels.sparse.model import SparseModel
from costmodels.sparse.parameter_server import SparseScenario
from costmodels.sparse.server_runtime import runtime
from hardware.servers import sparse_cluster
from planner.request.budget import Budget
from planner.sparse.layout import demands, layout, undominated
from planner.sparse.solver import PAGE, UNIT, Limits, holds, solve

CRITEO = (
    1460,
    583,
    10131227,
    2202608,
    305,
    24,
    12517,
    633,
    3,
    93145,
    5683,
    8351593,
    3194,
    27,
    14992,
    5461306,
    10,
    5652,
)
CRITEO += (2173, 4, 7046547, 18, 15, 286181, 105, 142572)
"""Rows of the 26 tables of Criteo's Kaggle data."""


def criteo(rows=CRITEO):
    tables = [{"name": f"c{n}", "rows": count, "width": 64, "hotness": 1, "skew": 1.05} for n, count in enumerate(rows)]
    dense = [
        {"name": "fc1", "inputs": 64 * len(rows) + 13, "outputs": 512},
        {"name": "out", "inputs": 512, "outputs": 1},
    ]
    sizes = {"example_bytes": "250 B", "batch_size": 1000, "device_batch_size": 8192, "pass_examples": 4_000_000}
    return SparseModel.model_validate({"name": "criteo", "title": "Criteo", "tables": tables, "dense": dense} | sizes)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("rate", [1.0, 1e5, 1e7])
def test_what_is_left_out_asks_for_no_less_than_what_is_kept_of_the_same_group_and_home(mode, rate):
    made = layout(SparseScenario(criteo(), sparse_cluster("hierps").groups, runtime(), mode))
    for place in made.places:
        asked = demands(place.choices, rate, unit=UNIT, page=PAGE)
        kept = undominated(place.choices, asked)
        assert kept == sorted(set(kept))
        for index, choice in enumerate(place.choices):
            alike = [k for k in kept if (place.choices[k].group, place.choices[k].home) == (choice.group, choice.home)]
            assert any((asked[k] <= asked[index]).all() for k in alike)
        for k in kept:
            others = [o for o in kept if o != k and place.choices[o].group == place.choices[k].group]
            others = [o for o in others if place.choices[o].home == place.choices[k].home]
            assert not any((asked[o] <= asked[k]).all() for o in others)


def test_a_table_of_a_few_rows_has_one_choice_for_every_pair_of_groups():
    made = layout(SparseScenario(criteo(), sparse_cluster("hierps").groups, runtime(), "async"))
    small = made.places[1 + CRITEO.index(24)]
    kept = undominated(small.choices, demands(small.choices, 1e5, unit=UNIT, page=PAGE))
    assert len(small.choices) > 50
    assert len(kept) <= 8


def test_demands_are_whole_numbers_of_the_solver_and_large_ones_do_not_overflow():
    made = layout(SparseScenario(criteo(), sparse_cluster("hierps").groups, runtime(), "async"))
    asked = demands(made.places[1].choices, 1e30, unit=UNIT, page=PAGE)
    assert asked.dtype == np.int64
    assert (asked[:, :4] >= 0).all()


def test_the_26_tables_of_criteo_are_placed_with_a_proof():
    made = layout(SparseScenario(criteo(), sparse_cluster("hierps").groups, runtime(), "async"))
    found = solve(made, Limits(5e5), budget=Budget())
    assert found.status == "optimal"
    assert holds(made, Limits(5e5), found.chosen, found.nodes)


def test_a_hundred_tables_can_be_asked_about():
    assert len(criteo(CRITEO * 4).tables) == 104
