"""Single fields of the stack and the model, set from the command line, from Python and in a study."""

import json

import pytest
from click.testing import CliRunner

from costmodels.model.catalogue import model
from costmodels.stack.stack import stack
from planner import PlanRequest, predict
from planner.cli import main
from planner.errors import BadRequest, MeshwrightError
from planner.request.features import FEATURES
from planner.request.resolve import resolve
from planner.service.guard import names_only
from planner.studies.question import key_of, request_of
from planner.studies.study import points_of
from planner.studies.study_file import study_of
from tests.each import each

ASK = {"model": "22b", "gpus": 64, "stack": "megatron-lm-2022"}
PINS = {"tp": 8, "pp": 4, "vpp": 2, "micro_batch_size": 1}


def scenario(**changes):
    return resolve(
        PlanRequest(**ASK, changes={name.replace("__", "."): value for name, value in changes.items()})
    ).scenario


def seconds(**changes):
    given = {name.replace("__", "."): value for name, value in changes.items()}
    return predict(PlanRequest(**ASK, pins=PINS, changes=given)).prediction.iteration_seconds


def test_a_field_of_the_stack_is_set_in_si_units_or_as_a_multiple():
    found = scenario(
        stack__host__launch_time="9 us", stack__overlap__pp="0.25", stack__host__kernels_per_layer="2x"
    ).stack
    assert (found.host.launch_time, found.overlap.pp, found.host.kernels_per_layer) == (pytest.approx(9e-6), 0.25, 92)


def test_lists_and_switches_are_read_as_a_command_line_writes_them():
    found = scenario(stack__attention_backend="flash-2,unfused", stack__dropout="off", model__sliding_window="512")
    assert (found.stack.switches.attention_backend, found.stack.switches.dropout) == (("flash-2", "unfused"), False)
    assert found.model.sliding_window == 512


@each("feature", FEATURES)
def test_a_feature_is_taken_whole_from_another_stack(feature):
    path = "stack." + feature.replace(",", "").replace(" ", "-")
    found = resolve(PlanRequest(**ASK, changes={path: "megascale"})).scenario.stack
    for name in FEATURES[feature]:
        assert found.value(name) == stack("megascale").value(name)
    assert found.name == "megatron-lm-2022"


def test_a_feature_that_hides_traffic_saves_time_and_no_change_changes_nothing():
    assert seconds(**{"stack__tensor-parallel-overlap": "megascale"}) < seconds()
    assert seconds(model__parallel_block=True) < seconds()
    assert seconds(stack__overlap__pp="1x") == seconds()


def test_the_answer_states_what_was_set_so_that_it_can_be_asked_again():
    first = predict(PlanRequest(**ASK, pins=PINS, changes={"model.num_layers": "2x", "stack.host.launch_time": "2x"}))
    again = predict(PlanRequest(**first.request))
    assert first.request["changes"] == {"model.num_layers": 96, "stack.host.launch_time": "2x"}
    assert again.prediction == first.prediction


@each(
    ("path", "value", "said"),
    [
        ("stack.overlap.ppp", 1, "did you mean overlap.pp"),
        ("stack.overlap.pp", 3, "at most 1"),
        ("stack.host.launch_time", "3", "such as '5 us'"),
        ("stack.attention_backend", "flash-9", "did you mean flash-"),
        ("stack.host.kernels_per_layer", "many", "kernels_per_layer"),
        ("stack.pipeline-overlap", "megascal", "did you mean megascale"),
        ("stack.pipeline-overlap", 0.1, "expected the name of a stack to take it from"),
        ("stack.name", "mine", "there is no field 'name'"),
        ("stak.launch", "3 us", "expected stack. or model."),
        ("cluster.price", "2x", "plan sweep"),
        ("model.hiden_size", 4096, "did you mean hidden_size"),
        ("model.num_heads", 7, "does not divide num_heads 7"),
        ("model.parallel_block", "maybe", "parallel_block"),
    ],
)
def test_what_cannot_be_set_is_refused_in_one_line_with_what_can(path, value, said):
    with pytest.raises((MeshwrightError, ValueError)) as caught:
        resolve(PlanRequest(**ASK, changes={path: value}))
    assert said in str(caught.value)


def test_a_thing_said_by_an_option_and_by_its_field_is_refused():
    for known, path in (({"loss": "plain"}, "stack.loss"), ({"main_grads": "bf16"}, "stack.gradients.gradient_bytes")):
        with pytest.raises(BadRequest, match="one of them"):
            resolve(PlanRequest(**ASK, **known, changes={path: "fused"}))


def run(*words):
    return CliRunner().invoke(main, ["predict", "--model", "22b", "--gpus", "64", "--tp", "8", *words])


def test_the_command_line_sets_several_and_shows_them():
    done = run("--set", "stack.overlap.pp=0.5", "--set", "model.parallel_block=true")
    assert done.exit_code == 0
    assert "set: stack.overlap.pp = 0.5; model.parallel_block = true" in done.output
    assert "these settings of the stack are not in them: stack.overlap.pp" in " ".join(
        done.output.replace("#", "").split()
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--set", "launch"), "expected path=value"), (("--set", "stack.host.launch_time=1 us") * 2, "given twice")],
)
def test_the_command_line_refuses_half_a_change_and_two_of_one_field(words, said):
    done = run(*words)
    assert done.exit_code == 2
    assert said in done.output


def test_a_file_may_nest_what_it_sets(tmp_path):
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"model": "22b", "gpus": 64, "changes": {"stack": {"overlap": {"pp": 0.5}}}}))
    done = CliRunner().invoke(main, ["predict", "--config", str(path), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert f"stack.overlap.pp   0.5  [{path}]" in done.output


def test_an_option_adds_to_the_changes_of_a_file_and_wins_over_one_of_the_same_field(tmp_path):
    (path := tmp_path / "job.json").write_text(
        json.dumps({"model": "22b", "gpus": 64, "changes": {"stack.overlap.pp": 0.5, "stack.dropout": True}})
    )
    done = CliRunner().invoke(main, ["--config", str(path), "--set", "stack.overlap.pp=0.1", "--dry-run"])
    assert done.exit_code == 0, done.output
    shown = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines() if line.startswith("stack.")}
    assert shown == {"stack.overlap.pp": "0.1", "stack.dropout": "true"}


def test_a_study_varies_fields_of_the_stack_and_the_model():
    study = study_of(
        {"models": ["22b"], "gpus": 64, "stack": {"overlap": {"pp": [0.1, 1.0]}}, "model.sliding_window": [512, 1024]}
    )
    points = list(points_of(study))
    assert len(points) == 4
    assert len({key_of(point.fields, "search") for point in points}) == 4
    assert {request_of(point.fields).changes["stack.overlap.pp"] for point in points} == {0.1, 1.0}


def test_a_study_refuses_a_wrong_field_or_value_before_any_work():
    for field, value, said in (("stack.overlap.pq", 1, "did you mean"), ("stack.overlap.pp", 7, "at most")):
        with pytest.raises(BadRequest, match=said):
            study_of({"model": "22b", "gpus": 64, field: [value, 0.5]})


def test_a_changed_model_keeps_its_name_and_the_catalogue_keeps_its_own():
    assert scenario(model__num_layers=96).model.name == model("22b").name
    assert model("22b").num_layers == 48


@pytest.mark.parametrize(
    "changes", [{"stack.pipeline-overlap": "../secret.toml"}, {"stack": {"pipeline-overlap": "/x"}}]
)
def test_the_service_opens_no_file_for_a_feature(changes):
    with pytest.raises(BadRequest, match="looks like a file"):
        names_only({"model": "22b", "gpus": 64, "changes": changes})


def test_a_table_that_holds_nothing_has_a_known_name_too():
    assert PlanRequest(**ASK, changes={"stack": {"overlap": {}}, "model": {}}).changes == {}
    for path, changes in {
        "nonsense.deeper": {"stack": {}, "nonsense": {"deeper": {}}},
        "stack.overlapp": {"stack": {"overlapp": {}}},
        "nonsense": {"nonsense": {}},
        "model.hidden_size: expected a value": {"model": {"hidden_size": {}}},
    }.items():
        with pytest.raises(BadRequest, match=path):
            PlanRequest(**ASK, changes=changes)
