"""The verdicts on many runs are the same in one process and in several."""

import json
import os
from itertools import islice

import pytest

from hardware.errors import MeshwrightError
from planner.runs.corpus import CHUNK, FEWEST, map_runs
from planner.runs.judge import judge


def process_of(run):
    return run["number"], os.getpid()


def refuse(run):
    raise MeshwrightError(f"run {run['number']} is refused")


ROWS = [{"number": number} for number in range(FEWEST + CHUNK // 2)]


def test_several_processes_tell_of_measured_in_order():
    told = map_runs(ROWS, process_of, workers=2)
    assert [number for number, _ in told] == list(range(len(ROWS)))
    assert os.getpid() not in {process for _, process in told}


def test_few_runs_start_no_further_process():
    assert {process for _, process in map_runs(ROWS[: FEWEST - 1], process_of, workers=2)} == {os.getpid()}


def test_what_goes_wrong_in_another_process_is_told_as_in_this_one():
    with pytest.raises(MeshwrightError, match="run 0 is refused"):
        map_runs(ROWS, refuse, workers=2)


def test_verdicts_are_the_same_however_many_processes_judge(tmp_path, monkeypatch):
    from planner.runs import corpus
    from planner.runs.files import json_lines
    from planner.runs.judge import shipped

    monkeypatch.setattr(corpus, "FEWEST", 20)
    rows = [document for path in shipped() for _, document in islice(json_lines(path), 60)]
    halves = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, part in zip(halves, (rows[:25], rows[25:]), strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    assert judge(halves, workers=2) == judge(halves, workers=1)
