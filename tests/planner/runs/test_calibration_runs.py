"""Which runs a calibration fits, and what it says of those that it does not, or not wholly, understand."""

from planner import calibrate
from tests.planner.runs.test_calibration import SHAPES, rows, written


def test_runs_that_follow_a_pattern_are_all_seen(tmp_path, monkeypatch):
    """Every third run would be those of one shape alone, which are as the shipped stack has them."""
    monkeypatch.setattr("planner.runs.calibrate.runs.MOST_ROWS", 3)
    made = rows(SHAPES[:3], copies=3)
    for number, row in enumerate(made):
        row["measured"]["iteration_seconds"] *= 1.0 if number % 3 == 0 else 3.0
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


def test_runs_that_contradict_each_other_are_followed_less_than_those_that_agree(tmp_path):
    def after(first, second):
        made = rows(SHAPES[:1], copies=2)
        for row, times in zip(made, (first, second), strict=True):
            row["measured"]["iteration_seconds"] *= times
        answer = calibrate([written(tmp_path / "runs.jsonl", made)])
        return answer, answer.errors[0]

    apart, errors = after(0.97, 1.21)
    assert errors.bias_after == errors.bias_before
    assert any("may be chance, so no correction is made" in line for line in apart.warnings)
    alike, errors = after(1.3, 1.3)
    assert errors.median_after < 0.5 * errors.median_before
    assert not any("chance" in line for line in alike.warnings)


def test_a_run_that_is_not_used_says_why(tmp_path):
    made = rows(SHAPES[:2], copies=2)
    made[2]["not_fitted"] = "the machine was not in order"
    made[3]["measured"]["out_of_memory"] = True
    told = "\n".join(calibrate([written(tmp_path / "runs.jsonl", made)]).notes)
    assert "run made-2: not used: the machine was not in order" in told
    assert "run made-3: used for its memory alone: it ran out of memory" in told
