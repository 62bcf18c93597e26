"""The document of a run: what it takes, what it refuses and in which words; questions and runs have one price."""

import json

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from planner import PlanRequest, plan, predict
from planner.cli import main
from planner.errors import BadRequest
from planner.runs.schema import Run, run_of
from tests.planner.measured_run import RUN, judged, only, run

SMALL = {"model": "llama3-8b", "gpus": 8, "cluster": "dgx-h100", "stack": "megatron-core", "global_batch_size": 32}


def asked(tmp_path, document, *words, name="run.json"):
    path = tmp_path / name
    path.write_text(json.dumps(document))
    return CliRunner().invoke(main, [*words, str(path)])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"measurd": {}}, "measurd: there is no such field; did you mean measured?"),
        ({"measured": {"iteration_secs": 2}}, "measured: iteration_secs: there is no such field; did you mean"),
        ({"measured": {"peak_memory": {"byte": 1}}}, "peak_memory: byte: there is no such field; did you mean bytes?"),
        ({"request": {"gpu": 8}}, "request: gpu: there is no such field; did you mean gpus?"),
        ({"pins": {"tensor": 8}}, "cannot pin 'tensor'"),
        ({"model": {"layers": 8}}, "layers"),
        ({"constants": ["time"]}, "constants"),
        ({"measured": {"iteration_seconds": -1}}, "measured.iteration_seconds"),
        ({"measured": {"peak_memory": {"bytes": 1e9, "kind": "shown"}}}, "measured.peak_memory.kind"),
        ({"schema": "run/2"}, "schema"),
        ({"said": ["request.modle"]}, "said: modle: there is no such field; did you mean model?"),
        ({"assumed": {"requst.gpus": "by its table"}}, "assumed: requst: there is no such field; did you mean"),
        ({"request": {"changes": {}, "switches": {}}}, "changes and switches are the same option"),
    ],
)
def test_what_no_run_has_is_refused_in_one_line_with_the_nearest(changes, said, tmp_path):
    with pytest.raises(ValueError, match=r"\w"):
        run_of(run(**changes))
    done = asked(tmp_path, run(**changes), "validate", name="run.jsonl")
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.startswith(f"plan: {tmp_path}/run.jsonl: line 1: ")
    assert done.stderr.count("\n") == 1


def test_a_run_in_free_text_is_sent_to_the_converter(tmp_path):
    row = {"id": "a", "cluster": {"accelerator": "h100-sxm"}, "strategy": {"gpus": 8}, "measured": {"mfu": 0.4}}
    for command in ("validate", "calibrate"):
        done = asked(tmp_path, row, command, name="old.jsonl")
        assert done.exit_code == 2
        assert "scripts/convert_runs.py" in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_run_may_use_the_words_of_the_command_line_and_the_names_of_switches():
    request = {**SMALL, "pins": {"tp": 2}}
    plain = run_of({"id": "a", "request": request | {"changes": {"stack.dropout": True}, "seq_length": 2048}})
    short = run_of({"id": "a", "request": request | {"switches": {"dropout": True}, "seq_len": 2048}})
    assert short.request == plain.request


def test_what_has_a_request_and_its_answer_is_a_run_without_saying_so(tmp_path):
    document = {key: value for key, value in RUN.items() if key != "schema"}
    assert "measured 2 s" in asked(tmp_path, document, "predict", "--config").stderr


def test_a_run_without_a_request_says_why_it_has_none():
    with pytest.raises(ValidationError):
        Run(id="a")
    assert Run(id="a", unpriced="gpus is not stated").request is None


def test_the_schema_of_a_run_says_what_a_run_holds():
    document = json.loads(CliRunner().invoke(main, ["schema", "run"]).stdout)
    assert set(document["properties"]) == {field.alias or name for name, field in Run.model_fields.items()}
    assert {"Measured", "PeakMemory", "Source"} <= set(document["$defs"])


def test_predict_prices_a_run_as_validate_does_and_says_what_was_measured(tmp_path):
    done = asked(tmp_path, RUN, "predict", "--format", "json", "--config")
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    verdict = only(judged(RUN), "iteration_time")
    assert answer["prediction"]["iteration_seconds"] == verdict.predicted
    assert f"measured 2 s; predicted {verdict.error:+.1%}" in done.stderr


@pytest.mark.parametrize("option", [("--gpus", "16"), ("--tp", "4"), ("--set", "stack.dropout=true")])
def test_an_option_beside_a_run_makes_it_another_question(tmp_path, option):
    done = asked(tmp_path, RUN, "predict", *option, "--config")
    assert "is not as in the run, so its measured time is left out" in done.stderr
    assert "predicted" not in done.stderr


def test_predict_refuses_a_run_that_makes_no_request(tmp_path):
    document = {"schema": "run/1", "id": "a", "unpriced": "gpus is not stated"}
    done = asked(tmp_path, document, "predict", "--config")
    assert done.exit_code == 2
    assert "the run makes no request: gpus is not stated" in done.stderr


def test_a_run_that_breaks_a_rule_is_priced_by_predict_with_the_rule_beside_it(tmp_path):
    odd = run(
        pins={"tp": 16, "pp": 1, "vpp": 1, "schedule": "none", "sharding_degree": 1, "zero_stage": 0},
        model={"num_heads": 8, "num_query_groups": 8},
    )
    request = PlanRequest(**odd["request"])
    refused, ran = predict(request, near=False), predict(request, as_ran=True)
    assert (refused.status, refused.prediction) == ("infeasible", None)
    assert ran.status == "feasible"
    assert [one.rule for one in ran.rejected] == [one.rule for one in refused.rejected] == ["heads"]
    assert any("breaks the rule heads" in warning for warning in ran.warnings)
    done = asked(tmp_path, odd, "predict", "--format", "json", "--config")
    assert json.loads(done.stdout)["prediction"]["iteration_seconds"] == ran.prediction.iteration_seconds


def test_layers_of_a_request_are_those_that_are_given_beside_it():
    pins = {"pp": 2, "tp": 1, "recompute": "partial"}
    request = PlanRequest(**SMALL, pins=pins)
    whole = request.model_copy(update={"layers_per_stage": (15, 17), "recomputed_per_stage": (2, 1)})
    given = predict(request, (15, 17), (2, 1))
    assert predict(whole).prediction == given.prediction
    assert [stage.recompute_layers for stage in predict(whole).strategy.stages] == [2, 1]
    assert predict(whole, (16, 16)).strategy.stages[0].layers == 16


def test_a_search_takes_no_layers():
    with pytest.raises(BadRequest, match="layers_per_stage: a search chooses the split of the layers itself"):
        plan(PlanRequest(**SMALL, layers_per_stage=(16, 16)))
