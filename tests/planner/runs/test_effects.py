"""What one option changes, as pairs of measured runs that differ in nothing else show it."""

import json

import pytest

from planner.runs.effects import Compared, effects, facts_of
from planner.runs.ranking import report, timed
from planner.runs.schema import run_of
from tests.planner.measured_run import case, run


def compared(seconds, predicted=None, publisher="somebody", **changes):
    """A run that took so many GPU-seconds a token."""
    document = run(**changes)
    return Compared(publisher, facts_of(run_of(document), case(document)), seconds, predicted or seconds)


def micro_batch(size, seconds, predicted=None, publisher="somebody", **changes):
    return compared(seconds, predicted, publisher, pins={"micro_batch_size": size}, **changes)


def test_what_doubling_the_micro_batch_does_is_measured_and_predicted():
    found = effects([micro_batch(1, 1.0, 1.0), micro_batch(2, 0.8, 0.9)])
    assert list(found) == ["micro-batch x2"]
    said = found["micro-batch x2"]
    assert (said["publishers"], said["pairs"], said["right"]) == (1, 1, 1.0)
    assert (said["measured"], said["predicted"]) == (pytest.approx(-0.2), pytest.approx(-0.1))
    assert said["error"] == pytest.approx(0.9 / 0.8 - 1.0)


def test_four_times_as_much_counts_as_two_steps():
    said = effects([micro_batch(1, 1.0), micro_batch(4, 0.64)])["micro-batch x2"]
    assert said["measured"] == pytest.approx(-0.2)


def test_runs_that_differ_in_something_else_too_are_no_pair():
    other = {"stack.fused_elementwise": False}
    assert effects([micro_batch(1, 1.0), micro_batch(2, 0.8, request={"changes": other})]) == {}
    assert effects([micro_batch(1, 1.0), micro_batch(2, 0.8, publisher="another")]) == {}
    assert effects([micro_batch(1, 1.0), micro_batch(2, 0.8, request={"cluster": "a100-roce-800g"})]) == {}


def test_how_fast_a_publisher_is_cancels():
    fast, slow = ([micro_batch(1, x, 1.0), micro_batch(2, 0.8 * x, 0.8)] for x in (1.0, 3.0))
    assert effects(slow)["micro-batch x2"]["error"] == pytest.approx(effects(fast)["micro-batch x2"]["error"])


def test_publishers_weigh_the_same_and_their_spread_is_told():
    many = [micro_batch(size, 1.0 / size, 1.0, "many") for size in (1, 2, 4)]
    few = [micro_batch(size, 1.0, 1.0, "few") for size in (1, 2)]
    said = effects(many + few)["micro-batch x2"]
    assert (said["publishers"], said["pairs"]) == (2, 4)
    assert said["error"] == pytest.approx(2.0**0.5 - 1.0)
    assert said["deviation"] == pytest.approx(0.3466, abs=1e-3)


def test_a_run_measured_again_counts_once():
    said = effects([micro_batch(1, 2.0), micro_batch(1, 0.5), micro_batch(2, 1.0)])["micro-batch x2"]
    assert (said["pairs"], said["measured"]) == (1, pytest.approx(0.0))


def test_more_ranks_that_are_as_efficient_change_nothing_of_gpu_seconds():
    larger = {"gpus": 32, "global_batch_size": 128}
    said = effects([compared(1.0), compared(1.0, request=larger, pins={"sharding_degree": 8})])
    assert list(said) == ["data ranks x2, batch x2"]
    assert said["data ranks x2, batch x2"]["measured"] == pytest.approx(0.0)


def test_a_pair_of_tensor_and_pipeline_ranks_is_known_by_what_they_swap():
    said = effects([compared(1.0), compared(1.2, pins={"tp": 4, "pp": 1, "vpp": 1, "schedule": "none"})])
    assert list(said) == ["TP x2 for PP"]


def test_the_ranking_shows_what_single_options_change(tmp_path):
    path = tmp_path / "two.jsonl"
    rows = [
        run(id=str(size), pins={"micro_batch_size": size}, measured={"iteration_seconds": time})
        for size, time in ((1, 2.0), (2, 1.0))
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    assert "micro-batch x2" in report(timed([path]))
    found = json.loads(report(timed([path]), form="json"))["effects"]["micro-batch x2"]
    assert found["measured"] == pytest.approx(-0.5)
