"""The search over expert ranks finds what trying every one of them finds."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from costmodels.memory.even_peaks import even_peaks
from costmodels.memory.limits import memory_limit
from costmodels.memory.rows import row_bytes
from costmodels.pricing import price, price_strategy
from costmodels.strategy import strategies
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.search.best_first import search
from planner.space.lattice import build
from tests.drawn import drawn_expert_models, drawn_scenarios
from tests.planner.brute_force import brute_force_by_price_strategy, every_row
from tests.planner.searched import agree, tightened
from tests.scenarios import changed_device, changed_link, factors_of, toy_model, toy_scenario, toy_stack, with_experts

pytestmark = pytest.mark.usefixtures("few_cores_at_a_time")

TIGHTNESS = st.floats(-0.1, 1.0)
"""Where the memory limit lies between the leanest and the fattest strategy, on a logarithmic scale."""
PINS = {"rank_order": "tp-cp-ep-dp-pp", "zero_stage": "..1"}


def expert_rows(scenario, *, keep=lambda _row: True):
    """All valid strategies of a model with experts under ``PINS``; its rules written down once more."""

    def plain(row):
        split = row["tp"] == 1 or row["sequence_parallel"]
        return split and row["rank_order"] == 0 and row["zero_stage"] < 2

    dense = every_row(scenario, keep=plain)
    moe, rows = scenario.model.moe, []
    for row in () if dense is None else map(dense.row, range(len(dense))):
        for ep in factors_of(moe.num_experts):
            for etp in factors_of(row["tp"]):
                whole = row["tp"] * row["cp"] * row["dp"] % (ep * etp) == 0 and moe.expert_ffn_hidden_size % etp == 0
                if whole and keep(row | {"ep": ep, "etp": etp}):
                    rows.append(row | {"ep": ep, "etp": etp})
    return strategies(**{axis: [row[axis] for row in rows] for axis in rows[0]}) if rows else None


def found(scenario, pins=None):
    space = build(scenario, parse_pins(PINS | (pins or {})))
    return search(space, scenario, budget=Budget())


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_scenarios(gpus=(2, 4), batches=(2, 4), layers=(2, 3, 4), models=drawn_expert_models), TIGHTNESS)
def test_the_search_over_expert_ranks_finds_what_the_quote_of_every_split_says(scenario, tightness):
    rows = expert_rows(scenario)
    assume(rows is not None and len(rows) <= 60)
    scenario = tightened(scenario, rows, tightness)
    agree(found(scenario), brute_force_by_price_strategy(rows, scenario))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    drawn_scenarios(gpus=(2, 4), batches=(2, 4), layers=(2, 3, 4), models=drawn_expert_models),
    TIGHTNESS,
    st.floats(0.05, 0.95),
)
def test_so_does_the_search_where_dispatch_hides_behind_other_micro_batches(scenario, tightness, left):
    """How much of it hides depends on the stages and micro-batches, so that layers of one block differ in price."""
    overlap = scenario.stack.overlap.model_copy(update={"ep": left})
    scenario = replace(scenario, stack=scenario.stack.changed({"overlap": overlap}))
    rows = expert_rows(scenario)
    assume(rows is not None and len(rows) <= 60)
    scenario = tightened(scenario, rows, tightness)
    agree(found(scenario), brute_force_by_price_strategy(rows, scenario))


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_scenarios(gpus=(2, 4, 8), batches=(4, 8), layers=(2, 4, 6), models=drawn_expert_models), TIGHTNESS)
def test_no_evenly_split_strategy_with_experts_that_fits_is_faster_than_the_winner(scenario, tightness):
    rows = expert_rows(scenario)
    assume(rows is not None)
    scenario = tightened(scenario, rows, tightness)
    fits = even_peaks(rows, row_bytes(rows, scenario), scenario.model.num_layers) <= memory_limit(scenario, rows)
    outcome = found(scenario)
    if fits.any():
        assert outcome.best.iteration <= price(rows, scenario).iteration[fits].min() * (1 + 1e-9)
    if outcome.best is not None:
        priced = price_strategy(outcome.best.row, scenario, outcome.best.assignment)
        assert priced.iteration == pytest.approx(outcome.best.iteration, rel=1e-9)
        assert priced.footprint.total.max() <= scenario.group.accelerator.usable_memory * (1 + 1e-9)


@pytest.mark.parametrize("ep", [1, 2, 4, 8])
def test_a_pinned_number_of_expert_ranks_is_kept_and_never_better_than_the_free_choice(ep):
    scenario = toy_scenario(model=with_experts(toy_model()), gpus=8, batch=16, stack=toy_stack(uneven_stages=True))
    pinned, free = found(scenario, {"ep": ep}), found(scenario)
    assert pinned.best.row.ep.tolist() == [ep]
    assert free.best.iteration <= pinned.best.iteration * (1 + 1e-9)


def test_experts_too_large_for_one_device_are_dealt_out():
    model = with_experts(toy_model(), expert_ffn_hidden_size=8192)
    scenario = changed_device(toy_scenario(model=model, gpus=8), usable_memory=6e9)
    assert found(scenario, {"tp": 1, "pp": 1, "ep": 1}).best is None
    assert found(scenario, {"tp": 1, "pp": 1}).best.row.ep[0] > 1


def test_experts_that_fit_stay_on_one_device_where_links_are_slow():
    scenario = toy_scenario(model=with_experts(toy_model(), expert_ffn_hidden_size=64), gpus=4)
    for index in range(2):
        scenario = changed_link(scenario, index, bandwidth=1e8)
    assert found(scenario, {"tp": 1, "pp": 1, "cp": 1}).best.row.ep.tolist() == [1]
