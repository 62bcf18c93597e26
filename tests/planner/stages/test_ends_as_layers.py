"""Embedding and head take the places of layers where that makes the chunks of a pipeline equal."""

import shlex
from dataclasses import replace

import numpy as np
import pytest

from costmodels.layout.layers_by_kind import kind_slices, kinds_held
from costmodels.layout.split import Assignment, even_stages, places_of_ends
from costmodels.model.layer_kinds import Depth, Kind
from costmodels.names import SCHEDULE_NAMES, Recompute
from costmodels.pricing import price_strategy
from costmodels.strategy import strategies
from planner import PlanRequest, plan, predict
from planner.jobs.job import looped_chunks
from planner.jobs.preview import launch
from planner.rules.core import RULES
from planner.search.least_bytes import least_bytes
from planner.stages.from_strategies import assignment_of, fewest_layers, problem_of
from planner.stages.solver import solve
from tests.scenarios import INTERLEAVED, toy_hybrid, toy_model, toy_scenario, toy_stack

LLAMA = {"model": "llama3.1-405b", "gpus": 16384, "global_batch_size": 2048}


def test_the_head_is_the_first_to_stand_for_a_layer_and_more_than_two_are_never_missing():
    missing = [tuple(int(n) for n in places_of_ends(126, np.int64(vpp))) for vpp in (1, 2, 127, 8, 5)]
    assert missing == [(0, 0), (0, 0), (0, 1), (1, 1), (0, 0)]


def test_126_layers_stand_on_16_stages_as_llama_3_has_them():
    assert even_stages(126, 16, 8).tolist() == [7, *[8] * 14, 7]
    assert looped_chunks([7, *[8] * 14, 7], 8) == [0, *[1] * 126, 0]
    with pytest.raises(ValueError, match="8 layers split over 8 chunks"):
        looped_chunks([8, 7, *[8] * 12, 7, 8], 8)


def test_llama_3_405b_interleaves_one_layer_a_chunk_and_is_faster_for_it():
    tight = {**LLAMA, "memory_margin": 0.05, "reasons": False}
    best = plan(PlanRequest(**tight))
    assert (best.strategy.vpp, best.status) == (8, "optimal")
    assert [stage.layers for stage in best.strategy.stages] == [7, *[8] * 14, 7]
    without = plan(PlanRequest(**tight, pins={"vpp": "1,2,3,6,7,9"}))
    assert best.prediction.iteration_seconds < 0.95 * without.prediction.iteration_seconds


def test_megatron_is_given_a_layout_whose_outer_chunks_are_the_ends():
    layers = [7, *[8] * 14, 7]
    pins = {"tp": 8, "pp": 16, "vpp": 8, "dp": 128}
    given = predict(PlanRequest(**LLAMA, pins=pins), layers)
    assert "--pipeline-model-parallel-layout 'E|(t|)*125t|L'" in shlex.join(launch(given, given.strategy).words)


def test_layers_of_several_kinds_keep_their_places_behind_the_embedding():
    chain = Depth((Kind("global", "dense"), Kind("mamba", "none")), np.array([0, 0, 1, 1, 0, 1]))
    assert kind_slices(chain, 4).tolist() == [[1, 2], [2, 1]]  # chunks E0 01 10 1L: first places, then second ones
    held = kinds_held(chain, np.array([3, 3]), 4)
    assert held.tolist() == [[1, 2], [2, 1]]
    assert kinds_held(chain, np.array([3, 3]), 4, only=np.array([1, 2])).tolist() == [[1, 0], [1, 1]]


def test_an_end_that_stands_for_a_layer_lowers_what_its_stage_holds_at_least():
    scenario = toy_scenario(model=toy_model(num_layers=6), stack=toy_stack(ends_as_layers=True))
    row = strategies(tp=1, pp=2, vpp=4, dp=4, num_microbatches=4, schedule=INTERLEAVED)
    assert fewest_layers(row, scenario).tolist() == [[3, 3]]


@pytest.mark.parametrize(("pattern", "vpp", "held"), [("MMM---", 4, [3, 3]), ("MMM----", 4, [4, 3])])
def test_where_layers_differ_an_end_costs_no_layer_in_whose_place_it_stands(pattern, vpp, held):
    scenario = toy_scenario(model=toy_hybrid(pattern), stack=toy_stack(ends_as_layers=True, uneven_stages=True))
    row = strategies(tp=1, pp=2, vpp=vpp, dp=4, num_microbatches=4, schedule=INTERLEAVED)
    priced = price_strategy(row, scenario, Assignment(np.array(held), np.zeros(2, np.int64)))
    problem = problem_of(row, priced.seconds, priced.memory, scenario)
    solution = solve(problem)
    assert assignment_of(solution, row, scenario).layers.tolist() == held
    assert [solution.slowest_seconds, solution.total_seconds] == pytest.approx(
        [priced.stage_seconds.max(), priced.stage_seconds.sum()]
    )
    fullest = float(priced.footprint.allocated.max())
    assert solve(replace(problem, memory_limit=fullest * (1 + 1e-9))).layers
    assert not solve(replace(problem, memory_limit=fullest * (1 - 1e-6))).layers


@pytest.mark.parametrize(("pp", "held"), [(6, [1] * 6), (7, [*[1] * 6, 0]), (8, [0, *[1] * 6, 0])])
def test_a_framework_that_balances_layers_leaves_the_ends_alone_on_stages_beyond_them(pp, held):
    stack = toy_stack(ends_as_layers=True, uneven_stages=True, stage_cut="balanced", schedules=("none", "1f1b"))
    scenario = toy_scenario(model=toy_model(num_layers=6), stack=stack, gpus=56 * 6)
    row = strategies(pp=pp, dp=2, num_microbatches=8, schedule=SCHEDULE_NAMES.index("1f1b"))
    (rule,) = (rule for rule in RULES if rule.name == "layers")
    assert rule.passes({"pp": np.array(pp)}, scenario)
    assert not rule.passes({"pp": np.array(9)}, scenario)
    assert not rule.passes({"pp": np.array(7)}, replace(scenario, stack=toy_stack(ends_as_layers=True)))
    assert fewest_layers(row, scenario).tolist() == [held]
    for kind, again in ((Recompute.NONE, 0), (Recompute.FULL, 1)):
        kept = replace(row, recompute=np.array([int(kind)]))
        priced = price_strategy(kept, scenario, Assignment(np.array(held), np.array(held) * again))
        assert least_bytes(kept, scenario) <= priced.footprint.allocated.max() * (1 + 1e-9)
