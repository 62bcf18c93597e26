"""Which runs a calibration fits, and what it says of those that it does not, or not wholly, understand."""

import pytest

from planner import calibrate
from tests.planner.measured_run import run
from tests.planner.runs.test_calibration import SHAPES, rows, written


def test_runs_that_follow_a_pattern_are_all_seen(tmp_path, monkeypatch):
    """Every third run would be those of one shape alone, which are as the shipped stack has them."""
    monkeypatch.setattr("planner.runs.calibrate.runs.MOST_ROWS", 3)
    made = rows(SHAPES[:3], copies=3)
    for number, row in enumerate(made):
        row["measured"]["iteration_time_s"] *= 1.0 if number % 3 == 0 else 3.0
    answer = calibrate([written(tmp_path / "runs.jsonl", made)])
    (fitted,) = answer.errors
    assert fitted.points == 9
    assert fitted.median_before > 0.6  # of the runs that take three times as long, not of the others alone
    assert not [line for line in answer.warnings if "drawn at random" in line]


def test_what_is_fitted_of_too_many_configurations_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("planner.runs.calibrate.runs.MOST_ROWS", 4)
    answer = calibrate([written(tmp_path / "runs.jsonl", rows(copies=2))])
    assert "8 of 16 runs were fitted, of 4 configurations drawn at random; all are listed" in answer.warnings
    assert len(answer.runs) == 16
    assert answer.errors[0].points == 8


def test_two_runs_that_the_fit_does_not_bring_nearer_are_warned_of(tmp_path):
    def warned(first, second):
        made = rows(SHAPES[:1], copies=2)
        for row, times in zip(made, (first, second), strict=True):
            row["measured"]["iteration_time_s"] *= times
        answer = calibrate([written(tmp_path / "runs.jsonl", made)])
        return [line for line in answer.warnings if "they ask for different constants" in line], answer.errors[0]

    apart, errors = warned(0.97, 1.21)
    assert errors.median_after > errors.median_before
    assert len(apart) == 1
    alike, errors = warned(1.2, 1.2)
    assert errors.median_after < errors.median_before
    assert not alike


def test_what_is_not_read_of_a_run_or_said_twice_is_told(tmp_path):
    made = rows(SHAPES[:2], copies=2)
    for row in made[:2]:
        row["strategy"]["recomptue"] = "full"
    made[2]["measured"]["tokens_per_s"] = 1.0
    made[3]["measured"]["oom"] = True
    told = "\n".join(calibrate([written(tmp_path / "runs.jsonl", made)]).notes)
    assert "run made-0 and 1 more: strategy.recomptue is not read; did you mean recompute?" in told
    assert "run made-2: iteration_time_s counts, by which an iteration takes" in told
    assert "run made-3: not used: it ran out of memory" in told


def test_throughput_is_time_where_the_length_of_sequences_is_the_model_s(tmp_path):
    named = run(
        model={"name": "llama3-8b"}, strategy={"gpus": 16, "tp": 2, "pp": 1, "vpp": 1, "dp": 8, "schedule": "none"}
    )
    named["model"] = {"name": "llama3-8b"}
    named["measured"] = {"tokens_per_s": 64 * 8192 / 20.0}
    (only,) = calibrate(str(written(tmp_path / "runs.jsonl", [named]))).runs
    assert only.measured_seconds == pytest.approx(20.0)
