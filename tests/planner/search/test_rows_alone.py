"""What a strategy costs does not depend on the strategies that are priced with it."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from costmodels import strategy
from costmodels.iteration import row_seconds
from costmodels.memory.rows import row_bytes
from costmodels.step.traffic import share_steps
from planner.space.lattice import build
from planner.stages.from_strategies import stage_bounds
from tests.drawn import drawn_scenarios
from tests.planner.searched import price_cores

SOME = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def arrays(record, prefix=""):
    """Every array of a record of arrays, those of the records in it included, by name."""
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            yield prefix + field.name, value
        elif hasattr(value, "__dataclass_fields__"):
            yield from arrays(value, f"{prefix}{field.name}.")


@pytest.fixture(autouse=True)
def _many_are_few(monkeypatch):
    monkeypatch.setattr(strategy, "FEW_ROWS", 1)


@SOME
@given(drawn_scenarios(gpus=(2, 4, 8, 16), batches=(8, 16), layers=(2, 3, 4, 6, 8)), st.booleans(), st.data())
def test_seconds_bytes_and_bounds_of_a_row_are_what_it_has_alone(scenario, shared, data):
    space = build(scenario, {})
    assume(len(space.cores))
    rows = price_cores(space, np.arange(len(space.cores)), scenario).rows
    rows = rows.take(np.tile(np.arange(len(rows)), 2))  # so that whatever depends on few axes is priced for few rows
    if shared:
        share_steps(rows)
    seconds, memory = row_seconds(rows, scenario), row_bytes(rows, scenario)
    tight, feasible = stage_bounds(rows, seconds, memory, scenario)
    together = [*arrays(seconds), *arrays(memory), ("bound", tight), ("feasible", feasible)]
    for at in data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=8)):
        row = rows.take(np.array([at]))
        seconds, memory = row_seconds(row, scenario), row_bytes(row, scenario)
        tight, feasible = stage_bounds(row, seconds, memory, scenario)
        alone = dict([*arrays(seconds), *arrays(memory), ("bound", tight), ("feasible", feasible)])
        for name, values in together:
            if values.shape[:1] == (len(rows),):
                np.testing.assert_allclose(values[at], alone[name][0], rtol=1e-9, err_msg=name)
