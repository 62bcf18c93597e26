import json

import pytest
from click.testing import CliRunner

from planner.cli import main

ASK = ["-m", "Qwen/Qwen3-8B", "-g", "16", "--task", "finetune", "--top", "0", "--no-reasons"]


def run(*args):
    done = CliRunner().invoke(main, [str(arg) for arg in args])
    assert done.exit_code == 0, done.stderr
    return done


@pytest.mark.parametrize("trainer", ["trl", "llamafactory", "axolotl", "swift"])
def test_a_plan_for_a_trainer_is_one_that_it_starts(trainer, tmp_path):
    plan = tmp_path / "plan.json"
    asked = run(*ASK, "--for", trainer, "--format", "json", "-o", plan)
    assert f"`plan export PLAN --to {trainer}` writes its files" in asked.stderr
    assert "Qwen/Qwen3-8B" in run("export", plan, "--to", trainer).stdout


def test_ranks_that_a_trainer_lacks_are_refused_before_a_plan_is_made():
    done = CliRunner().invoke(main, [*ASK, "--for", "swift", "--pp", "2"])
    assert (done.exit_code, done.stderr) == (2, "plan: swift starts no plan of pp 2; 1 works\n")


def test_an_answer_replanned_keeps_the_name_on_the_hub(tmp_path):
    plan, again = tmp_path / "plan.json", tmp_path / "again.json"
    run(*ASK, "--for", "trl", "--format", "json", "-o", plan)
    run("replan", plan, "-g", "8", "--format", "json", "-o", again)
    assert "Qwen/Qwen3-8B" in run("export", again, "--to", "trl").stdout


def test_a_changed_model_is_not_called_by_the_name_on_the_hub(tmp_path):
    plan = tmp_path / "plan.json"
    run(*ASK, "--format", "json", "-o", plan)
    document = json.loads(plan.read_text())
    document["request"]["model"]["num_layers"] = 30
    plan.write_text(json.dumps(document))
    assert "hub" not in json.loads(run("--config", plan, "--format", "json", "--no-reasons").stdout)["request"]["model"]
