"""A known machine is found again from a wrong start; what data cannot tell stays, with a warning; nothing gets lost."""

import copy
import json
import math
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.pricing import iteration_seconds, price_strategy
from costmodels.stack.stack import Stack
from costmodels.stack.stack import stack as find_stack
from hardware.catalogue import cluster as find_cluster
from planner import Calibration, PlanRequest, calibrate, predict
from planner.cli import main
from planner.errors import BadRequest
from planner.runs.calibrate.identify import settle
from planner.runs.calibrate.profile import profile
from planner.runs.files import json_lines
from planner.runs.judge import HOME
from planner.runs.least_squares import Knob
from tests.each import each
from tests.planner.measured_run import case, run
from tests.scenarios import HOMES

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "calibrate"
RUNS, LOGS = EXAMPLES / "runs.jsonl", (EXAMPLES / "all_reduce_1_node.log", EXAMPLES / "all_reduce_2_nodes.log")

HALF = {
    "name": "half",
    "accelerator": "a100-sxm-80gb",
    "gpus_per_node": 8,
    "network": {"like": "ib-hdr200", "bandwidth": "100 Gb/s"},
}

SHAPES = (
    {"model": {"num_layers": 24, "hidden_size": 4096, "num_heads": 32, "num_query_groups": 32}, "micro": 4, "tp": 1},
    {"model": {"num_layers": 12, "hidden_size": 2048}, "micro": 1, "tp": 8},
    {"model": {"num_layers": 24, "hidden_size": 8192, "num_heads": 64, "num_query_groups": 64}, "micro": 1, "tp": 8},
    {"model": {"num_layers": 4, "hidden_size": 1024}, "micro": 2, "tp": 1},
    {"model": {"num_layers": 48, "hidden_size": 1024}, "micro": 8, "tp": 2},
    {"model": {"num_layers": 6, "hidden_size": 4096}, "micro": 1, "tp": 4},
    {"model": {"num_layers": 2, "hidden_size": 1024, "vocab_size": 1024}, "micro": 1, "tp": 1},
    {"model": {"num_layers": 96, "hidden_size": 1024}, "micro": 1, "tp": 8},
)


def rows(shapes=SHAPES, *, copies=1, **constants):
    """Runs that the model itself makes on a stack of those constants, the same few several times."""
    made = []
    for number, shape in enumerate(shapes * copies):
        at = {"tp": shape["tp"], "pp": 1, "vpp": 1, "micro_batch_size": shape["micro"], "sharding_degree": 1}
        at |= {"schedule": "none", "recompute": "none", "zero_stage": 0}
        batch = {"global_batch_size": 16 * shape["micro"]}
        row = run(id=f"made-{number}", model=shape["model"], pins=at, request=batch)
        mapped = case(row)
        stack = mapped.scenario.stack.changed({f"{HOMES[name]}.{name}": value for name, value in constants.items()})
        seconds = price_strategy(mapped.strategy, replace(mapped.scenario, stack=stack), mapped.assignment).iteration
        row["measured"] = {"iteration_seconds": seconds}
        made.append(row)
    return made


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def by_name(answer):
    return {one.name: one for one in answer.constants}


def test_the_factors_that_made_the_runs_are_found_from_the_shipped_stack(tmp_path):
    truth = {"compute_time": 1.4, "tensor_traffic_time": 1.8, "host_time": 1.5}
    more = [{"model": {"num_layers": 24, "hidden_size": width}, "micro": 4, "tp": 8} for width in (1024, 2048, 4096)]
    answer = calibrate([written(tmp_path / "runs.jsonl", rows((*SHAPES, *more), copies=2, **truth))])
    found = by_name(answer)
    for name, value in truth.items():
        constant = found[f"stack.calibrated.{name}"]
        assert 0.65 < math.log(constant.after) / math.log(value) < 1.05, name  # drawn to none a little
        assert constant.standard_error is not None
    before, after, left = (
        np.median([abs(getattr(one, name)) for one in answer.runs]) for name in ("before", "after", "left_out")
    )
    assert before > 0.2
    assert after < 0.3 * before
    assert left < 0.4 * before


def test_a_slow_host_is_told_by_the_runs_that_wait_for_it(tmp_path):
    found = by_name(calibrate([written(tmp_path / "runs.jsonl", rows(copies=2, host_time=1.6))]))
    assert 1.4 < found["stack.calibrated.host_time"].after < 1.65
    assert found["stack.calibrated.compute_time"].after == pytest.approx(1.0, rel=0.03)


def test_what_runs_cannot_tell_moves_with_what_all_causes_have_in_common(tmp_path):
    answer = calibrate([written(tmp_path / "runs.jsonl", rows(SHAPES[:1], copies=2, compute_time=1.4))])
    found = by_name(answer)
    alone = [found[f"stack.calibrated.{name}_time"] for name in ("expert_traffic", "pipeline_traffic", "offload")]
    assert {(one.standard_error, one.after) for one in alone} == {(None, found["stack.calibrated.compute_time"].after)}
    assert all("not determined" in one.source for one in alone)
    assert all(abs(one.after) < abs(one.before) / 3.0 for one in answer.runs)
    assert all(one.left_out is None for one in answer.runs)


def test_a_miss_that_may_as_well_be_chance_is_not_followed(tmp_path):
    made = rows(SHAPES[:1])
    made[0]["measured"]["iteration_seconds"] *= 1.02
    answer = calibrate([written(tmp_path / "runs.jsonl", made)])
    assert {one.after for one in answer.constants} == {1.0}
    assert any("may be chance, so no correction is made" in line for line in answer.warnings)


def test_runs_without_a_miss_move_nothing(tmp_path):
    answer = calibrate([written(tmp_path / "runs.jsonl", rows())])
    assert all(one.after == pytest.approx(one.before, abs=2e-3) for one in answer.constants)


def test_one_wild_run_does_not_carry_the_others_along(tmp_path):
    made = rows(SHAPES[::2], compute_time=1.4, host_time=1.4)
    made[0]["measured"]["iteration_seconds"] *= 3.0
    wild, tame = (calibrate([written(tmp_path / f"{len(part)}.jsonl", part)]) for part in (made, made[1:]))
    before, after, without = (
        np.median([abs(getattr(one, name)) for one in answer.runs if one.id != made[0]["id"]])
        for answer, name in ((wild, "before"), (wild, "after"), (tame, "after"))
    )
    assert without < after < without + 0.5 * (before - without)


def test_leaving_a_run_out_is_close_to_fitting_without_it(tmp_path):
    made = rows(SHAPES[:4], compute_time=1.25)
    for number, row in enumerate(made):
        row["measured"]["iteration_seconds"] *= 1.0 + 0.03 * (-1) ** number
    told = calibrate([written(tmp_path / "all.jsonl", made)]).runs[0].left_out
    others = calibrate([written(tmp_path / "others.jsonl", made[1:])])
    (tmp_path / "p.toml").write_text(others.profile)
    mapped = case(made[0], cluster=find_cluster(tmp_path / "p.toml"), stack=find_stack(str(tmp_path / "p.toml")))
    refitted = price_strategy(mapped.strategy, mapped.scenario, mapped.assignment).iteration
    assert told == pytest.approx(refitted / made[0]["measured"]["iteration_seconds"] - 1.0, abs=0.03)


@pytest.mark.parametrize("steep", [0.5, 2.0])
def test_a_sum_that_is_told_moves_one_of_its_parts_and_names_it(steep):
    """Two constants of which only the sum shows: the weaker one stays."""
    knobs = [Knob("a", 0.0, 1.0, -5.0, 5.0), Knob("b", 0.0, 1.0, -5.0, 5.0)]
    fit = settle(lambda v: np.full(9, v[0] + steep * v[1] - 1.0), knobs, noise=0.05)
    told, left = sorted(fit.constants, key=lambda one: not one.fitted)
    assert (told.fitted, left.fitted, left.value, left.instead) == (True, False, 0.0, told.knob.field)
    assert told.knob.field == ("b" if steep > 1 else "a")
    assert told.value == pytest.approx(1.0 / max(steep, 1.0), rel=0.02)


def test_a_profile_reads_back_as_what_was_fitted(tmp_path):
    answer = calibrate([RUNS, EXAMPLES / "products.csv"], cluster="gh200-slingshot")
    path = tmp_path / "p.toml"
    path.write_text(answer.profile)
    cluster, stack = find_cluster(path), find_stack(str(path))
    assert stack.calibrated.compute_time == by_name(answer)["stack.calibrated.compute_time"].after
    assert "runs.jsonl: 3 runs; median error" in stack.calibrated.basis
    assert profile(cluster, stack, answer.constants, answer.warnings) == answer.profile
    stated = tomllib.loads(answer.profile)["calibration"]["constants"]
    assert [one["name"] for one in stated] == [one.name for one in answer.constants]
    assert all("runs.jsonl" in one["source"] or "products.csv" in one["source"] for one in stated)
    assert predict(PlanRequest(model="gpt3-350m", gpus=16, cluster=str(path), stack=str(path))).status == "feasible"


def test_the_more_runs_of_ones_own_the_narrower_the_interval(tmp_path):
    def width(*options):
        asked = ("predict", "--model", "gpt3-350m", "--gpus", "16", "--format", "json", *options)
        found = json.loads(plan(*asked).stdout)["prediction"]["interval"]
        return math.log(found["high"] / found["low"])

    rows, path = [json.loads(line) for line in RUNS.read_text().splitlines()], tmp_path / "p.toml"
    widths = [width("--cluster", "gh200-slingshot", "--stack", "megatron-deepspeed")]
    for count in (1, 3):
        path.write_text(calibrate([written(tmp_path / "runs.jsonl", rows[:count])]).profile)
        assert find_stack(str(path)).calibrated.own_runs == count
        widths.append(width("--profile", path))
    assert widths[0] > 1.1 * widths[1] > 1.1 * widths[2]


def test_every_stack_comes_back_from_a_profile(tmp_path):
    for name in ("deepseek", "fsdp", "nemo", "megatron-deepspeed"):
        path = tmp_path / f"{name}.toml"
        path.write_text(profile(find_cluster("dgx-h100"), find_stack(name), (), ()))
        assert find_stack(str(path)) == find_stack(name)


def test_a_calibration_goes_through_json():
    answer = calibrate(LOGS)
    text = answer.model_dump_json(by_alias=True)
    assert json.loads(text)["schema"] == "calibration/1"
    assert Calibration.model_validate_json(text) == answer


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ([{}, {"request": {"cluster": "dgx-h100"}}], {}, "nodes of 8 x a100-sxm-80gb and 8 x h100-sxm"),
        ([{}, {"request": {"cluster": HALF}}], {}, r"name 2 networks \(100 Gb/s, 200 Gb/s a device\)"),
        ([{}, {"request": {"stack": "torchtitan"}}], {}, "stacks megatron-core and torchtitan; say which"),
        ([{"request": {"stack": None}}], {}, "do not say which stack they used"),
        ([{"request": {"cluster": "abacus"}}], {}, "unknown cluster 'abacus'"),
        ([{}], {"cluster": "dgx-h100"}, "the run was on a100-sxm-80gb, the cluster given is of h100-sxm"),
        ([{}], {"cluster": "a100-h100-mixed"}, "one node group at a time"),
        ([{"measured": {"iteration_seconds": None}}], {}, "no iteration time is said"),
        ([{"suspect": True}], {}, "marked as suspect"),
    ],
)
def test_runs_that_cannot_be_fitted_together_say_why(tmp_path, changes, options, message):
    with pytest.raises(BadRequest, match=message):
        calibrate(
            [written(tmp_path / "runs.jsonl", [run(id=str(n), **one) for n, one in enumerate(changes)])], **options
        )


def test_a_run_that_cannot_be_used_is_told_and_the_others_are_fitted(tmp_path):
    answer = calibrate(
        [written(tmp_path / "runs.jsonl", [run(id="good"), run(id="bad", request={"layers_per_stage": [1, 2]})])]
    )
    assert [one.id for one in answer.runs] == ["good"]
    assert sum("run bad: not used" in note for note in answer.notes) == 1


def test_runs_of_one_configuration_that_contradict_each_other_are_named(tmp_path):
    times = {"a": 2.0, "b": 2.3, "c": 2.5}
    found = {}
    for ids in ("ab", "abc"):
        same = [run(id=one, measured={"iteration_seconds": times[one]}) for one in ids]
        answer = calibrate([written(tmp_path / "runs.jsonl", same)])
        found[ids] = [warning for warning in answer.warnings if warning.startswith("runs of one configuration")]
    assert found["ab"] == []
    assert found["abc"][0].startswith("runs of one configuration took 2 s (a) and 2.5 s (c)")


def plan(*arguments, **how):
    return CliRunner().invoke(main, [str(one) for one in arguments], env={"COLUMNS": "120"}, **how)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """What the command says of the runs, and the profile that it wrote."""
    path = tmp_path_factory.mktemp("fitted") / "profile.toml"
    return plan("calibrate", RUNS, "-o", path), path


def test_the_command_writes_a_profile_that_the_others_take(fitted):
    done, path = fitted
    assert done.exit_code == 0, done.stderr
    assert "stack.calibrated.compute_time" in done.stdout
    assert "Warnings" in done.stdout
    question = ("--model", "gpt3-350m", "--gpus", "16", "--format", "json")
    for command in ("solve", "predict"):
        answer = plan(command, "--profile", path, *question)
        assert answer.exit_code == 0, answer.stderr
        assert json.loads(answer.stdout)["request"]["cluster"]["name"] == "gh200-slingshot"
    other = plan("predict", "--profile", path, "--stack", "megatron-core", *question)
    assert json.loads(other.stdout)["request"]["stack"] != json.loads(answer.stdout)["request"]["stack"]


def test_a_profile_on_the_command_line_beats_a_variable(fitted):
    arguments = ["predict", "--profile", str(fitted[1]), "--model", "gpt3-350m", "--gpus", "16", "--format", "json"]
    done = CliRunner().invoke(main, arguments, env={"PLAN_CLUSTER": "dgx-h100"})
    assert json.loads(done.stdout)["request"]["cluster"]["name"] == "gh200-slingshot"


def test_runs_that_were_not_fitted_are_predicted_better_with_the_profile(tmp_path):
    """A published sweep as it would be measured on machines that are a quarter slower."""
    shipped = [row for _, row in json_lines(HOME / "runs.jsonl.gz") if row["group"] == "nemo-launcher"]
    slower = [
        row | {"measured": {"iteration_seconds": 1.25 * row["measured"]["iteration_seconds"]}}
        for row in shipped
        if row.get("complete", True) and row["measured"].get("iteration_seconds")
    ]
    seen, others = (written(tmp_path / f"{n}.jsonl", rows) for n, rows in (("a", slower[::6]), ("b", slower[1::6])))
    path = tmp_path / "profile.toml"
    plan("calibrate", seen, "-o", path, "-q")
    misses = {}
    for name, options in (("before", ()), ("after", ("--profile", path))):
        document = json.loads(plan("validate", others, *options, "--format", "json").stdout)
        misses[name] = document["summary"]["median_abs_error"]
        assert document["summary"]["n"] >= 4
    assert misses["before"] > 0.15
    assert misses["after"] < 0.08


def test_a_profile_of_logs_alone_has_no_stack(tmp_path):
    path = tmp_path / "links.toml"
    assert plan("calibrate", *LOGS, "-o", path, "--format", "json", "-q").exit_code == 0
    assert "stack" not in tomllib.loads(path.read_text())
    assert plan("predict", "--profile", path, "--model", "gpt3-350m", "--gpus", "16").exit_code == 0
    refused = plan("predict", "--stack", path, "--model", "gpt3-350m", "--gpus", "16")
    assert (refused.exit_code, "this profile has no [stack] table" in refused.stderr) == (2, True)


@each(
    ("arguments", "message"),
    [
        ((), "needs FILE"),
        (("nothing.jsonl",), "nothing.jsonl: no such file"),
        ((RUNS, "--cluster", "dgx-h1000"), "unknown cluster"),
        ((RUNS, "--stack", "megatron-cor"), "unknown stack"),
        ((RUNS, "-o", RUNS), "would write over"),
        ((RUNS, "-o", LOGS[0]), "exists already and is not a profile"),
        ((RUNS, "-o", "/nowhere/p.toml"), "there is no folder"),
    ],
)
def test_bad_requests_end_with_one_line_and_exit_code_2(arguments, message):
    content = RUNS.read_text()
    done = plan("calibrate", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert RUNS.read_text() == content


@pytest.mark.parametrize("option", ["predict", "validate"])
def test_a_file_that_is_no_profile_is_refused_as_one(option):
    question = (RUNS,) if option == "validate" else ("--model", "gpt3-350m", "--gpus", "16")
    done = plan(option, "--profile", EXAMPLES.parent / "my-cluster.toml", *question)
    assert done.exit_code == 2
    assert "no profile; `plan calibrate" in done.stderr


def test_a_profile_may_be_written_again(fitted, tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(fitted[1].read_text())
    assert plan("calibrate", *LOGS, "-o", path, "-q").exit_code == 0
    assert path.read_text() != fitted[1].read_text()


def test_fitted_machines_have_a_name_of_their_own(tmp_path):
    """An answer holds a fitted cluster; asked again it does not become the catalogue's."""
    path = tmp_path / "links.toml"
    assert calibrate(LOGS, cluster="a100-40gb-roce-1600g").cluster == "a100-40gb-roce-1600g-calibrated"
    plan("calibrate", *LOGS, "--cluster", "a100-40gb-roce-1600g", "-o", path, "-q")
    done = plan(
        "--profile", path, "--model", "gpt3-350m", "--gpus", "16", "--format", "json", "-o", tmp_path / "a.json"
    )
    assert done.exit_code == 0, done.stderr
    again = plan("--config", tmp_path / "a.json", "--format", "json")
    seconds = [
        json.loads(text)["prediction"]["iteration_seconds"]
        for text in ((tmp_path / "a.json").read_text(), again.stdout)
    ]
    assert seconds[0] == seconds[1]


def test_a_profile_can_be_calibrated_further(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(calibrate(LOGS, cluster="a100-40gb-roce-1600g").profile)
    again = calibrate(LOGS, cluster=str(path))
    assert again.errors[1].median_before < 0.2
    assert again.cluster == "a100-40gb-roce-1600g-calibrated"


def test_the_schema_describes_the_answer():
    document = json.loads(plan("schema", "calibration").stdout)
    assert set(json.loads(plan("calibrate", *LOGS, "--format", "json", "-q").stdout)) == set(document["properties"])


VALUES = (
    st.none() | st.booleans() | st.integers(-3, 2**40) | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})
)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["request", "measured"]), st.data())
def test_whatever_a_run_says_the_answer_is_a_calibration_or_one_line(tmp_path_factory, section, data):
    row = copy.deepcopy(run())
    field = data.draw(st.sampled_from(sorted(row[section])))
    row[section][field] = data.draw(VALUES)
    path = written(tmp_path_factory.getbasetemp() / "fuzz.jsonl", [row])
    done = plan("calibrate", path, "--format", "json", "-q")
    assert done.exit_code in {0, 2}, done.stderr
    assert "Traceback" not in done.stderr


def test_the_time_alone_is_that_of_the_price_strategy():
    for pins in ({}, {"pp": 4, "sharding_degree": 2}, {"tp": 1, "cp": 2}):
        mapped = case(run(pins=pins))
        alone = iteration_seconds(mapped.strategy, mapped.scenario, mapped.assignment)
        assert alone == price_strategy(mapped.strategy, mapped.scenario, mapped.assignment).iteration


def test_stacks_of_ones_own_are_read_anew_every_time(tmp_path):
    path = tmp_path / "s.toml"
    values = []
    for value in (0.5, 0.6):
        path.write_text(f'name = "mine"\ntitle = "mine"\nsource = "me"\n[calibrated]\nkernel_efficiency = {value}\n')
        values.append(find_stack(str(path)).calibrated.kernel_efficiency)
    assert values == [0.5, 0.6]
    assert isinstance(find_stack("nemo"), Stack)
