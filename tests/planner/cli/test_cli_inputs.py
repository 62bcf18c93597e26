"""What commands read: no answer is written over it, none of it is dropped without a word."""

import json

import pytest
from click.testing import CliRunner

from planner import PlanRequest, plan
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


STAGES = {"model": "gpt3-1.3b", "gpus": 8, "pins": {"pp": 2}, "layers_per_stage": [10, 14]}


@pytest.mark.parametrize(
    "command", [["solve", "--dry-run"], ["solve"], ["why-not", "--dry-run"], ["size", "--deadline", "30d"]]
)
def test_layers_that_a_search_would_drop_are_refused_by_every_search(tmp_path, command):
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps(STAGES), encoding="utf-8")
    done = run(*command, "--config", str(asked))
    assert (done.exit_code, done.stdout) == (2, "")
    assert (
        "layers_per_stage: a search chooses the split of the layers itself; `plan predict` prices a given one"
        in done.stderr
    )


def test_a_second_run_of_one_name_in_a_file_is_refused(tmp_path):
    line = json.dumps({"schema": "run/1", "id": "x", "request": {"model": "gpt3-1.3b", "gpus": 8}, "measured": {}})
    runs = tmp_path / "runs.jsonl"
    runs.write_text(f"{line}\n{line}\n", encoding="utf-8")
    done = run("validate", str(runs))
    assert (done.exit_code, done.stderr) == (
        2,
        f"plan: {runs}: line 2: a second run 'x', as on line 1; give it an id of its own\n",
    )


def test_what_was_written_at_length_is_cut_and_no_pattern_is_shown():
    long = run("--model", "gpt3-1.3b", "--gpus", "8", "--stack", "a" * 3000)
    assert (long.exit_code, len(long.stderr) < 200) == (2, True)
    month = run("--model", "gpt3-1.3b", "--gpus", "8", "--as-of", "x")
    assert month.stderr == "plan: --as-of: expected a month such as 2024-12, got 'x'\n"


def test_a_plan_over_groups_of_other_widths_is_priced_from_its_own_answer(tmp_path):
    """Some of its layers are recomputed, and its groups have other tensor ranks."""
    asked = PlanRequest(
        model="llama2-70b", gpus=128, cluster="a100-h100-mixed", memory_margin=0.6, reasons=False, top=0
    )
    found = plan(asked.model_copy(update={"framework": "any", "pins": {"recompute": "partial"}}))
    assert any(0 < stage.recompute_layers < stage.layers for stage in found.strategy.stages)
    saved = tmp_path / "plan.json"
    saved.write_text(found.to_json(), encoding="utf-8")
    again = json.loads(run("predict", "--config", str(saved), "--format", "json").stdout)
    assert again["status"] == "feasible"
    assert again["prediction"]["iteration_seconds"] == pytest.approx(found.prediction.iteration_seconds)
    assert again["memory_bytes"] == json.loads(found.to_json())["memory_bytes"]
