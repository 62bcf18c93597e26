"""Runs of studies: what is kept, what is asked again, and that nothing kills a store."""

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pydantic import BaseModel, model_serializer
from pydantic_core import PydanticSerializationError

from planner import BadFile, BadRequest
from planner.cli.ending import verdict
from planner.studies import answer as answering
from planner.studies.cores import usable
from planner.studies.result import results
from planner.studies.running import run
from planner.studies.store import Store, merge
from tests.planner.sweep_studies import TOML, answers, stamped, study, written

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The answers of the small study, found in one go and in one process."""
    path = tmp_path_factory.mktemp("whole") / "runs.sqlite"
    done = run(study(), path, workers=1)
    assert (done.answered, done.known, done.counts["optimal"]) == (8, 0, 8)
    return answers(path)


def command(*arguments):
    return [sys.executable, "-m", "planner", "sweep", *map(str, arguments)]


def started(*arguments, **options):
    return subprocess.Popen(command(*arguments), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_several_processes_find_what_one_finds(tmp_path, undisturbed):
    done = run(study(), tmp_path / "runs.sqlite", workers=2)
    assert done.answered == 8
    assert answers(tmp_path / "runs.sqlite") == undisturbed


def test_a_second_run_asks_nothing_and_another_study_only_what_is_new(tmp_path):
    path = tmp_path / "runs.sqlite"
    run(study(), path, workers=1)
    before = stamped(path)
    again = run(study(), path, workers=1)
    assert (again.answered, again.known) == (0, 8)
    wider = run(study(gpus=[8, 16, 32]), path, workers=1)
    assert (wider.answered, wider.known) == (4, 8)
    assert {key: row for key, row in stamped(path).items() if key in before} == before


def test_a_point_that_is_written_twice_is_asked_once(tmp_path):
    done = run(
        study(gpus=8, stacks=["megatron-core"], cluster={"fabric": {"bandwidth": ["1x", "50 GB/s"]}}),
        tmp_path / "runs.sqlite",
        workers=1,
    )
    assert (done.answered, done.known) == (1, 1)


def test_a_failing_point_is_kept_with_its_error_and_stops_nothing(tmp_path):
    path = tmp_path / "runs.sqlite"
    asked = study(gpus=[8, 12, 16])
    done = run(asked, path, workers=1)
    assert (done.counts["optimal"], done.failed, done.defects) == (8, 4, 0)
    failed = [result for result in results(asked, path) if result.status == "failed"]
    assert {result.axes["gpus"] for result in failed} == {12}
    assert all("do not fill nodes of 8" in result.error for result in failed)
    assert run(asked, path, workers=1).answered == 0
    assert run(asked, path, workers=1, retry_failed=True).failed == 4


def test_a_defect_of_the_planner_fails_one_point(tmp_path, monkeypatch):
    def broken(request, *others):
        if request.gpus == 8:
            raise ZeroDivisionError("a formula")
        return real(request, *others)

    real = answering.short_plan
    monkeypatch.setattr(answering, "short_plan", broken)
    path = tmp_path / "runs.sqlite"
    done = run(study(), path, workers=1)
    assert (done.counts["optimal"], done.failed, done.defects) == (4, 4, 4)
    monkeypatch.undo()
    again = run(study(), path, workers=1, retry_failed=True)
    assert (again.answered, again.failed) == (4, 0)


class Interrupted(BaseModel):
    """A record whose serializer is interrupted, as any may be."""

    @model_serializer(mode="wrap")
    def _interrupted(self, _usual):
        raise KeyboardInterrupt


@pytest.mark.parametrize("dump", [BaseModel.model_dump, BaseModel.model_dump_json])
def test_an_interrupt_inside_a_serializer_is_one(tmp_path, monkeypatch, dump):
    monkeypatch.setattr(answering, "kept_document", lambda _plan: dump(Interrupted()))
    with pytest.raises(KeyboardInterrupt):
        run(study(), tmp_path / "runs.sqlite", workers=1)
    with pytest.raises(PydanticSerializationError) as lost:
        dump(Interrupted())
    assert verdict(lost.value) == (130, "interrupted")


def test_an_infeasible_point_is_an_answer(tmp_path):
    path = tmp_path / "runs.sqlite"
    asked = study(model="175b", gpus=8, pins={"offload": "none"}, cluster={"price": "2 $/h"})
    assert run(asked, path, workers=1).counts["infeasible"] == 1
    (result,) = results(asked, path)
    assert result.record()["rejected"][0]["rule"] == "memory"


def test_a_fixed_strategy_is_priced_on_every_point(tmp_path):
    path = tmp_path / "runs.sqlite"
    asked = study(mode="predict", tp=[1, 2], pp=2, layers_per_stage=["16,16", "15,17"], cluster={"price": "2 $/h"})
    assert run(asked, path, workers=1).answered == 8
    found = list(results(asked, path))
    assert {result.status for result in found} <= {"feasible", "infeasible"}
    assert {result.document["strategy"]["tp"] for result in found} == {1, 2}
    assert {result.document["strategy"]["stages"][0]["layers"] for result in found} == {16, 15}


def test_speedups_are_over_the_baseline(tmp_path):
    asked = study(baseline={"cluster": {"fabric": {"bandwidth": "25 GB/s"}}})
    run(asked, tmp_path / "runs.sqlite", workers=1)
    found = list(results(asked, tmp_path / "runs.sqlite"))
    assert {one.speedup for one in found if one.axes["cluster.fabric.bandwidth"] == "25 GB/s"} == {1.0}
    assert all(one.speedup >= 1.0 for one in found)


def test_parts_of_a_study_merge_into_the_whole(tmp_path, undisturbed):
    parts = [tmp_path / f"part-{part}.sqlite" for part in (1, 2)]
    asked = study()
    done = [run(asked, path, workers=1, shard=(part, 2)).answered for part, path in enumerate(parts, start=1)]
    assert sum(done) == 8
    assert merge(parts, tmp_path / "all.sqlite") == 8
    assert merge(parts, tmp_path / "all.sqlite") == 0
    assert answers(tmp_path / "all.sqlite") == undisturbed


def test_a_later_answer_takes_the_place_of_a_failure_and_of_nothing_else(tmp_path):
    def one(status, error=None):
        return answering.Finished("k", status, None if error else '{"request": {}}', error, 0.0)

    with Store.open(tmp_path / "a.sqlite") as store:
        store.add([one("failed", "first")])
        store.add([one("infeasible")])
        store.add([one("failed", "late")])
        assert store.statuses(["k"]) == {"k": "infeasible"}
    with Store.open(tmp_path / "b.sqlite") as store:
        store.add([one("failed", "part")])
    merge([tmp_path / "b.sqlite"], tmp_path / "a.sqlite")
    with Store.open(tmp_path / "a.sqlite", writing=False) as store:
        assert [one.status for one in store.every()] == ["infeasible"]


def test_merging_keeps_the_first_of_two_failures_and_counts_none(tmp_path):
    for place in ("first", "second"):
        with Store.open(tmp_path / place) as store:
            store.add([answering.Finished("k", "failed", None, place, 0.0)])
    assert merge([tmp_path / "second"], tmp_path / "first") == 0
    assert [error for *_, error in answers(tmp_path / "first")] == ["first"]


def test_a_second_process_is_refused_while_the_first_writes(tmp_path):
    path = tmp_path / "runs.sqlite"
    with Store.open(path):
        with pytest.raises(BadFile, match=f"process {os.getpid()} is writing it"):
            Store.open(path)
        done = subprocess.run(
            command(written(tmp_path), "-o", path), cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        with Store.open(path, writing=False) as reader:
            assert not list(reader.every())
    with Store.open(path):
        pass


def test_what_is_no_store_is_left_alone(tmp_path):
    text, other, late = tmp_path / "text", tmp_path / "other.sqlite", tmp_path / "late.sqlite"
    text.write_text("not a database at all, but long enough to have had a header " * 20)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    Store.open(late).close()
    with sqlite3.connect(late) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for path, reason in ((text, "not a database"), (other, "something else"), (late, "version 99")):
        before = path.read_bytes()
        with pytest.raises(BadFile, match=reason):
            Store.open(path)
        assert path.read_bytes() == before
    for path in (tmp_path, tmp_path / "no" / "such"):
        with pytest.raises(BadFile):
            Store.open(path)
    text.write_text("")
    with pytest.raises(BadFile, match="an empty file"):
        Store.open(text, writing=False)
    assert not list(tmp_path.glob("*.lock"))


def test_killed_again_and_again_a_study_ends_as_if_nothing_had_happened(tmp_path, undisturbed):
    path, asked = tmp_path / "runs.sqlite", written(tmp_path)
    kept = {}
    for number in range(2):
        process = started(asked, "-o", path, "--workers", 1, "-q")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None and len(_now(path)) < 2 * number + 1:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        now = stamped(path) if path.exists() and _now(path) else {}
        assert {key: row for key, row in now.items() if key in kept} == kept
        kept = now
    assert kept
    done = subprocess.run(command(asked, "-o", path), cwd=ROOT, capture_output=True, text=True, check=True)
    assert "8 points answered" in done.stderr
    assert {key: row for key, row in stamped(path).items() if key in kept} == kept
    assert answers(path) == undisturbed


def _now(path):
    """What is committed at this moment."""
    try:
        return stamped(path) if path.exists() and path.stat().st_size else {}
    except sqlite3.OperationalError:
        return {}


def test_workers_do_not_outlive_a_killed_run_and_the_store_is_free_at_once(tmp_path):
    text = TOML.replace("[8, 16]", "{ from = 8, to = 16000, step = 8 }")
    process = started(written(tmp_path, text), "-o", tmp_path / "runs.sqlite", "--workers", 2, "-q")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(_now(tmp_path / "runs.sqlite")) < 2:
        time.sleep(0.01)
    workers = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    assert len(workers) >= 2
    process.send_signal(signal.SIGKILL)
    process.communicate()
    Store.open(tmp_path / "runs.sqlite").close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(map(_runs, workers)):
        time.sleep(0.05)
    assert not any(map(_runs, workers))


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_worker_that_dies_loses_nothing(tmp_path, undisturbed):
    process = started(written(tmp_path), "-o", tmp_path / "runs.sqlite", "--workers", 2, "-q")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    killed = 0
    deadline = time.monotonic() + 60
    while killed < 2 and time.monotonic() < deadline and process.poll() is None:
        for pid in children.read_text().split():
            if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(int(pid), signal.SIGKILL)
                killed += 1
        time.sleep(0.05)
    process.communicate(timeout=120)
    assert killed >= 1
    assert process.returncode == 0
    assert answers(tmp_path / "runs.sqlite") == undisturbed


def test_a_full_disk_stops_the_run_and_keeps_what_is_finished(tmp_path, undisturbed):
    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    path, asked = tmp_path / "runs.sqlite", written(tmp_path)
    process = started(asked, "-o", path, "--workers", 1, "-q", preexec_fn=little_room)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert len(said.splitlines()) == 1
    kept = stamped(path)
    assert 0 < len(kept) < 8
    run(study(), path, workers=1)
    assert {key: row for key, row in stamped(path).items() if key in kept} == kept
    assert answers(path) == undisturbed


def test_an_interrupt_ends_with_130_and_keeps_what_is_finished(tmp_path):
    text = TOML.replace("[8, 16]", "{ from = 8, to = 16000, step = 8 }")
    path = tmp_path / "runs.sqlite"
    process = started(
        written(tmp_path, text),
        *("-o", path, "--workers", 1),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores SIGINT
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not _now(path):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.decode().splitlines()[-1] == "plan: interrupted"
    assert _now(path)


def test_impossible_shards_and_workers_are_refused(tmp_path):
    for wrong in ({"shard": (0, 2)}, {"shard": (3, 2)}, {"workers": 0}):
        with pytest.raises(BadRequest):
            run(study(), tmp_path / "runs.sqlite", **wrong)


def test_processors_are_those_that_may_be_used(tmp_path):
    allowed = len(os.sched_getaffinity(0))
    group = tmp_path / "cgroup"
    (tmp_path / "job" / "step").mkdir(parents=True)
    group.write_text("0::/job/step\n")
    assert usable(root=tmp_path, memberships=group) == allowed
    (tmp_path / "job" / "step" / "cpu.max").write_text("max 100000\n")
    (tmp_path / "job" / "cpu.max").write_text("100000 100000\n")
    assert usable(root=tmp_path, memberships=group) == 1
    group.write_text("4:cpu,cpuacct:/old\n")
    (tmp_path / "cpu" / "old").mkdir(parents=True)
    (tmp_path / "cpu" / "old" / "cpu.cfs_quota_us").write_text("50000\n")
    (tmp_path / "cpu" / "old" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable(root=tmp_path, memberships=group) == 1
    assert usable(root=tmp_path, memberships=tmp_path / "none") == allowed


def test_the_record_of_a_result_is_that_of_a_plan(tmp_path):
    asked = study()
    run(asked, tmp_path / "runs.sqlite", workers=1)
    for result in results(asked, tmp_path / "runs.sqlite"):
        record = json.loads(json.dumps(result.record()))
        assert record["status"] == "optimal"
        assert record["request"]["gpus"] == record["point"]["gpus"]
        assert record["strategy"]["dp"] >= 1
        assert record["prediction"]["iteration_seconds"] > 0
        assert "wall_seconds" not in record["proof"]


def test_a_lock_that_somebody_removed_is_no_error_when_the_run_ends(tmp_path):
    with Store.open(tmp_path / "runs.sqlite"):
        (tmp_path / "runs.sqlite.lock").unlink()
    assert not (tmp_path / "runs.sqlite.lock").exists()
