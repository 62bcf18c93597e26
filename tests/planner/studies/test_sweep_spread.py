"""How the points of a sweep are spread over workers, and what a run says of them on the way."""

import sys
import time
from types import SimpleNamespace

import pytest

from planner.studies import answer as answering
from planner.studies import engines, running
from planner.studies.running import run
from tests.planner.sweep_studies import study


def test_a_run_shows_where_it_stands_before_its_first_answer(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(running, "in_process", lambda _batches: iter(()))
    run(study(), tmp_path / "runs.sqlite", workers=1, watch=lambda progress: seen.append(progress.answered))
    assert seen == [0]


def test_a_point_that_is_on_its_way_is_not_asked_again_when_it_is_looked_up_later(tmp_path, monkeypatch):
    batches = []
    twice = study(gpus=8, stacks=["megatron-core"], cluster={"fabric": {"bandwidth": ["1x", "50 GB/s"]}})
    monkeypatch.setattr(running, "LOOKED_UP", 1)
    monkeypatch.setattr(running, "in_process", lambda some: iter([batches.extend(some) or []]))
    assert run(twice, tmp_path / "runs.sqlite", workers=1).known == 1
    assert [len(batch) for batch in batches] == [1]


def test_every_worker_of_a_small_study_has_several_batches(tmp_path, monkeypatch):
    batches = []
    monkeypatch.setattr(running, "local", lambda _workers: lambda some: iter([batches.extend(some) or []]))
    run(study(), tmp_path / "runs.sqlite", workers=2)
    assert [len(batch) for batch in batches] == [1] * 8


def test_no_more_workers_start_than_were_asked_for(monkeypatch):
    started_workers = []

    def idle():
        started_workers.append(SimpleNamespace(tasks=[], pipe=SimpleNamespace(send=list)))
        return started_workers[-1]

    monkeypatch.setattr(engines, "_started", idle)
    monkeypatch.setattr(engines, "wait", lambda _pipes: sys.exit("all have work"))
    monkeypatch.setattr(engines._LocalWorkers, "stop", lambda _workers: None)
    with pytest.raises(SystemExit, match="all have work"):
        next(engines.local(2)(iter([["a"], ["b"], ["c"]])))
    assert len(started_workers) == 2


def test_an_answer_says_how_long_it_took_itself():
    before = time.perf_counter()
    done = answering.answered(answering.Task("k", "search", {"model": "no such", "gpus": 8}), answering.Shared())
    assert done.status == "failed"
    assert 0.0 <= done.seconds <= time.perf_counter() - before
