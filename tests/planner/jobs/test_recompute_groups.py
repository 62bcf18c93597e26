"""Layers that are recomputed together from one stored input: the price, the search, what is exported and read."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from costmodels.layout.split import Assignment
from costmodels.layout.stage_contents import in_flight
from costmodels.memory.even_peaks import even_peaks
from costmodels.memory.limits import memory_limit
from costmodels.memory.rows import row_bytes
from costmodels.names import Recompute
from costmodels.pricing import price, price_strategy
from costmodels.strategy import strategies
from hardware.records import Cluster
from planner import PlanRequest, plan, predict
from planner.errors import BadRequest
from planner.render.terminal.formats import written
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.search.best_first import search
from planner.space.lattice import build
from planner.stages.from_strategies import stage_bounds
from tests.drawn import drawn_scenarios
from tests.planner.brute_force import every_row, seconds_and_bytes
from tests.planner.jobs.scripts import megatron_job
from tests.planner.searched import agree, tightened, tried
from tests.scenarios import ONE_F_ONE_B, changed_device, toy_model, toy_scenario, toy_stack

SOME = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
DEEP = toy_scenario(gpus=4, batch=16, model=toy_model(num_layers=16), stack=toy_stack(recompute_groups=True))
TOGETHER = (1, 2, 3, 4)


def row(together, **axes):
    usual = {"pp": 4, "num_microbatches": 16, "schedule": ONE_F_ONE_B, "recompute": Recompute.FULL}
    return strategies(**usual | axes, recompute_num_layers=together)


def grouping(scenario):
    stack = scenario.stack.changed({"supports.recompute_groups": True})
    return replace(scenario, stack=stack)


def test_a_stage_stores_one_input_for_every_group_and_holds_one_group_while_it_runs_again():
    single, grouped = row_bytes(row(1), DEEP), row_bytes(row(4), DEEP)
    input_bytes = 2 * DEEP.model.hidden_size * DEEP.seq_length
    assert single.checkpoint[0] == input_bytes
    assert 4 * grouped.checkpoint[0] == input_bytes
    assert grouped.working[0] == 4 * single.working[0]
    even = Assignment(np.full(4, 4), np.full(4, 4))
    held = in_flight(row(1), np.array([1]))[0]
    saved = held * 3 * input_bytes - 3 * single.working[0]
    totals = [price_strategy(row(n), DEEP, even).footprint.total[1] for n in (1, 4)]
    assert totals[0] - totals[1] == pytest.approx(saved * (1 + DEEP.stack.allocator.fragmentation))


def test_groups_change_memory_and_no_time():
    assert price(row(4), DEEP).iteration == price(row(1), DEEP).iteration


@SOME
@given(drawn_scenarios(gpus=(1, 2, 4), batches=(2, 4, 8), layers=(2, 3, 4, 6, 8)), st.floats(-0.1, 1.0))
def test_the_search_over_groups_finds_what_trying_everything_finds(scenario, tightness):
    scenario = grouping(scenario)
    assume(scenario.depth.uniform)
    rows = every_row(scenario, keep=lambda row: row["rank_order"] == 0, together=TOGETHER, most=400)
    assume(rows is not None and len(rows) <= 400)
    scenario = tightened(scenario, rows, tightness)
    pins = {"recompute_num_layers": "1,2,3,4", "rank_order": "tp-cp-ep-dp-pp"}
    outcome = search(build(scenario, parse_pins(pins)), scenario, budget=Budget())
    agree(outcome, tried(rows, scenario))


@SOME
@given(drawn_scenarios(gpus=(2, 4), batches=(4, 8), layers=(4, 6, 8)), st.floats(-0.1, 1.0), st.randoms())
def test_a_grouped_row_s_bound_never_exceeds_its_best_split(scenario, tightness, chance):
    scenario = grouping(scenario)
    assume(scenario.depth.uniform)
    rows = every_row(scenario, together=TOGETHER, keep=lambda row: row["recompute_num_layers"] > 1)
    assume(rows is not None)
    rows = rows.take(np.array(chance.sample(range(len(rows)), min(len(rows), 20))))
    scenario = tightened(scenario, rows, tightness)
    prices, memory = price(rows, scenario), row_bytes(rows, scenario)
    bounds, _ = stage_bounds(rows, prices.seconds, memory, scenario)
    for index, bound in enumerate(bounds):
        seconds, used = seconds_and_bytes(rows, scenario, index, prices.seconds, memory)
        limit = memory_limit(scenario, rows.take(np.array([index])))
        best = np.where(used <= limit * (1 - 1e-9), seconds, np.inf).min()
        assert bound <= best * (1 + 1e-9)


ASK = {"model": "22b", "gpus": 64, "global_batch_size": 128}
PINS = {"tp": 2, "pp": 4, "recompute_num_layers": 4}


def test_layers_that_go_together_are_all_recomputed_unless_said():
    found = predict(PlanRequest(**ASK, pins=PINS))
    assert (found.strategy.recompute, found.strategy.recompute_num_layers) == ("full", 4)
    refused = predict(PlanRequest(**ASK, pins=PINS | {"recompute": "selective"}))
    assert "recompute-groups" in {one.rule for one in refused.rejected}


def test_what_is_exported_to_megatron_is_read_again():
    found = predict(PlanRequest(**ASK, pins=PINS))
    text, _ = written(found, "args")
    assert "--recompute-method uniform --recompute-num-layers 4" in text
    again = megatron_job(text)
    assert (again.pins["recompute"], again.pins["recompute_num_layers"]) == ("full", 4)


def test_the_plan_says_how_many_layers_go_together_and_can_be_asked_again():
    found = plan(PlanRequest(**ASK, pins={"recompute_num_layers": "2..4"}, top=0))
    assert found.strategy.recompute_num_layers in (2, 3, 4)
    assert json.loads(found.model_dump_json())["strategy"]["recompute_num_layers"] > 1


def test_given_stages_that_the_group_does_not_divide_are_refused():
    with pytest.raises(BadRequest, match="4 are recomputed together"):
        predict(PlanRequest(**ASK, pins=PINS), layers=(13, 11, 12, 12))


def test_where_nothing_else_fits_groups_are_tried_and_the_plan_says_so():
    model = toy_model(num_layers=64)
    stack = toy_stack(recompute_groups=True)
    scenario = toy_scenario(gpus=4, batch=16, model=model, stack=stack)
    known = {"zero_stage": 0, "sharding_degree": 1, "micro_batch_size": 1}
    rows = row([1, 2, 4], **known)
    peaks = even_peaks(rows, row_bytes(rows, scenario), 64)
    assert peaks[1] < peaks[0]
    scenario = changed_device(scenario, usable_memory=(peaks[0] + peaks[1]) / 2)
    cluster = Cluster(name="toy", title="toy", groups=(scenario.group,), sources={})
    asked = {"model": model, "stack": stack, "cluster": cluster, "gpus": 4, "global_batch_size": 16, "reasons": False}
    found = plan(PlanRequest(**asked, pins={"pp": 4, "schedule": "1f1b", "zero_stage": 0, "recompute": "full"}))
    assert found.strategy.recompute_num_layers == 2
    assert "2 layers recomputed together (nothing fits without)" in found.defaults
