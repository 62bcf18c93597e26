"""The verdicts on many runs are the same in one process and in several."""

import json
import os
import tomllib
from collections import Counter
from itertools import islice

import pytest

from costmodels import pricing
from hardware.errors import MeshwrightError
from planner.request.resolve import resolve
from planner.runs import case
from planner.runs.corpus import CHUNK, FEWEST, map_cases
from planner.runs.judge import judge, judge_run, judge_runs
from planner.runs.schema import run_of
from tests.planner.shipped import shipped_runs


def process_of(runs, _cases):
    return [(run.id, os.getpid()) for run in runs]


def refuse(runs, _cases):
    raise MeshwrightError(f"run {runs[0].id} is refused")


RUNS = [run_of({"schema": "run/1", "id": str(number), "unpriced": "a test"}) for number in range(FEWEST + CHUNK // 2)]


def test_several_processes_tell_of_measured_in_order():
    told = map_cases(RUNS, process_of, workers=2)
    assert [name for name, _ in told] == [run.id for run in RUNS]
    assert os.getpid() not in {process for _, process in told}


def test_few_runs_start_no_further_process():
    assert {process for _, process in map_cases(RUNS[: FEWEST - 1], process_of, workers=2)} == {os.getpid()}


def test_what_goes_wrong_in_another_process_is_told_as_in_this_one():
    with pytest.raises(MeshwrightError, match="run 0 is refused"):
        map_cases(RUNS, refuse, workers=2)


def test_runs_of_one_job_are_priced_together_to_the_last_digit_and_files_read_once(monkeypatch):
    runs = shipped_runs()[:300]
    parsed, priced, resolved = Counter(), [], []
    loads, seconds = tomllib.loads, pricing.row_seconds
    monkeypatch.setattr(tomllib, "loads", lambda text: parsed.update([text]) or loads(text))
    monkeypatch.setattr(
        pricing, "row_seconds", lambda rows, scenario: priced.append(len(rows)) or seconds(rows, scenario)
    )
    monkeypatch.setattr(case, "resolve", lambda request: resolved.append(request) or resolve(request))
    together = map_cases(runs, judge_runs)
    assert parsed.total() <= 30  # an accelerator that others are like is read for each of them
    assert sum(priced) <= len(runs)
    assert len(priced) <= 0.9 * len(resolved) <= 0.5 * sum(priced)  # jobs of other sizes are priced with them
    assert together == [judge_run(run) for run in runs]


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
