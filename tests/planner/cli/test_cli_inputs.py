"""No answer is written over what its command read."""

import json

import pytest
from click.testing import CliRunner

from planner.cli import main

STUDY = """model = "llama3-8b"
gpus = [8]
"""


@pytest.fixture(name="folder")
def fixture_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ask.json").write_text(json.dumps({"model": "llama3-8b", "gpus": 8}))
    (tmp_path / "study.toml").write_text(STUDY)
    run("--config", "ask.json", "--no-reasons", "--format", "json", "-o", "plan.json", "-q")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        (["--config", "ask.json", "-o", "ask.json"], "ask.json"),
        (["trace", "plan.json", "-o", "plan.json"], "plan.json"),
        (["report", "plan.json", "-o", "./plan.json"], "plan.json"),
        (["replan", "plan.json", "--gpus", "16", "-o", "plan.json"], "plan.json"),
        (["sweep", "study.toml", "-o", "new.sqlite", "--results", "study.toml"], "study.toml"),
        (["sweep", "study.toml", "-o", "new.sqlite", "--results", "new.sqlite"], "study.toml"),
    ],
)
def test_an_answer_over_an_input_is_refused_and_the_input_kept(folder, command, kept):
    before = (folder / kept).read_bytes()
    done = run(*command)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "would write over" in done.stderr
    assert (folder / kept).read_bytes() == before
    assert not (folder / "new.sqlite").exists()


def test_a_study_is_answered_where_nothing_is_lost(folder):
    assert run("sweep", "study.toml", "-o", "new.sqlite", "--results", "out.csv", "--format", "csv").exit_code == 0
    assert (folder / "out.csv").exists()


def test_an_answer_over_an_older_answer_is_written(folder):
    done = run("--model", "llama3-8b", "--gpus", "16", "--no-reasons", "--format", "json", "-o", "plan.json", "-q")
    assert done.exit_code == 0
    assert json.loads((folder / "plan.json").read_text())["request"]["gpus"] == 16


def test_a_file_of_the_name_of_a_model_is_no_input(folder):
    for _ in range(2):
        assert run("--model", "llama3-8b", "--gpus", "8", "--no-reasons", "-o", "llama3-8b").exit_code == 0
    assert (folder / "llama3-8b").exists()


def test_a_dash_is_stdout(folder):
    for command in (["trace", "plan.json"], ["list", "models"]):
        assert run(*command, "-o", "-").stdout == run(*command).stdout
    assert not (folder / "-").exists()
