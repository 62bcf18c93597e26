"""A log by itself: measured and predicted, the best plan for the same job, and the one change that gains most."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from click.testing import CliRunner
from rich.console import Console

from planner import PlanRequest, predict
from planner.analyses.examine_run import examine_run
from planner.cli.app import main
from planner.render.terminal.examined import print_examined
from planner.runs.schema import run_of
from tests.planner.jobs.logs.written import dump, megatron

JOB = {
    "model": "llama2-7b",
    "cluster": "dgx-a100-80gb",
    "gpus": 16,
    "stack": "megatron-core",
    "global_batch_size": 64,
    "seq_length": 4096,
    "pins": {"tp": 8, "pp": 1, "cp": 1, "micro_batch_size": 1, "recompute": "full", "zero_stage": 1},
}


def examined(measured, **changes):
    job = JOB | changes
    return examine_run(
        run_of({"schema": "run/1", "id": "train.log", "request": job, "measured": measured}), "megatron-lm"
    )


@pytest.fixture(scope="module")
def found():
    return examined({"iteration_seconds": 10.0, "peak_memory": {"bytes": 30 * 2**30, "kind": "reserved"}})


def test_the_prediction_is_that_of_predict(found):
    priced = predict(PlanRequest(**JOB), as_ran=True)
    assert priced.prediction is not None
    assert found.predicted_seconds == pytest.approx(priced.prediction.iteration_seconds)
    assert sum(found.breakdown_seconds.values()) == pytest.approx(found.predicted_seconds)


def test_no_change_is_better_than_the_best_plan(found):
    assert found.best_seconds is not None
    assert found.changes
    assert all(found.best_seconds <= one.iteration_seconds * 1.001 for one in found.changes if one.kind == "axis")
    assert found.best_seconds < found.predicted_seconds


def test_a_change_is_worth_what_it_would_take(found):
    axis = next(one for one in found.changes if one.name == "recomputation")
    pins = JOB["pins"] | {"recompute": axis.text.split()[1]}
    other = predict(PlanRequest(**JOB | {"pins": pins}))
    assert other.prediction is not None
    assert axis.iteration_seconds == pytest.approx(other.prediction.iteration_seconds)
    assert axis.saved == pytest.approx(1.0 - axis.iteration_seconds / found.predicted_seconds)


def test_a_switch_that_was_left_off_is_named_as_its_framework_has_it():
    off = examined({"iteration_seconds": 10.0}, changes={"stack.overlap_grad_reduce": False})
    switch = next(one for one in off.changes if one.name == "overlap_grad_reduce")
    assert switch.text == "overlap_grad_reduce on (Megatron --overlap-grad-reduce)"
    on = predict(PlanRequest(**JOB | {"changes": {"stack.overlap_grad_reduce": True}}), as_ran=True)
    assert on.prediction is not None
    assert switch.iteration_seconds == pytest.approx(on.prediction.iteration_seconds)


def test_an_option_that_switches_off_is_left_out_to_switch_on():
    slow = {"stack.fused_softmax": False, "stack.attention_backend": "unfused"}
    found = examined({"iteration_seconds": 10.0}, changes=slow)
    switch = next(one for one in found.changes if one.name == "fused_softmax")
    assert switch.text == "fused_softmax on (without Megatron --no-masked-softmax-fusion)"


def test_a_switch_of_several_fields_is_turned_and_one_that_rests_on_it_waits():
    off = examined({"iteration_seconds": 10.0}, changes={"stack.tp_comm_overlap": False})
    names = {one.name for one in off.changes}
    assert "tp_comm_overlap" in names
    assert "tp_overlap_rings" not in names


def test_a_run_out_of_memory_has_no_time_and_an_answer():
    failed = examined({"out_of_memory": True})
    assert (failed.measured_seconds, failed.out_of_memory) == (None, True)
    assert failed.best_seconds is not None


def test_the_screen_answers_first_and_keeps_its_width(found):
    console = Console(width=80, record=True, file=StringIO())
    print_examined(found, console)
    text = console.export_text()
    first = text.splitlines()[0]
    assert first.startswith("llama2-7b on 16 GPUs of dgx-a100-80gb: 10.0 s per iteration measured")
    assert "Change first:" in text
    assert "GiB reserved measured" in text
    assert max(map(len, text.splitlines())) <= 80


def log(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(dump() + megatron(1, 9000.0) + "".join(megatron(step, 1250.0) for step in range(2, 12)))
    return str(path)


def test_compare_takes_a_log_alone(tmp_path):
    done = CliRunner().invoke(main, ["compare", log(tmp_path), "--cluster", "dgx-a100-80gb", "--format", "json", "-q"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["schema"] == "examined-run/1"
    assert told["measured_seconds"] == 1.25
    assert told["gpus"] == 16
    assert told["best_seconds"] <= told["predicted_seconds"]


def test_compare_says_what_the_log_does_not(tmp_path):
    done = CliRunner().invoke(main, ["compare", log(tmp_path)])
    assert done.exit_code == 2
    assert "--cluster" in done.output


def test_logs_are_runs_to_calibrate_on(tmp_path):
    done = CliRunner().invoke(
        main, ["calibrate", log(tmp_path), "--cluster", "dgx-a100-80gb", "--format", "json", "-q"]
    )
    assert done.exit_code == 0, done.output
    assert [run["measured_seconds"] for run in json.loads(done.stdout)["runs"]] == [1.25]
