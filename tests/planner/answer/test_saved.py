"""Saved answers that somebody changed: one line that says what is wrong, whoever reads them."""

import json

import pytest
from click.testing import CliRunner

from planner import PlanRequest, plan
from planner.answer.load import checked, read
from planner.cli import main
from planner.frameworks.registry import FRAMEWORKS
from tests.conformance.plans import random_plans
from tests.planner.fake_plan import infeasible_plan

(PLAN,) = random_plans("megatron-lm", 1, seed=5, models=("llama3-8b",), precisions=("bf16",))

SPOILED = {
    "tp of nothing": (("strategy", "tp"), 0, "strategy: tp: expected a count from 1 on, got 0"),
    "tp below nothing": (("strategy", "tp"), -4, "got -4"),
    "tp past counting": (("strategy", "dp"), 10**30, "dp: expected a count"),
    "a command as schedule": (("strategy", "schedule"), "$(id)", "there is no $(id); there are none, gpipe"),
    "an unknown order": (("strategy", "rank_order"), "pp-tp", "rank_order: there is no pp-tp"),
    "recomputed sometimes": (("strategy", "recompute"), "sometimes", "there is no sometimes"),
    "no stages": (("strategy", "stages"), [], "0 stages are listed"),
    "more ranks": (("strategy", "cp"), 64, "the plan is for"),
    "ZeRO 9": (("strategy", "zero_stage"), 9, "ZeRO stage 9"),
    "an unknown module": (("strategy", "recompute_modules"), ["brain"], "there is no brain"),
    "another batch": (("strategy", "global_batch_size"), 17, "global_batch_size is 17, the request's"),
    "fewer micro-batches": (("strategy", "num_microbatches"), 77, "micro-batches x their size x dp is"),
    "no number": (("request", "tokens"), float("nan"), "not JSON: NaN is not a number"),
    "another schema": (("schema",), "plan/2", "its schema is plan/2; version 0.1.0 reads plan/1"),
    "an unknown field": (("foo",), 1, "foo: there is no such field"),
    "no GPUs": (("request", "gpus"), None, "request: gpus: "),
    "GPUs in words": (("request", "gpus"), "many", "request: gpus: "),
    "no sequence": (("request", "seq_length"), None, "seq_length: required, but missing"),
    "no model": (("request", "model"), None, "request: model: "),
    "a named model": (("request", "model"), "llama3-8b", "request: model: a table of fields is expected"),
    "half a model": (("request", "model"), {"name": "x"}, "hidden_size: missing"),
    "nodes of no GPU": (("request", "cluster", "gpus_per_node"), 0, "request: cluster: "),
    "no nodes": (("request", "cluster", "nodes"), None, "request: cluster"),
    "a strange precision": (("request", "precision"), "bf17", "bf17"),
    "a stack of lists": (("request", "stack"), {"name": ["a"]}, "request: stack: "),
}
FIGURES = {
    "no memory of any stage": (("memory_bytes",), [], "memory_bytes: 0 stages are listed, the strategy has"),
    "time that runs backwards": (("prediction", "iteration_seconds"), -1, "prediction.iteration_seconds: "),
    "no time at all": (("prediction", "iteration_seconds"), 0, "prediction.iteration_seconds: "),
    "time without end": (("prediction", "training_days"), "1e999", "a figure is infinite"),
    "work undone": (("breakdown_seconds", "compute"), -5, "breakdown_seconds.compute: "),
    "a use below none": (("prediction", "mfu"), -0.1, "prediction.mfu: "),
    "memory below none": (("memory_bytes", 0, "total"), -1, "memory_bytes.0.total: "),
    "an interval upside down": (("prediction", "interval", "low"), 1e6, "prediction: interval: its low end, "),
    "a stage that is not": (("memory_bytes", 0, "stage"), 77, "memory_bytes: its stages are numbered [77"),
    "a device without memory": (("memory_bytes", 0, "limit"), 0, "memory_bytes.0.limit: "),
    "no layers together": (("strategy", "recompute_num_layers"), 0, "strategy: recompute_num_layers: "),
    "a run on no GPUs": (("trust", "nearest", 0, "gpus"), 0, "trust.nearest.0.gpus: "),
    "a gap of more than all": (("proof", "gap"), 1.5, "proof.gap: "),
    "an optimum of nothing": (("strategy",), None, "strategy: missing, though the plan is optimal"),
}
COMMANDS = (
    ("export", "{}", "--to", "torchtitan"),
    ("replan", "{}", "--gpus", "16"),
    ("trace", "{}"),
    ("report", "{}"),
    ("compare", "{}", "{}"),
)


def spoiled(where, value, answer=PLAN):
    document = json.loads(answer.to_json())
    *tables, last = where
    table = document
    for name in tables:
        table = table[name]
    table[last] = value
    return json.dumps(document).replace('"1e999"', "1e999")


@pytest.fixture(name="whole", scope="module")
def fixture_whole():
    """An answer with all its figures."""
    return plan(PlanRequest(model="llama3-8b", gpus=16))


@pytest.mark.parametrize("name", [*SPOILED, *FIGURES])
def test_a_changed_answer_is_refused_in_one_line_whoever_reads_it(name, whole, tmp_path):
    where, value, said = (SPOILED | FIGURES)[name]
    path = tmp_path / "answer.json"
    path.write_text(spoiled(where, value, whole if name in FIGURES else PLAN))
    for command in COMMANDS:
        done = CliRunner().invoke(main, [word.format(path) for word in command])
        assert (done.exit_code, done.stdout) == (2, ""), command
        assert done.stderr.startswith(f"plan: {path}: ")
        assert done.stderr.count("\n") == 1
        assert said in done.stderr


def test_a_script_is_no_answer_and_the_way_to_one_is_said(tmp_path):
    (tmp_path / "train.sh").write_text("torchrun pretrain_gpt.py\n")
    done = CliRunner().invoke(main, ["export", str(tmp_path / "train.sh"), "--to", "slurm"])
    assert done.exit_code == 2
    assert "`plan --from FILE --format json` makes one of a job" in done.stderr


@pytest.mark.parametrize("asked", [{"objective": "goodput"}, {"objective": "memory"}, {"cluster": "a100-h100-mixed"}])
def test_an_answer_as_it_was_written_is_read(asked, whole):
    found = plan(PlanRequest(model="llama3-8b", gpus=48, **asked, pins={"micro_batch_size": 1, "cp": 1}))
    assert read(found.to_json(), "it") == found
    assert read(whole.to_json(), "it") == whole


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_a_search_may_propose_is_left_alone(framework):
    for found in random_plans(framework, 12, seed=6):
        assert checked(found, "it") is found


def test_names_in_an_answer_are_text_to_a_shell(tmp_path):
    document = json.loads(PLAN.to_json())
    document["request"]["model"]["name"] = "\n$(touch owned)`id`\"'\u00e9\u2603"
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(document))
    for target in ("slurm", "torchrun", "kueue", "skypilot", "maxtext"):
        done = CliRunner().invoke(main, ["export", str(path), "--to", target])
        assert "touch owned)" not in done.stdout, target


def test_an_infeasible_answer_is_read_and_then_said_to_be_one(tmp_path):
    path = tmp_path / "answer.json"
    path.write_text(infeasible_plan().to_json())
    done = CliRunner().invoke(main, ["trace", str(path)])
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1


def test_what_stands_twice_in_an_answer_or_a_request_is_refused(tmp_path):
    path = tmp_path / "answer.json"
    path.write_text(PLAN.to_json().replace('"status"', '"status": "infeasible", "status"', 1))
    done = CliRunner().invoke(main, ["export", str(path), "--to", "slurm"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "'status' is said twice" in done.stderr
    path.write_text('{"model": "llama3-8b", "gpus": 8, "gpus": 16}')
    done = CliRunner().invoke(main, ["--config", str(path), "--dry-run"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "'gpus' is said twice" in done.stderr


@pytest.mark.parametrize(
    ("field", "value", "said"), [("version", "0.0.9", "version 0.0.9"), ("catalogue_hash", "0", "another catalogue")]
)
def test_an_answer_of_another_version_is_read_and_remarked_on(field, value, said, tmp_path):
    path = tmp_path / "answer.json"
    path.write_text(spoiled(("provenance", field), value))
    done = CliRunner().invoke(main, ["export", str(path), "--to", "slurm"])
    assert done.exit_code == 0
    assert f"{path}: made by {said}" in done.stderr
    assert "made by" not in CliRunner().invoke(main, ["export", str(path), "--to", "slurm", "-q"]).stderr
    path.write_text(PLAN.to_json())
    assert "made by" not in CliRunner().invoke(main, ["export", str(path), "--to", "slurm"]).stderr


@pytest.mark.parametrize(("said", "scope"), [("", ()), ("among stages", ("among stages",))])
def test_a_scope_in_one_sentence_is_read_as_earlier_answers_have_it(said, scope):
    document = json.loads(plan(PlanRequest(model="llama3-8b", gpus=8, reasons=False)).to_json())
    document["proof"]["scope"] = said
    assert read(json.dumps(document), "it").proof.scope == scope
