"""Sweeps of measured strategies: what following the model costs, and how well any could order them."""

import json

import numpy as np
import pytest

from planner.runs.ranking import ceiling, floor, near, report, sweeps, timed, without_left_out
from tests.planner.measured_run import judged, only, run


def swept(seconds):
    """A sweep over tensor parallelism in which the strategies took so long."""
    degrees = zip((1, 2, 4, 8), seconds, strict=True)
    return [
        run(
            id=f"tp{tp}",
            pins={"tp": tp, "pp": 1, "vpp": 1, "schedule": "none", "sharding_degree": 16 // tp},
            measured={"iteration_seconds": time},
        )
        for tp, time in degrees
    ]


def sweep_of(seconds, tmp_path):
    path = tmp_path / "sweep.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in swept(seconds)))
    return sweeps(timed([path]))


def test_a_model_that_orders_a_sweep_rightly_has_no_regret(tmp_path):
    predicted = [only(judged(row), "iteration_time").predicted for row in swept([1.0] * 4)]
    (right,) = sweep_of(predicted, tmp_path)
    assert (right.strategies, right.regret, right.rank_correlation) == (4, 0.0, pytest.approx(1.0))
    assert right.chosen == right.best


def test_the_regret_is_what_following_the_prediction_costs(tmp_path):
    predicted = np.array([only(judged(row), "iteration_time").predicted for row in swept([1.0] * 4)])
    (wrong,) = sweep_of((10.0 / predicted).tolist(), tmp_path)
    assert wrong.regret == pytest.approx(predicted.max() / predicted.min() - 1)
    assert wrong.rank_correlation == pytest.approx(-1.0)


def test_a_strategy_that_was_measured_again_counts_once_with_its_median(tmp_path):
    path = tmp_path / "again.jsonl"
    again = [
        {**swept([1.0] * 4)[0], "id": f"again{i}", "measured": {"iteration_seconds": t}}
        for i, t in enumerate((9.0, 0.9))
    ]
    rows = [*swept([1.0, 2.0, 3.0, 4.0]), *again]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    (one,) = sweeps(timed([path]))
    assert one.strategies == 4
    assert one.best == "tp1"
    path.write_text("\n".join(json.dumps({**row, "request": rows[0]["request"]}) for row in rows))
    assert sweeps(timed([path])) == []


def changed_in_one(tmp_path, change):
    """The sweeps of four strategies of which the first was measured under something else too."""
    path = tmp_path / "other.jsonl"
    rows = swept([1.0, 2.0, 3.0, 4.0])
    change(rows[0]["request"])
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return sweeps(timed([path]))


def test_models_that_differ_in_heads_are_no_sweep(tmp_path):
    heads = {"num_heads": 32, "num_query_groups": 32}
    assert changed_in_one(tmp_path, lambda request: request["model"].update(heads)) == []


@pytest.mark.parametrize(
    "given",
    [{"cluster": "a100-roce-800g"}, {"changes": {"stack.fused_elementwise": False}}],
    ids=["network", "software"],
)
def test_what_a_question_gives_is_no_strategy(given, tmp_path):
    assert changed_in_one(tmp_path, lambda request: request.update(given)) == []


def test_what_a_stack_may_run_makes_no_other_software(tmp_path):
    stages = {"changes": {"stack.supports.zero_stages": [0, 1]}}
    assert len(changed_in_one(tmp_path, lambda request: request.update(stages))) == 1


def test_batches_are_swept_over_unless_they_are_to_be_the_same(tmp_path):
    path = tmp_path / "batches.jsonl"
    rows = swept([1.0, 2.0, 3.0, 4.0])
    rows[0]["request"]["global_batch_size"] = 128
    path.write_text("\n".join(json.dumps(row) for row in rows))
    runs = timed([path])
    assert [one.strategies for one in sweeps(runs)] == [4]
    assert sweeps(runs, same_batch=True) == []


def test_no_measurement_chooses_between_strategies_of_one_price(tmp_path):
    path = tmp_path / "equal.jsonl"
    best = min(swept([1.0] * 4), key=lambda row: only(judged(row), "iteration_time").predicted)
    twin = {
        **best,
        "id": "twin",
        "request": {**best["request"], "ties": "fastest"},
        "measured": {"iteration_seconds": 3.0},
    }
    path.write_text("\n".join(json.dumps(row) for row in [*swept([1.0] * 4), twin]))
    (one,) = sweeps(timed([path]))
    assert one.strategies == 5
    assert one.regret == pytest.approx(1.0)  # of 1 and 3 seconds the mean is 2


def test_pairs_nearer_than_two_measurements_of_one_strategy_are_counted():
    assert near([1.0, 1.01, 2.0], 0.02) == pytest.approx(1 / 3)
    assert near([1.0, 1.01, 2.0], 0.001) == 0.0


def test_noise_lowers_the_ceiling_of_near_times_alone():
    assert ceiling([1.0, 2.0, 4.0, 8.0], 0.02) == pytest.approx(1.0)
    assert ceiling([1.0, 2.0, 4.0, 8.0], 0.0) == pytest.approx(1.0)
    assert ceiling([1.0, 1.001, 1.002, 1.003], 0.02) < 0.3


def test_noise_leaves_a_regret_where_times_are_near_alone():
    assert floor([1.0, 2.0, 4.0, 8.0], 0.02) == 0.0
    assert floor([1.0, 1.0, 1.0, 1.0], 0.0) == 0.0
    near, nearer = floor([1.0, 1.1], 0.2), floor([1.0, 1.001], 0.2)
    assert 0.0 < near < nearer


def test_of_two_equal_strategies_the_regret_left_is_half_of_what_two_measurements_differ_by():
    sigma = 0.01
    assert floor([1.0, 1.0], sigma) == pytest.approx(sigma / np.sqrt(np.pi), rel=0.15)


def test_three_strategies_are_no_sweep(tmp_path):
    path = tmp_path / "few.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in swept([1.0, 2.0, 3.0, 4.0])[:3]))
    assert sweeps(timed([path])) == []
    assert "No sweep" in report(timed([path]))


def test_the_ranking_of_a_file_is_told_as_a_table_and_as_json(tmp_path):
    path = tmp_path / "sweep.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in swept([1.0, 2.0, 3.0, 4.0])))
    told = json.loads(report(timed([path]), form="json"))
    assert told["summary"]["sweeps"] == 1
    assert told["sweeps"][0]["best"] == "tp1"
    assert told["groups"]["made-up"]["regret_floor"] == told["sweeps"][0]["regret_floor"] >= 0.0
    assert "made-up" in report(timed([path]))
    assert "left out" not in report(timed([path]))


def test_sources_that_fits_leave_out_are_out_of_the_second_mean():
    figures = {
        "sweeps": 1,
        "mean_regret": 0.0,
        "rank_correlation": 1.0,
        "ceiling": 1.0,
        "regret_floor": 0.0,
        "near": 0.0,
    }
    groups = {"quiet": figures, "bigscience-v100": {**figures, "mean_regret": 0.7}}
    assert without_left_out(groups)["mean_regret"] == 0.0
    assert without_left_out(groups)["sweeps"] == 1
