"""Answers where a stream is closed, full or knows few letters."""

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner import PlanRequest
from planner.cli import main
from planner.cli.live import standing, working
from planner.request.progress import Progress
from tests.planner.cli.test_cli import ASK, FAKE, python

CODE = FAKE.format(body="lambda request: fake_plan()")


def shell(line):
    return subprocess.run(["bash", "-c", line], stdout=subprocess.PIPE, text=True, check=False)


def test_an_answer_and_an_exit_code_need_nobody_who_listens_to_talk():
    heard = python(CODE, *ASK).stdout
    for talk in ("2>&-", "2>/dev/full"):
        said = shell(f"\"{sys.executable}\" -c '{CODE}' {' '.join(ASK)} {talk}")
        assert (said.returncode, said.stdout) == (0, heard)
        assert shell(f'"{sys.executable}" -m planner --model nope --gpus 8 {talk}').returncode == 2


def test_json_keeps_every_letter_where_stdout_is_ascii(tmp_path):
    path = tmp_path / "model.toml"
    text = Path("examples/my-model.toml").read_text(encoding="utf-8")
    path.write_text(text.replace('name = "', 'name = "Größe-', 1), encoding="utf-8")
    asked = [sys.executable, "-m", "planner", "--model", str(path), "--gpus", "8", "--no-reasons", "--format", "json"]
    done = subprocess.run(asked, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}, check=True)
    assert "Größe-" in json.dumps(json.loads(done.stdout.decode("ascii")), ensure_ascii=False)


@pytest.mark.parametrize(
    "words",
    [["--version"], ["--help"], ["list", "stacks"], ["sweep", "STUDY", "--format", "csv", "--quiet"]],
    ids=lambda words: words[0],
)
def test_every_command_tells_of_a_full_disk_in_one_line(words, tmp_path):
    study = tmp_path / "study.toml"
    study.write_text('model = "gpt3-125m"\ngpus = 8\n')
    store = f"-o {tmp_path}/runs.sqlite --workers 1" if words[0] == "sweep" else ""
    said = " ".join(words).replace("STUDY", str(study))
    done = shell(f'"{sys.executable}" -m planner {said} {store} 2>&1 >/dev/full')
    assert (done.returncode, done.stdout) == (1, "plan: the answer cannot be written: No space left on device\n")


@pytest.mark.parametrize("form", ["table", "parquet"])
def test_results_of_a_study_for_nobody_are_told_in_one_line(form, tmp_path):
    study = tmp_path / "study.toml"
    study.write_text('model = "gpt3-125m"\ngpus = 8\n')
    words = f"sweep {study} -o {tmp_path}/runs.sqlite --workers 1 -q --format {form}"
    done = shell(f'"{sys.executable}" -m planner {words} 2>&1 >&-')
    assert (done.returncode, done.stdout) == (1, "plan: the answer cannot be written: stdout is closed\n")


@pytest.mark.parametrize(("columns", "width"), [("0", 80), ("1", 20), ("99999999999", 1000), ("60", 60)])
def test_the_screen_has_a_width_that_can_be_read_whatever_columns_says(columns, width):
    def rows(columns):
        return CliRunner().invoke(main, ["list", "clusters"], env={"COLUMNS": columns}).stdout.splitlines()

    assert rows(columns) == rows(str(width))
    assert any(rows(columns))


def test_an_interrupt_before_anything_is_loaded_is_one_line():
    code = """
import sys
class Interrupting:
    def find_spec(self, name, *rest):
        if name == "click": raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
import planner.cli
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "plan: interrupted\n")


def test_tokens_are_written_alike_everywhere():
    assert PlanRequest(model="7b", gpus=8, tokens="300B").tokens == 300_000_000_000
    with pytest.raises(ValueError, match="expected a count such as '175B', got '300 GB'"):
        PlanRequest(model="7b", gpus=8, tokens="300 GB")


FULL = "plan: /dev/full: the answer cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    "words",
    [
        "list models -o /dev/full",
        "predict --model gpt3-125m --gpus 8 -o /dev/full",
        "trace --model gpt3-125m --gpus 8 -q -o /dev/full",
        "sweep STUDY -o STORE --workers 1 -q --format csv --results /dev/full",
    ],
)
def test_a_full_file_ends_like_a_full_stdout(words, tmp_path):
    study = tmp_path / "study.toml"
    study.write_text('model = "gpt3-125m"\ngpus = 8\n')
    said = words.replace("STUDY", str(study)).replace("STORE", f"{tmp_path}/runs.sqlite")
    done = CliRunner().invoke(main, said.split())
    assert (done.exit_code, done.stderr) == (1, FULL)


@pytest.mark.parametrize("words", ["list models", "sweep STUDY -o STORE --workers 1 -q --format csv"])
def test_a_link_stays_one_and_its_file_gets_the_answer(words, tmp_path):
    study, real, link = (tmp_path / name for name in ("study.toml", "real.txt", "link.txt"))
    study.write_text('model = "gpt3-125m"\ngpus = 8\n')
    real.write_text("old")
    link.symlink_to(real)
    option = "--results" if words.startswith("sweep") else "--output"
    said = words.replace("STUDY", str(study)).replace("STORE", f"{tmp_path}/runs.sqlite")
    assert CliRunner().invoke(main, [*said.split(), option, str(link)]).exit_code == 0
    assert link.is_symlink()
    assert len(real.read_text()) > 20


def test_links_in_a_circle_are_written_over_and_a_pipe_is_no_store(tmp_path):
    one, other, pipe = (tmp_path / name for name in ("one", "other", "pipe"))
    one.symlink_to(other)
    other.symlink_to(one)
    assert CliRunner().invoke(main, ["list", "stacks", "-o", str(one)]).exit_code == 0
    os.mkfifo(pipe)
    done = CliRunner().invoke(main, ["sweep", "examples/sweep.toml", "-o", str(pipe), "-q"])
    assert (done.exit_code, done.stderr) == (2, f"plan: {pipe}: a pipe, where a file is expected\n")


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (Progress("searching"), "searching"),
        (
            Progress("searching", best=2.43, bound=2.0),
            "searching, best so far 2.43 s, at most 17.7 % from the best possible",
        ),
        (
            Progress("turning levers", best=2.43, bound=2.0, done=3, total=9),
            "turning levers, 3 of 9 done, best so far ",
        ),
    ],
)
def test_a_long_search_says_what_it_does_the_best_so_far_and_how_far_that_may_be_off(at, said):
    assert standing(at).startswith(said)
    assert "best so far 2.0 GiB" in standing(replace(at, best=2.0**31), in_bytes=True)


@pytest.mark.parametrize(
    ("quiet", "terminal", "told"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_only_a_person_who_looks_is_told_of_progress(monkeypatch, quiet, terminal, told):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    with working("searching", {"quiet": quiet}) as given:
        assert bool(given) == told
    assert sys.stderr.getvalue() == ""
