"""Goodput as an objective, and what the answer says about interruptions and checkpoints."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from costmodels.stability import Stability
from planner import PlanRequest, plan, predict
from planner.cli.app import main
from planner.errors import BadRequest
from planner.render.terminal.panels import goodput_lines
from planner.request.budget import Budget
from planner.request.defaults import SPARES
from planner.request.pins import parse_pins
from planner.request.resolve import resolve
from planner.search.best_first import search
from planner.space.lattice import build
from tests.drawn import drawn_scenarios
from tests.each import each
from tests.planner.brute_force import every_row
from tests.planner.searched import agree, tried

SMALL = {"model": "llama3-8b", "gpus": 64, "top": 0}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_scenarios(gpus=(2, 4, 8), batches=(4, 8), layers=(2, 3, 4)), st.sampled_from(["1 per 1 h", "1 per 20 h"]))
def test_the_search_for_goodput_finds_what_trying_everything_finds(scenario, failure):
    group = scenario.group.model_copy(update={"host_link": 1e6})  # so slow that stalls decide
    scenario = replace(scenario, group=group, stability=Stability(failure=failure, detect="0 s", restart="0 s"))
    rows = every_row(scenario, most=600)
    assume(rows is not None and len(rows) <= 600)
    outcome = search(build(scenario, parse_pins({})), scenario, budget=Budget())
    agree(outcome, tried(rows, scenario))


def test_the_plan_says_how_much_of_the_time_trains_and_when_to_checkpoint():
    found = plan(PlanRequest(**SMALL, objective="goodput", reasons=False))
    told, predicted = found.goodput, found.prediction
    assert found.status == "optimal"
    assert told.wall_days == pytest.approx(predicted.training_days / told.effective)
    rented = (64 + 8 * told.spare_nodes) / 64
    assert told.wall_cost_dollars == pytest.approx(predicted.cost_dollars * rented / told.effective)
    steps = told.checkpoint_interval_seconds / predicted.iteration_seconds
    assert told.checkpoint_interval_iterations == pytest.approx(steps, abs=0.5)
    assert found.proof.lower_bound_seconds == predicted.iteration_seconds


def test_stability_alone_leaves_the_objective_and_adds_the_reckoning():
    fastest = plan(PlanRequest(**SMALL, reasons=False))
    found = plan(PlanRequest(**SMALL, stability={"failure": "1 per 100 h"}, reasons=False))
    assert fastest.goodput is None
    assert found.strategy == fastest.strategy
    assert found.goodput.mean_hours_between_failures == pytest.approx(100 / 64)


def test_a_prediction_says_it_too():
    found = predict(PlanRequest(**SMALL, stability=Stability(spare_nodes=1), pins={"tp": 2}))
    assert 0 < found.goodput.effective < 1
    assert found.goodput.spare_nodes == 1


@pytest.mark.parametrize(
    ("gpus", "spares", "said"),
    [
        (16384, 1025, "spare_nodes 1025: meta-24k has 3,072 nodes, 1,024 more than the job's 2,048; 1024 works"),
        (24576, 1, "spare_nodes 1: meta-24k has 3,072 nodes, 0 more than the job's 3,072; 0 works"),
    ],
)
def test_spare_nodes_that_the_cluster_does_not_have_are_refused(gpus, spares, said):
    asked = {"model": "llama3.1-405b", "gpus": gpus, "cluster": "meta-24k"}
    with pytest.raises(BadRequest) as refused:
        resolve(PlanRequest(**asked, stability={"spare_nodes": spares}))
    assert str(refused.value) == said
    works = resolve(PlanRequest(**asked, stability={"spare_nodes": int(said.split()[-2])}))
    assert not any("though" in line for line in works.defaults)


def test_spare_nodes_that_nobody_asked_for_and_the_cluster_does_not_have_are_said():
    asked = {"model": "llama3.1-405b", "gpus": 24576, "cluster": "meta-24k"}
    lines = [line for line in resolve(PlanRequest(**asked, objective="goodput")).defaults if "though" in line]
    assert len(lines) == 1
    assert lines[0].endswith("counted, though meta-24k has 3,072 nodes, 0 more than the job's 3,072")


def test_a_cluster_without_a_number_of_nodes_has_as_many_spares_as_are_asked_for():
    assert SPARES in resolve(PlanRequest(**SMALL, stability={"spare_nodes": 500})).defaults


def test_spare_nodes_are_rented_and_drawn_power_for_as_long_as_the_job():
    none, eight = (
        predict(PlanRequest(**SMALL, stability={"failure": "0 /s", "spare_nodes": n}, pins={"tp": 2})) for n in (0, 8)
    )
    assert none.goodput.wall_cost_dollars == none.prediction.cost_dollars
    assert eight.goodput.wall_cost_dollars == pytest.approx(2 * none.goodput.wall_cost_dollars)
    assert eight.goodput.spare_cost_dollars == pytest.approx(none.goodput.wall_cost_dollars)
    assert none.goodput.wall_energy_megawatt_hours == none.prediction.energy_megawatt_hours
    assert eight.goodput.wall_energy_megawatt_hours == pytest.approx(2 * none.prediction.energy_megawatt_hours)
    assert (SPARES in none.defaults, SPARES in eight.defaults) == (False, True)
    assert "8 spare nodes for $" in " ".join(goodput_lines(eight.goodput))


def test_an_answer_asked_again_gives_the_same_reckoning(tmp_path):
    asked = PlanRequest(**SMALL, objective="goodput", stability={"detect": "5 min", "storage": "10 GB/s"})
    saved = tmp_path / "answer.json"
    saved.write_text(plan(asked).to_json())
    again = CliRunner().invoke(main, ["--config", str(saved), "--format", "json", "--top", "0"])
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["goodput"] == json.loads(saved.read_text())["goodput"]


def test_stability_is_read_from_pairs_or_a_file(tmp_path):
    ask = ["predict", "--model", "llama3-8b", "--gpus", "64", "--tp", "2", "--format", "json"]
    pairs = CliRunner().invoke(main, [*ask, "--stability", "detect=1 min, storage=5 GB/s,spare_nodes=2"])
    file = tmp_path / "stability.toml"
    file.write_text('detect = "1 min"\nstorage = "5 GB/s"\nspare_nodes = 2\n')
    read = CliRunner().invoke(main, [*ask, "--stability", str(file)])
    assert pairs.exit_code == read.exit_code == 0, pairs.output + read.output
    assert json.loads(pairs.stdout)["goodput"] == json.loads(read.stdout)["goodput"]


@each(
    ("options", "says"),
    [
        (["--goodput", "--objective", "time"], "differ"),
        (["--stability", "detect"], "detect"),
        (["--stability", "detekt=1 min"], "stability: detekt: there is no such field; did you mean detect?"),
        (["--stability", "foo=1"], "there are failure, detect, restart, startup, checkpoint, storage,"),
        (["--stability", "detect=1"], "unit"),
        (["--stability", "spare_nodes=many"], "spare_nodes"),
        (["--stability", "detect=1 min,=3"], "name=value"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(options, says):
    result = CliRunner().invoke(main, ["--model", "llama3-8b", "--gpus", "64", *options])
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_mixed_clusters_refuse_goodput():
    for extra in ({"objective": "goodput"}, {"stability": {}}):
        with pytest.raises(BadRequest, match="one node group"):
            plan(PlanRequest(model="llama2-70b", gpus=128, cluster="a100-h100-mixed", **extra))
