"""The slack of tensor parallelism, out of which runs failed."""

import json

import numpy as np
import pytest

from planner.runs.fit_memory import FAILED, best_slack, tensor_slacks, tensor_verdicts
from tests.planner.measured_run import run


def test_the_least_slack_that_gets_every_verdict_right_is_taken():
    """Half of the runs have 20 % to spare and run, half 10 % and fail."""
    spare, failed = np.repeat([0.2, 0.1], FAILED), np.repeat([False, True], FAILED)
    assert best_slack(spare, failed) == pytest.approx(0.11)
    assert best_slack(spare[1:-1], failed[1:-1]) is None


def test_few_failures_settle_nothing(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(json.dumps(run(id=str(n), measured={"out_of_memory": True})) for n in range(3)))
    assert tensor_slacks(tensor_verdicts([path])) == {}
