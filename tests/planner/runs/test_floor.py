"""What the measurements leave to any model: no prediction does better than the bound, and the bound is reached."""

import itertools
import json
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.runs.judge import Verdict
from planner.runs.noise_floor import Judged, floor, floors, judged, least_errors, miss, releases, report, rounding
from planner.runs.ranking import timed
from planner.runs.schema import run_of
from tests.planner.measured_run import run

TIMES = st.lists(st.floats(1.0, 3.0), min_size=1, max_size=4)


def measured(seconds, predicted=1.0, group="a", of_time=MappingProxyType({}), **of_run):
    """One judged time of a run with what is given."""
    verdict = Verdict("id", group, "iteration_time", seconds, predicted, scored=True)
    return Judged(run_of(run(measured={"iteration_seconds": seconds, **of_time}, **of_run)), verdict)


@given(st.lists(TIMES, min_size=1, max_size=3), st.data())
def test_no_predictions_miss_less_than_the_bound(classes, data):
    chosen = [data.draw(st.floats(0.5, 4.0)) for _ in classes]
    errors = sorted(abs(p / m - 1.0) for p, times in zip(chosen, classes, strict=True) for m in times)
    assert all(least <= error + 1e-12 for least, error in zip(sorted(least_errors(classes)), errors, strict=True))
    assert miss(least_errors(classes)).median <= miss(errors).median + 1e-12


@given(st.lists(st.floats(1.0, 3.0), min_size=2, max_size=5))
def test_some_prediction_reaches_every_figure_of_the_bound(times):
    least = least_errors([times])
    pairs = itertools.combinations_with_replacement(times, 2)
    reached = [sorted(abs(2 * a * b / (a + b) / m - 1.0) for m in times) for a, b in pairs]
    assert np.min(reached, axis=0) == pytest.approx(np.array(least), abs=1e-9)


def test_two_runs_a_third_apart_leave_a_seventh():
    assert least_errors([[3.0, 4.0]]) == pytest.approx([0.0, 1 / 7])
    assert least_errors([[3.0], [4.0]]) == [0.0, 0.0]


def test_configurations_that_differ_in_one_field_bound_nothing():
    alike = floor([measured(3.0, model={"num_layers": 2}), measured(4.0, model={"num_layers": 2})])
    apart = floor([measured(3.0, model={"num_layers": 2}), measured(4.0, model={"num_layers": 3})])
    assert (alike.again, apart.again) == (2, 0)
    assert alike.bound.p90 == pytest.approx(1 / 7)
    assert apart.bound.p90 == 0.0
    assert apart.spread is None


def test_a_figure_that_is_printed_twice_was_not_measured_again():
    assert floor([measured(3.0), measured(3.0)]).again == 0


def test_one_constant_leaves_nothing_of_one_bias():
    found = floor([measured(2.0, 1.0, model={"num_layers": 1}), measured(4.0, 2.0, model={"num_layers": 2})])
    assert found.now == pytest.approx((0.5, 0.5))
    assert found.constant == pytest.approx((0.0, 0.0))


def test_rounding_is_what_the_run_says_of_the_figure():
    digits = {"rounding": 0.02, "peak_memory": {"bytes": 1e9, "rounding": 0.1}}
    time = measured(8.0, of_time=digits)
    assert rounding(time) == 0.02
    assert rounding(time._replace(verdict=replace(time.verdict, metric="memory"))) == 0.1
    assert rounding(measured(8.0)) == 0.0


def test_releases_of_one_source_are_compared_and_other_sources_are_not():
    rows = [measured(t, group=g, configuration="k") for t, g in ((3.0, "x-v1.0"), (4.0, "x-v2.0"), (9.0, "other"))]
    found = releases(rows)
    assert list(found) == ["x"]
    assert (found["x"].configurations, found["x"].n) == (1, 2)
    assert found["x"].bound.p90 == pytest.approx(1 / 7)


def test_the_report_tells_every_file_apart(tmp_path):
    path = tmp_path / "mine.jsonl"
    noisy = [run(id=str(t), measured={"iteration_seconds": t}) for t in (1.0, 2.0)]
    path.write_text("\n".join(map(json.dumps, noisy)))
    assert list(floors(judged([path]))) == [("mine.jsonl", "iteration_time")]
    assert report([path]).startswith("Iteration time, mine.jsonl: predictions miss by ")
    (part,) = json.loads(report([path], form="json"))["parts"]
    assert (part["file"], part["mean"]["bound"]["p90"]) == ("mine.jsonl", pytest.approx(1 / 3))


def test_whoever_waits_for_floors_or_a_ranking_is_told_how_many_runs_are_priced(tmp_path):
    path, told = tmp_path / "mine.jsonl", []
    path.write_text("\n".join(json.dumps(run(id=str(t), measured={"iteration_seconds": t})) for t in (1.0, 2.0)))
    judged([path], progress=told.append)
    timed([path], progress=told.append)
    assert [(at.doing, at.done, at.total) for at in told] == [("pricing measured runs", n, 2) for n in (2, 2)]
