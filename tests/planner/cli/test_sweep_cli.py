"""`plan sweep` on the command line: forms, streams, exit codes, progress."""

import csv
import json
import subprocess
import sys
import time
from collections import Counter, deque
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import live, main
from planner.studies.answer import Finished
from planner.studies.progress import Progress
from tests.planner.sweep_studies import TOML, written

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """A study and a store that holds its answers, one of them a failure and one infeasible."""
    folder = tmp_path_factory.mktemp("sweep")
    text = TOML.replace("[8, 16]", "[8, 12, 1]").replace("8b", "70b") + '[baseline]\ncluster.price = "2 $/h"\n'
    path, store = written(folder, text), folder / "runs.sqlite"
    assert sweep(path, "-o", store, "--workers", 1, "-q").exit_code == 0
    return path, store


def sweep(*arguments):
    return CliRunner().invoke(main, ["sweep", *map(str, arguments)], env={"COLUMNS": "100"})


def test_json_is_one_object_of_results_in_the_order_of_the_study(answered):
    path, store = answered
    done = sweep(path, "-o", store, "--format", "json")
    document = json.loads(done.stdout)
    assert (document["schema"], document["study"], len(document["results"])) == ("sweep/1", "study", 12)
    assert [one["index"] for one in document["results"]] == list(range(12))
    assert {one["status"] for one in document["results"]} == {"optimal", "failed", "infeasible"}
    first = document["results"][0]
    assert {"request", "strategy", "prediction", "breakdown_seconds", "proof", "provenance", "speedup"} <= first.keys()
    assert first["request"]["model"]["name"].startswith("llama3-70b")
    assert "8 of 12 points answered, 4 failed, 0 answered now" in done.stderr


def test_csv_has_a_line_for_every_point(answered):
    path, store = answered
    rows = list(csv.DictReader(StringIO(sweep(path, "-o", store, "--format", "csv", "-q").stdout)))
    assert len(rows) == 12
    assert [row["gpus"] for row in rows[::4]] == ["8", "12", "1"]
    assert "do not fill nodes" in rows[4]["error"]
    assert "GiB" in rows[8]["rejected"]
    assert float(rows[0]["iteration_seconds"]) > 0


def test_a_table_shows_every_axis_and_why_points_failed(answered):
    path, store = answered
    shown = sweep(path, "-o", store, "-q").stdout
    headings = "gpus  fabric bandwidth  price  plan  iteration  MFU  days  cost  GiB  speedup"
    assert " ".join(shown.splitlines()[0].split()) == " ".join(headings.split())
    assert "gpus 12" in shown
    assert "12 GPUs do not fill nodes of 8" in " ".join(shown.split())
    assert len(sweep(path, "-o", store, "-q", "--results", str(path.parent / "t.txt")).stdout) == 0
    assert (path.parent / "t.txt").read_text() == shown


def test_plans_that_their_framework_cannot_start_are_named_below_the_table(tmp_path):
    path, store = tmp_path / "study.toml", tmp_path / "runs.sqlite"
    path.write_text('model = "gpt3-125m"\nstack = "torchtitan"\ngpus = [8, 16]\nprecision = ["bf16", "fp16"]\n')
    shown = " ".join(sweep(path, "-o", store, "-q", "--workers", 1).stdout.split())
    said = "torchtitan cannot start this plan: it takes no precision fp16"
    assert f"warning: gpus 8, precision fp16 and 1 alike: {said}" in shown
    assert shown.count(said) == 1
    rows = csv.DictReader(StringIO(sweep(path, "-o", store, "--format", "csv", "-q").stdout))
    assert [said in row["warnings"] for row in rows] == [False, True, False, True]


NAMES = {"cluster": ["a100-roce-1600g", "dgx-a100-80gb"], "stack": ["megatron-core", "megatron-lm-2022"]}


@pytest.mark.parametrize(
    ("width", "gone"), [(60, "MFU days cost GiB speedup"), (72, "days cost"), (80, "days"), (90, "")]
)
def test_a_narrow_table_breaks_no_word_and_says_what_it_leaves_out(tmp_path, width, gone):
    axes = "".join(f"{name} = {values}\n" for name, values in NAMES.items())
    path = written(tmp_path, f'model = "gpt3-125m"\ngpus = [8, 16]\n{axes}[baseline]\ngpus = 8\n')
    ask = ["sweep", str(path), "-o", str(tmp_path / "runs.sqlite"), "--workers", "1", "-q"]
    wide, narrow = (CliRunner().invoke(main, ask, env={"COLUMNS": str(n)}).stdout.splitlines() for n in (200, width))
    assert max(map(len, narrow)) <= width
    assert narrow[0].split() == [name for name in wide[0].split() if name not in gone.split()]
    assert {name for values in NAMES.values() for name in values} <= set(" ".join(narrow).split())
    told = f"without {', '.join(gone.split())}, for which there is no room; --format csv has them"
    assert (told in " ".join(narrow)) == bool(gone)


@pytest.mark.skipif(find_spec("pyarrow") is not None, reason="tests/extras reads the file")
def test_parquet_without_pyarrow_says_what_to_install(answered):
    path, store = answered
    done = sweep(path, "-o", store, "--format", "parquet", "--results", path.parent / "x.parquet")
    assert (done.exit_code, "pip install pyarrow" in done.stderr) == (2, True)


@pytest.mark.skipif(find_spec("ray") is not None, reason="tests/extras runs it")
def test_ray_without_ray_says_what_to_install(tmp_path):
    done = sweep(written(tmp_path), "-o", tmp_path / "runs.sqlite", "--engine", "ray")
    assert (done.exit_code, "pip install ray" in done.stderr) == (2, True)
    assert not (tmp_path / "runs.sqlite.lock").exists()


def test_a_rehearsal_counts_and_does_nothing(tmp_path):
    path = written(tmp_path, TOML + 'where = ["gpus < 16"]\n' if "where" in TOML else 'where = ["gpus < 16"]\n' + TOML)
    done = sweep(path, "-o", tmp_path / "runs.sqlite", "--dry-run")
    assert done.stdout.splitlines()[0].startswith("study: 4 points (1 model x 2 gpus")
    assert "4 filtered out" in done.stdout
    assert "gpus 8, cluster.fabric.bandwidth 25 GB/s, cluster.price 2 $/h" in done.stdout
    assert json.loads(sweep(path, "--dry-run", "--format", "json").stdout)["points"] == 4
    assert list(tmp_path.iterdir()) == [path]


def test_status_tells_what_is_done_left_and_failed(answered, tmp_path):
    path, store = answered
    told = sweep("status", path, "-o", store).stdout
    assert "8 of 12 points answered, 4 failed" in told
    assert " 4 failed " in " ".join(told.split())
    assert "gpus 12" in told
    assert sweep("status", path, "-o", tmp_path / "none.sqlite").exit_code == 2


def test_status_gathers_failures_that_differ_in_numbers_only_and_names_every_one_in_json(tmp_path):
    counts = [12, *range(17, 24), 25, 26, 27, 28]
    text = TOML.replace("[8, 16]", str(counts))
    path, store = written(tmp_path, text), tmp_path / "runs.sqlite"
    sweep(path, "-o", store, "--workers", 1, "-q")
    told = " ".join(sweep("status", path, "-o", store).stdout.split())
    assert told.count("do not fill nodes of 8") == 1
    assert " and 47 alike: dgx-h100 with fabric.bandwidth" in told
    assert "--format json names all 48 failed points" in told
    document = json.loads(sweep("status", path, "-o", store, "--format", "json").stdout)
    assert (document["points"], document["counts"]["failed"], len(document["failed"])) == (48, 48, 48)
    assert {one["point"]["gpus"] for one in document["failed"]} == set(counts)
    assert all(str(one["point"]["gpus"]) in one["error"] for one in document["failed"])


def test_merge_gathers_stores(answered, tmp_path):
    _, store = answered
    done = sweep("merge", store, "-o", tmp_path / "all.sqlite")
    assert (done.exit_code, "12 answers of 1 stores are new" in done.stderr) == (0, True)
    assert sweep("merge", tmp_path / "no.sqlite", "-o", tmp_path / "all.sqlite").exit_code == 2
    assert sweep("merge", store, "-o", store).exit_code == 2


def test_nothing_but_failures_is_a_bad_request(tmp_path):
    path = written(tmp_path, TOML.replace("[8, 16]", "[12, 20]"))
    done = sweep(path, "-o", tmp_path / "runs.sqlite", "--workers", 1)
    assert done.exit_code == 2
    assert "8 points failed" in done.stderr


@pytest.mark.parametrize("shard", ["0/2", "3/2", "2", "a/b", "1/", "-1/3"])
def test_a_shard_that_is_none_is_refused(tmp_path, shard):
    done = sweep(written(tmp_path), "-o", tmp_path / "runs.sqlite", "--shard", shard)
    assert (done.exit_code, "--shard" in done.stderr) == (2, True)


def optimal(days):
    document = {
        "request": {"objective": "time", "model": {"name": "m"}, "gpus": 8, "cluster": {"name": "c"}},
        "prediction": {"training_days": days},
        "peak_memory_bytes": 1.0,
    }
    return Finished("a", "optimal", json.dumps(document), None, 0.1)


def test_progress_says_what_a_person_wants_to_know():
    progress = Progress(total=100, known=20)
    progress.add([optimal(2.5)])
    progress.add([Finished("b", "failed", None, "why", 0.1)])
    told = live.line(progress)
    assert told.startswith("22 of 100 points, ")
    assert "1 failed" in told
    assert told.endswith("best 2.5 days (m on 8 x c)")
    assert " left" in told


def test_the_best_so_far_of_a_sweep_is_the_least_of_all_answers():
    progress = Progress(total=3)
    progress.add([optimal(2.5), optimal(1.5), optimal(3.5)])
    assert progress.best == (1.5, "1.5 days (m on 8 x c)")


def test_the_rate_of_a_sweep_before_its_second_batch_is_over_all_its_time():
    progress = Progress(total=10, counts=Counter(optimal=5), started=time.monotonic() - 5.0)
    assert 0.0 < progress.rate <= 1.0


def test_what_a_sweep_has_left_is_reckoned_of_the_points_that_nobody_has_answered():
    progress = Progress(total=100, known=20, marks=deque([(0.0, 0), (5.0, 10)]))
    assert (progress.rate, progress.left) == (2.0, 40.0)


def test_the_sweep_is_not_paid_for_by_other_commands():
    heavy = "('planner.studies', 'sqlite3', 'numpy')"
    code = f"import sys, planner.cli; print([name for name in sys.modules if name.startswith({heavy})])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_store_that_nobody_named_is_told_with_its_place(tmp_path, monkeypatch):
    path = tmp_path / "mine.toml"
    path.write_text('model = "gpt3-125m"\ngpus = 8\n')
    monkeypatch.chdir(tmp_path)
    assert (
        "the answers are in mine.sqlite in this folder (-o names another place)" in sweep(path, "--workers", 1).stderr
    )
    assert (tmp_path / "mine.sqlite").is_file()
    assert "the answers are in mine.sqlite\n" in sweep(path, "-o", "mine.sqlite", "--workers", 1).stderr
