"""`plan predict --config ANSWER` prices the strategy of the answer, not a neutral one in its place."""

import json

import pytest
from click.testing import CliRunner

from planner.cli import main

QUESTIONS = {
    "uneven stages": ("--model", "llama3-70b", "--gpus", "64", "--for", "megatron-lm"),
    "some layers recomputed": ("--model", "llama2-70b", "--gpus", "16", "--cluster", "dgx-a100-80gb", "--offload",
                               "none", "--recompute", "partial"),
    "ranges pinned": ("--model", "llama3-8b", "--gpus", "64", "--tp", "..4", "--pp", "2,4", "--zero", "1"),
    "modules recomputed": ("--model", "moonlight-16b-a3b", "--gpus", "4", "--cluster", "dgx-a100-80gb",
                           "--global-batch", "64"),
}  # fmt: skip


def run(*arguments):
    done = CliRunner().invoke(main, [*arguments, "--format", "json", "-q"], env={"COLUMNS": "100"})
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def run_piped(command, answer, *arguments):
    done = CliRunner().invoke(main, [command, *arguments, "--format", "json", "-q"], input=json.dumps(answer))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(name="saved", params=QUESTIONS)
def fixture_saved(request, tmp_path):
    """An answer and the file that holds it."""
    path = tmp_path / "plan.json"
    answer = run(*QUESTIONS[request.param], "--no-reasons")
    path.write_text(json.dumps(answer))
    return answer, str(path)


def test_an_answer_is_priced_again_as_it_was(saved):
    answer, path = saved
    again = run("predict", "--config", path)
    assert again["strategy"] == answer["strategy"]
    assert again["prediction"]["iteration_seconds"] == pytest.approx(answer["prediction"]["iteration_seconds"])
    assert again["memory_bytes"] == answer["memory_bytes"]


@pytest.mark.parametrize("saved", ["uneven stages"], indirect=True)
def test_an_answer_is_known_by_what_it_holds_whatever_its_file_is_called(saved, tmp_path):
    answer, _ = saved
    (tmp_path / "answer").write_text(json.dumps(answer))
    for again in (run("predict", "--config", str(tmp_path / "answer")), run_piped("predict", answer, "--config", "-")):
        assert again["strategy"] == answer["strategy"]
    (pinned := tmp_path / "question").write_text('{"model": "llama3-8b", "gpus": 8, "pins": {"tp": 4}}')
    assert run("predict", "--config", str(pinned))["strategy"]["tp"] == 4
    (tmp_path / "later").write_text('{"schema": "plan/2", "request": {}}')
    later = CliRunner().invoke(main, ["predict", "--config", str(tmp_path / "later")])
    assert (later.exit_code, "its schema is plan/2" in later.stderr) == (2, True)


@pytest.mark.parametrize("saved", ["uneven stages"], indirect=True)
def test_options_given_with_an_answer_win(saved):
    answer, path = saved
    other = run("predict", "--config", path, "--recompute", "full")
    assert other["strategy"]["recompute"] == "full"
    assert other["strategy"]["tp"] == answer["strategy"]["tp"]
