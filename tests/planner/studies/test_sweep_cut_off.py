"""Stores whose writer died in a commit: read as they were before it, by whoever may write and whoever may not."""

import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner import BadFile
from planner.cli.app import main
from planner.studies.result import every_result, results
from planner.studies.running import run
from planner.studies.store import Store, merge
from tests.planner.sweep_studies import TOML, answers, stamped, study

ROOT = Path(__file__).resolve().parents[3]


CUT_OFF = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # pages go to the disk before the commit
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE results SET status = 'failed', document = NULL, error = ?", ("lost",))
rows = [(f"k{n}", "x" * 20_000) for n in range(20)]
connection.executemany("INSERT INTO results (key, status, document, seconds) VALUES (?, 'optimal', ?, 1)", rows)
os.kill(os.getpid(), signal.SIGKILL)
"""


def cut_off(path):
    """A store with some answers, whose writer was killed in a commit that had reached the file in part."""
    asked = study(gpus=8)
    run(asked, path, workers=1)
    before = stamped(path)
    subprocess.run([sys.executable, "-c", CUT_OFF, str(path)], check=False)
    assert path.with_name(f"{path.name}-journal").stat().st_size
    return asked, before


def test_a_store_whose_writer_died_in_a_commit_is_read_as_it_was_before(tmp_path):
    path = tmp_path / "runs.sqlite"
    asked, before = cut_off(path)
    assert [one.status for one in results(asked, path)] == ["optimal"] * 4
    assert stamped(path) == before


def test_a_store_whose_writer_died_in_a_commit_is_drawn_and_merged(tmp_path):
    path, part = tmp_path / "runs.sqlite", tmp_path / "part.sqlite"
    _, before = cut_off(path)
    shutil.copy(path, part)
    shutil.copy(f"{path}-journal", f"{part}-journal")
    assert len(list(every_result(path))) == len(before)
    assert merge([part], tmp_path / "all.sqlite") == len(before)
    assert answers(tmp_path / "all.sqlite") == answers(path)


def test_a_reader_writes_nothing_and_needs_no_right_to(tmp_path):
    path = tmp_path / "runs.sqlite"
    run(study(gpus=8), path, workers=1)
    with Store.open(path, writing=False) as reader, pytest.raises(BadFile, match="readonly"):
        reader.note("mine", {}, "now")
    assert as_nobody(path) == "4"


@pytest.mark.parametrize("writable", [False, True])
def test_a_commit_that_was_cut_off_where_nothing_can_be_written_is_one_line(tmp_path, writable):
    path = tmp_path / "runs.sqlite"
    cut_off(path)
    if writable:
        path.chmod(0o666)
    assert re.fullmatch(
        r"\S+: a process died while it wrote.*; copy runs.sqlite and runs.sqlite-journal to .*", as_nobody(path)
    )


READ_BY_NOBODY = """
import os, sys
from planner.studies.store import BadFile, Store
if os.geteuid() == 0:
    os.setuid(65534)
try:
    with Store.open(sys.argv[1], writing=False) as store:
        print(len(list(store.every())))
except BadFile as error:
    print(error)
"""


def as_nobody(path):
    """What somebody without rights to a store reads in a folder that cannot be written: how many answers, or a line."""
    with tempfile.TemporaryDirectory() as folder:
        for file in path.parent.glob("runs.sqlite*"):
            shutil.copy(file, folder)
        Path(folder).chmod(0o555)
        read = [sys.executable, "-c", READ_BY_NOBODY, f"{folder}/{path.name}"]
        said = subprocess.run(read, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        Path(folder).chmod(0o755)
    return said.strip()


HOLLOW = ['{"request": {}}', '{"request": {}, "strategy": {"tp": 1}, "prediction": {}}']


@pytest.mark.parametrize("damage", ["{", "[1]", "no JSON at all", b"\xff\xfe\x00", None, *HOLLOW])
def test_a_damaged_row_is_named_and_the_others_stay_answers(tmp_path, damage):
    path, asked = tmp_path / "runs.sqlite", study(gpus=8)
    run(asked, path, workers=1)
    before = {one.index: one.record() for one in results(asked, path)}
    with closing(sqlite3.connect(path)) as connection, connection:
        key = connection.execute("SELECT min(key) FROM results").fetchone()[0]
        connection.execute("UPDATE results SET document = CAST(? AS TEXT) WHERE key = ?", (damage, key))
    found = list(results(asked, path))
    (bad,) = [one for one in found if one.status == "failed"]
    assert bad.error == f"row {key:.16} of runs.sqlite is damaged; --retry-failed asks its point again"
    assert all(one.record() == before[one.index] for one in found if one is not bad)
    assert [one.status for one in every_result(path)].count("failed") == 1
    assert run(asked, path, workers=1).answered == 0
    assert run(asked, path, workers=1, retry_failed=True).answered == 1
    assert {one.index: one.record() for one in results(asked, path)} == before


@pytest.mark.parametrize("command", [["run"], ["status"]])
def test_a_store_at_the_end_of_a_loop_of_links_is_one_line(tmp_path, command):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "study.toml").write_text(TOML, encoding="utf-8")
    done = CliRunner().invoke(main, ["sweep", *command, str(tmp_path / "study.toml"), "-o", str(tmp_path / "a")])
    assert (done.exit_code, done.stderr) == (2, f"plan: {tmp_path / 'a'}: too many levels of symbolic links\n")
