"""Tables of answers as frames of both libraries."""

import pytest

from planner import PlanRequest, plan
from planner.render.notebook.frames import LIBRARIES


@pytest.fixture(scope="module")
def answer():
    return plan(PlanRequest(model="llama3-8b", gpus=8))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_frame_has_the_rows(answer, library):
    found = answer.to_frame("breakdown", library=library)
    assert type(found).__module__.partition(".")[0] == library
    assert found.shape == (len(answer.breakdown_seconds), 3)
    assert list(found["seconds"]) == list(answer.breakdown_seconds.values())


def test_pandas_is_taken_where_both_are_there(answer):
    assert type(answer.to_frame()).__module__.partition(".")[0] == "pandas"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_table_without_rows_is_an_empty_frame(library):
    nothing = plan(PlanRequest(model="llama3-70b", gpus=8, pins={"offload": "none"}, reasons=False))
    assert len(nothing.to_frame(library=library)) == 0
