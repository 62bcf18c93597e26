"""The Python interface takes the command line's words, and says what is wrong in one line of its own error."""

import importlib.util
import inspect
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import planner
from planner import (
    BadRequest,
    MeshwrightError,
    PlanRequest,
    allocate,
    calibrate,
    compare,
    plan,
    plan_sparse,
    predict,
    queue_of,
    read_job,
    sweep,
    why_not,
)
from planner import replan as anew
from tests.each import each
from tests.scenarios import toy_cluster, toy_model, toy_stack

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def old():
    return predict(PlanRequest(model="llama2-7b", gpus=16, global_batch_size=64, pins={"tp": 2}))


def refusal(call, *arguments, **named):
    with pytest.raises(MeshwrightError) as refused:
        call(*arguments, **named)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@each("name", planner.__all__)
def test_no_public_name_is_also_a_module_s(name):
    """Else importing what lives in the module puts the module in the name's place."""
    assert importlib.util.find_spec(f"planner.{name}") is None


@pytest.mark.parametrize(
    "line",
    [
        "from planner import Replan, replan; assert callable(replan)",
        "import planner.cli.app, planner.service.answers, planner; assert callable(planner.replan)",
        "from planner import *; assert all(callable(one) for one in (replan, plan, predict, allocate, calibrate))",
    ],
)
def test_a_function_is_imported_as_one_whatever_was_imported_before(line):
    subprocess.run([sys.executable, "-c", line], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize("tolerance", [-1, -0.01, 1.5, math.nan, math.inf, True, None, "wide", "-5%", "150%"])
def test_a_tolerance_that_is_no_share_is_refused(old, tolerance):
    assert refusal(anew, old, 8, tolerance=tolerance).startswith("tolerance: expected a share such as 0.05 or 5%, got")


@pytest.mark.parametrize("tolerance", [0.05, "5%", "0.05", np.float64(0.05)])
def test_a_tolerance_is_written_as_on_the_command_line(old, tolerance):
    assert anew(old, 8, tolerance=tolerance).tolerance == pytest.approx(0.05)


@pytest.mark.parametrize("gpus", [True, "56", 56.0, None, math.nan])
def test_devices_that_are_no_whole_number_are_refused(old, gpus):
    assert refusal(anew, old, gpus).startswith("gpus: expected a whole number such as 64, got")


def test_devices_may_be_numpy_s(old):
    assert anew(old, np.int64(8)).gpus == 8


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"foo": 1}, "there is no field 'foo'; there are model, "),
        ({"pins": 3}, "pins: "),
        ({"global_batch_size": "many"}, "global_batch_size: "),
        ({"time_limit": "soon"}, "time_limit: expected a time such as"),
        ({"stack": 3}, "stack: expected a name, a file or a table of fields, got 3"),
    ],
)
def test_a_change_that_no_question_has_is_refused(old, changes, said):
    assert said in refusal(anew, old, 8, **changes)


def test_a_change_of_the_question_counts(old):
    found = anew(old, 8, pins={"tp": 4}, time_limit="30s")
    assert found.fastest.plan.strategy.tp == 4


@pytest.mark.parametrize("ask", [plan, predict, why_not])
@pytest.mark.parametrize("asked", [{"model": "llama3-8b", "gpus": 64}, "llama3-8b", None])
def test_a_question_that_is_no_request_is_refused(ask, asked):
    said = refusal(ask, asked)
    assert said.startswith("the question: expected a PlanRequest, such as PlanRequest(model='llama3-8b', gpus=64), got")


def test_an_answer_a_queue_or_files_of_another_type_are_refused():
    assert refusal(anew, {"schema": "plan/1"}, 8).startswith("the answer: expected a Plan")
    assert refusal(allocate, {"cluster": "dgx-h100"}).startswith("the queue: expected a Queue")
    assert refusal(queue_of, 3) == "the queue: expected a table with a cluster and jobs, got 3"
    assert refusal(calibrate, 3) == "files: expected a file or a list of files, got 3"
    assert refusal(calibrate, ["runs.jsonl", 3]) == "files: expected a name or a file, got 3"


@pytest.mark.parametrize("workers", [True, 0, -1, "2", 1.5])
def test_processes_that_are_no_number_are_refused(workers):
    queue = queue_of({"cluster": "dgx-h100", "gpus": 8, "jobs": [{"name": "a", "model": "llama3-8b", "tokens": "1B"}]})
    assert refusal(allocate, queue, workers=workers).startswith("workers: ")


@each("layers", [3, "4,x", ["a"], [4.0, 4.0], [True, 7], []])
def test_layers_that_are_no_counts_are_refused(layers):
    asked = PlanRequest(model=toy_model(), cluster=toy_cluster(), stack=toy_stack(), gpus=8, pins={"pp": 2})
    assert refusal(predict, asked, layers).startswith("layers: expected counts such as [12, 12, 11, 13], got")


NUMBERS = ("gpus", "global_batch_size", "seq_length", "tokens", "top", "time_limit", "loss_block")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"modle": "llama3-8b"}, "there is no field 'modle'; did you mean model?"),
        ({"global_batch": 64}, "there is no field 'global_batch'; did you mean global_batch_size?"),
        ({"tp": 2}, "there is no field 'tp'; it belongs under pins: tp = ..."),
        ({"objective": "tiem"}, "objective: expected 'time', 'mfu', 'cost', 'tokens-per-gpu-hour', 'memory' or "),
        ({"gpus": -8}, "gpus: expected more than 0, got -8"),
    ],
)
def test_what_is_wrong_with_a_question_is_one_line_of_plain_words(fields, said):
    with pytest.raises(BadRequest) as refused:
        PlanRequest(**({"model": "llama3-8b", "gpus": 8} | fields))
    assert str(refused.value).startswith(said)
    with pytest.raises(BadRequest, match="takes its fields by name"):
        PlanRequest("llama3-8b", 8)


@each("name", [*NUMBERS, "expert_capacity", "expert_imbalance"])
def test_true_is_no_number_of_a_request(name):
    with pytest.raises(BadRequest) as refused:
        PlanRequest(**{"model": "llama3-8b", "gpus": 8, name: True})
    assert "expected a number such as 64, got true" in str(refused.value)


@each("seconds", [math.nan, math.inf, 0.0, -1.0, "0 s", "soon", "1e9 s"])
def test_a_time_limit_that_is_no_time_is_refused(seconds):
    with pytest.raises(BadRequest):
        PlanRequest(model="llama3-8b", gpus=8, time_limit=seconds)


def test_true_is_no_number_of_a_stack():
    asked = PlanRequest(model="llama3-8b", gpus=8, changes={"stack.overlap.pp": True})
    assert refusal(predict, asked) == "stack.overlap.pp: expected number, got true"


@pytest.mark.parametrize(
    ("name", "written", "read"),
    [
        ("time_limit", "30s", 30.0),
        ("time_limit", "2 min", 120.0),
        ("time_limit", "45", 45.0),
        ("memory_margin", "15%", 0.15),
        ("tokens", "300B", 300_000_000_000),
    ],
)
def test_words_of_the_command_line_are_python_s_too(name, written, read):
    assert getattr(PlanRequest(**{"model": "llama3-8b", "gpus": 8, name: written}), name) == pytest.approx(read)


def test_interruptions_are_written_as_on_the_command_line_or_in_a_file(tmp_path):
    pairs = PlanRequest(model="llama3-8b", gpus=8, stability="detect=5 min,spare_nodes=8").stability
    assert (pairs.detect, pairs.spare_nodes) == (300.0, 8)
    path = tmp_path / "stability.toml"
    path.write_text('[stability]\ndetect = "5 min"\nspare_nodes = 8\n')
    assert PlanRequest(model="llama3-8b", gpus=8, stability=path).stability == pairs
    with pytest.raises(BadRequest, match="expected name=value"):
        PlanRequest(model="llama3-8b", gpus=8, stability="stability.toml")


def test_models_clusters_and_stacks_are_read_from_paths(tmp_path, monkeypatch):
    by_path = PlanRequest(model=EXAMPLES / "my-model.toml", cluster=EXAMPLES / "my-cluster.toml", gpus=8)
    by_name = PlanRequest(model=str(EXAMPLES / "my-model.toml"), cluster=str(EXAMPLES / "my-cluster.toml"), gpus=8)
    assert by_path == by_name
    (tmp_path / "here.toml").write_text((EXAMPLES / "my-model.toml").read_text())
    monkeypatch.chdir(tmp_path)
    assert predict(PlanRequest(model=Path("here.toml"), gpus=8)).strategy is not None
    (tmp_path / "llama3-8b").mkdir()
    assert "config.json" in refusal(predict, PlanRequest(model=Path("llama3-8b"), gpus=8))


SPARSE = (EXAMPLES / "ctr-dnn.toml", "fleet-cpu")


@each(
    ("named", "said"),
    [
        ({"min_throughput": True}, "min_throughput: expected a number or text with a unit, got true"),
        ({"min_throughput": math.nan}, "min_throughput: "),
        ({"min_throughput": "fast"}, "min_throughput: expected a count"),
        ({"max_cost_per_hour": -1.0}, "max_cost_per_hour: "),
        ({"min_throughput": 1e6, "mode": "some"}, "mode: "),
        ({"min_throughput": 1e6, "max_staleness": True}, "max_staleness: "),
        ({"min_throughput": 1e6, "nodes": 3}, "nodes: expected groups and numbers"),
        ({"min_throughput": 1e6, "nodes": {"cpu": True}}, "nodes: expected a whole number of cpu"),
        ({"min_throughput": 1e6, "time_limit": "soon"}, "time_limit: expected a time"),
    ],
)
def test_a_sparse_question_of_wrong_values_is_refused(named, said):
    assert refusal(plan_sparse, *SPARSE, **named).startswith(said)


def test_a_sparse_question_is_written_as_on_the_command_line():
    written = plan_sparse(*SPARSE, min_throughput="2M", max_cost_per_hour="100 $/h", time_limit="1 min").request
    assert (written.min_throughput, written.max_cost_per_hour, written.time_limit) == (2e6, pytest.approx(100.0), 60.0)
    assert refusal(plan_sparse, 3, "fleet-cpu", min_throughput=2e6) == "model: expected a name or a file, got 3"


@each(
    ("field", "value", "said"),
    [
        ("gpus", "64", "expected a whole number, got '64'"),
        ("top", "3", "expected a whole number, got '3'"),
        ("expert_imbalance", "2", "expected a number, got '2'"),
        ("memory_margin", True, "expected a share such as 10% or 0.1, got 'True'"),
        ("reasons", "yes", "expected true or false, got 'yes'"),
        ("reasons", 1, "expected true or false, got 1"),
        ("fp8_param_gather", "true", "expected true or false, got 'true'"),
    ],
)
def test_fields_are_read_as_strictly_as_over_http(field, value, said):
    with pytest.raises(BadRequest, match=said):
        PlanRequest(**{"model": "llama3-8b", "gpus": 64, field: value})


def test_what_people_write_is_read():
    asked = PlanRequest(model="llama3-8b", gpus=64, tokens="2T", time_limit="2min", memory_margin="10%")
    assert (asked.tokens, asked.time_limit, asked.memory_margin) == (2_000_000_000_000, 120.0, 0.1)


@pytest.mark.parametrize("field", ["model", "cluster", "stack", "precision"])
def test_a_name_that_no_file_can_have_is_refused_at_every_door(field):
    with pytest.raises(BadRequest, match=f"(?s){field}.*contains a NUL character"):
        PlanRequest(**{"model": "llama3-8b", "gpus": 8, field: "./my\0.toml"})


@pytest.mark.parametrize("given", ["15,17", [15, 17], (15, 17), np.array([15, 17])])
def test_layers_of_stages_are_written_as_a_list_or_as_on_the_command_line(given):
    assert PlanRequest(model="llama3-8b", gpus=8, layers_per_stage=given).layers_per_stage == (15, 17)


@each("given", ["15,x", "", [15, True], [15, -2], 32, b"15,17"])
def test_layers_of_stages_that_are_no_counts_are_refused(given):
    with pytest.raises(BadRequest, match="layers_per_stage"):
        PlanRequest(model="llama3-8b", gpus=8, layers_per_stage=given)


LOADED = "import sys, planner; print(len([one for one in sys.modules if one.partition('.')[0] == 'planner']))"


def test_importing_the_package_loads_nothing_of_it():
    for line in (LOADED, f"import planner; dir(planner); {LOADED}"):
        done = subprocess.run([sys.executable, "-c", line], capture_output=True, check=True, text=True, cwd=ROOT)
        assert done.stdout == "1\n"


def test_every_question_is_listed_where_an_editor_looks():
    questions = {"plan", "predict", "why_not", "what_if", "robust", "size", "compare", "sweep", "replan", "allocate"}
    further = {"plan_sparse", "calibrate", "validate", "examine_run", "read_job"}
    assert questions | further <= set(dir(planner))
    assert {name for name in dir(planner) if not name.startswith("__")} == set(planner.__all__)


QUESTIONS = [name for name in planner.__all__ if name.islower()]


@each("name", QUESTIONS)
def test_a_question_says_what_it_takes(name):
    """An editor shows the names and types that people may write, not ``**kwargs: Any``."""
    function = getattr(planner, name)
    said = inspect.signature(function)
    assert function.__doc__
    for parameter in said.parameters.values():
        assert parameter.annotation is not parameter.empty
        if parameter.kind is parameter.VAR_KEYWORD:
            assert "Unpack[RequestChanges]" in str(parameter.annotation)
    assert said.return_annotation is not said.empty


def test_a_job_that_was_read_can_be_priced_and_planned():
    job = read_job(EXAMPLES / "my-job" / "train.sh")
    given, best = predict(job.request), plan(job.free.model_copy(update={"reasons": False}))
    assert given.strategy.tp == job.request.pins["tp"]
    assert best.prediction.iteration_seconds <= given.prediction.iteration_seconds
    assert compare(given, best).b.iteration_seconds == pytest.approx(best.prediction.iteration_seconds)


def test_what_a_job_leaves_out_is_missing_until_somebody_says_it(tmp_path):
    script = tmp_path / "train.sh"
    script.write_text("torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --global-batch-size 64\n")
    job = read_job(script)
    assert job.request is None
    assert job.free is None
    assert any("gpus" in line for line in job.missing)
    said = read_job(script, gpus=16, model="llama3-8b", seq_length=8192, pins={"micro_batch_size": 1})
    assert said.request.gpus == 16
    assert said.request.pins["tp"] == 2


def test_a_sweep_is_asked_of_a_table_or_a_file_and_goes_on_with_its_store(tmp_path):
    study, said = {"model": "llama3-8b", "gpus": [8, 16], "mode": "predict", "pins": {"tp": 8}}, []
    first = sweep(study, tmp_path / "answers.sqlite", progress=said.append)
    assert [one["status"] for one in first.results] == ["feasible", "feasible"]
    assert (said[-1].done, said[-1].total) == (2, 2)
    (tmp_path / "study.toml").write_text('model = "llama3-8b"\ngpus = [8, 16]\nmode = "predict"\npins.tp = 8\n')
    again = sweep(tmp_path / "study.toml", tmp_path / "answers.sqlite", progress=said.append)
    assert again.results == first.results
    assert refusal(sweep, {"gpus": 8}).startswith("model is missing")
