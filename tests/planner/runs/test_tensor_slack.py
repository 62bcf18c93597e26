"""The slack of tensor parallelism, out of which runs failed."""

import json

import pytest

from planner.runs.fit_memory import FAILED, tensor_slacks
from tests.planner.measured_run import run


@pytest.fixture
def runs(monkeypatch):
    """Rooms as if measured: half of the runs have 20 % to spare and run, half 10 % and fail."""
    found = iter([("one", 0.2, False)] * FAILED + [("one", 0.1, True)] * FAILED)
    monkeypatch.setattr("planner.runs.fit_memory._room", lambda _run: next(found, None))


@pytest.mark.usefixtures("runs")
def test_the_least_slack_that_gets_every_verdict_right_is_taken(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(json.dumps(run(id=str(n))) for n in range(2 * FAILED)))
    value, count = tensor_slacks([path])["one"]
    assert value == pytest.approx(0.11)
    assert count == 2 * FAILED


def test_few_failures_settle_nothing(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(json.dumps(run(id=str(n), measured={"out_of_memory": True})) for n in range(3)))
    assert tensor_slacks([path]) == {}
