"""`plan validate` on a file of one's own: a line a run, and its group."""

import json

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.runs.run_lines import MOST
from tests.planner.measured_run import run


def asked(path, rows, *words):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return CliRunner().invoke(main, ["validate", str(path), *words]).stdout


def lines(said):
    """The lines of runs, below the answer."""
    answer, _, rest = said.partition("\n\n")
    assert answer.startswith("Predictions miss iteration times by a median of ")
    return rest.partition("\n\n")[0].splitlines()


def test_measured_has_a_line_with_its_error_and_whether_it_is_inside(tmp_path):
    rows = [run(id="good"), run(id="slow", measured={"iteration_seconds": 40.0})]
    said = lines(asked(tmp_path / "mine.jsonl", rows))
    told = json.loads(asked(tmp_path / "mine.jsonl", rows, "--format", "json"))["rows"]
    times = [row for row in told if row["metric"] == "iteration_time"]
    assert said[0].split() == ["run", "measured", "predicted", "error", "90%", "interval"]
    for line, row in zip(said[1:], times, strict=True):
        assert line.startswith(row["id"])
        assert f"{row['error']:+.1%}" in line
        assert line.endswith("inside" if row["within_interval"] else "outside")


def test_a_run_with_a_long_name_has_it_on_a_line_of_its_own_and_fits_eighty_columns(tmp_path):
    said = lines(asked(tmp_path / "mine.jsonl", [run(id="a-run-with-a-name-" * 3)]))
    assert said[1] == "a-run-with-a-name-" * 3
    assert said[2].split()[0] == "time"
    assert max(map(len, said)) <= 80


def test_what_was_assumed_of_one_run_alone_stands_below_it(tmp_path):
    bare = run(id="bare", assumed={"request.pins.recompute": "recomputation none assumed"})
    said = lines(asked(tmp_path / "mine.jsonl", [run(id="whole"), bare]))
    assert said[-1].strip() == "recomputation none assumed"
    assert said[-2].startswith("bare")
    assert not any("assumed" in line for line in said[:-1])


def test_a_run_that_is_not_priced_says_why_in_its_line(tmp_path):
    said = lines(asked(tmp_path / "mine.jsonl", [run(), run(id="odd", request={"cluster": "h1000"})]))
    assert any("not priced: unknown cluster" in line for line in said)


def test_of_many_runs_one_line_says_where_each_is_told(tmp_path):
    rows = [run(id=str(place)) for place in range(MOST + 1)]
    assert lines(asked(tmp_path / "mine.jsonl", rows))[0].startswith(f"{MOST + 1} runs; --format json has")


@pytest.mark.parametrize("group", [None, ""])
def test_runs_without_a_group_are_called_by_their_file(group, tmp_path):
    said = asked(tmp_path / "mine.jsonl", [run(group=group or "")])
    assert "\nmine.jsonl  " in said
    assert "\n?" not in said


def test_the_shipped_runs_have_no_lines_of_their_own():
    from planner.runs import report

    here = {"runs.jsonl.gz": []}
    said = report.written(here)
    assert said.startswith("Expect to be off by ")
    assert "runs.jsonl.gz:" not in said


def test_runs_whose_sequence_the_catalogue_knows_are_ranked(tmp_path):
    rows = []
    for place, micro in enumerate((1, 2, 4, 8)):
        row = run(id=str(place), pins={"micro_batch_size": micro}, measured={"iteration_seconds": 9.0 + place})
        row["request"] |= {"model": "llama3-8b", "seq_length": 8192, "layers_per_stage": [16, 16]}
        rows.append(row)
    assert "made-up  " in asked(tmp_path / "mine.jsonl", rows, "--ranking")


def test_runs_of_several_files_stand_below_their_file(tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(run(id="there")) + "\n", encoding="utf-8")
    said = lines(asked(tmp_path / "mine.jsonl", [run(id="here")], str(other)))
    assert [line.split()[0] for line in said[1:]] == ["mine.jsonl:", "here", "other.jsonl:", "there"]


def test_a_mark_of_byte_order_is_read_over_on_stdin_too():
    done = CliRunner().invoke(main, ["validate", "-"], input="\ufeff" + json.dumps(run(id="piped")) + "\n")
    assert done.exit_code == 0, done.stderr
    assert lines(done.stdout)[1].startswith("piped")


def test_of_many_shipped_groups_a_terminal_has_those_farthest_off_and_the_rest_on_demand():
    from planner.runs import report
    from planner.runs.judge import Verdict

    off = [Verdict(str(n), f"group-{n:02d}", "iteration_time", 1.0, 1.0 + n / 100, scored=True) for n in range(40)]
    short, whole = (report.written({"runs.jsonl.gz": off}, whole=whole) for whole in (False, True))
    assert len(short.splitlines()) <= 60
    assert "the 3 of 40 groups farthest off" in short
    assert [line.split()[0] for line in short.splitlines() if line.startswith("group-")] == [
        "group-39",
        "group-38",
        "group-37",
    ]
    assert all(f"group-{n:02d}" in whole for n in range(40))
