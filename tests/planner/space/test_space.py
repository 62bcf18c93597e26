import itertools
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.names import CP_KINDS, Recompute
from costmodels.strategy import AXES
from planner.errors import BadRequest
from planner.request.pins import parse_pins
from planner.rules.divisors import divisors
from planner.space import lattice
from planner.space.active_rules import active
from planner.space.lattice import build, context_kinds
from tests.drawn import drawn_scenarios
from tests.each import each
from tests.planner.brute_force import every_row
from tests.scenarios import toy_model, toy_scenario, toy_stack

PINNED = st.fixed_dictionaries(
    {},
    optional={
        "tp": st.sampled_from([1, "1,2", "..4", "2.."]),
        "pp": st.sampled_from(["1,2", "..2", 2]),
        "dp": st.sampled_from(["..4", 1]),
        "vpp": st.sampled_from([1, "1,2", "2.."]),
        "micro_batch_size": st.sampled_from([1, "..4", "2,4"]),
        "zero_stage": st.sampled_from([0, "0,1"]),
        "sharding_degree": st.sampled_from(["1..", "2,4", 1]),
        "schedule": st.sampled_from(["1f1b", "gpipe,1f1b,none"]),
        "recompute": st.sampled_from(["none", "full", "selective", "none,partial"]),
        "rank_order": st.sampled_from(["tp-cp-ep-pp-dp"]),
        "sequence_parallel": st.sampled_from(["true", "false"]),
    },
)


def built(scenario, pins=None):
    return build(scenario, parse_pins(pins or {}))


def all_rows(space):
    core, option = np.nonzero(space.allowed)
    return space.rows(core, option)


def keys(rows):
    return sorted(tuple(rows.row(i)[axis] for axis in AXES) for i in range(len(rows)))


def test_a_lattice_of_which_some_was_left_out_is_the_same_as_no_other():
    whole = built(toy_scenario())
    part = replace(whole, outline=whole.cores)
    assert whole.same(built(toy_scenario()))
    assert not whole.same(part)
    assert not part.same(whole)


@settings(max_examples=50, deadline=None)
@given(drawn_scenarios(gpus=(1, 2, 4, 6, 8), layers=(1, 2, 3, 4, 8)), PINNED)
def test_every_candidate_is_refused_by_one_rule_or_allowed(scenario, pins):
    try:
        space = built(scenario, pins)
    except BadRequest:
        return
    assert space.candidates == sum(refusal.count for refusal in space.refusals) + int(space.allowed.sum())
    assert all(refusal.count > 0 and refusal.example for refusal in space.refusals)


@settings(max_examples=50, deadline=None)
@given(drawn_scenarios(gpus=(1, 2, 4, 6, 8), layers=(1, 2, 3, 4, 8)), PINNED)
def test_what_is_allowed_passes_every_rule_makes_up_the_machine_and_stands_once(scenario, pins):
    try:
        rows = all_rows(built(scenario, pins))
    except BadRequest:
        return
    columns = {name: getattr(rows, name) for name in AXES}
    for rule in active(scenario, frozenset(pins)):
        assert np.all(rule.passes(columns, scenario)), rule.name
    assert (rows.tp * rows.cp * rows.pp * rows.dp == scenario.gpus).all()
    assert (rows.micro_batch_size * rows.num_microbatches * rows.dp == scenario.global_batch_size).all()
    assert len(set(keys(rows))) == len(rows)


@settings(max_examples=50, deadline=None)
@given(drawn_scenarios(gpus=(1, 2, 4, 6, 8), batches=(4, 8, 12), layers=(1, 2, 3, 4, 6, 8)), st.booleans())
def test_the_space_holds_what_plain_loops_find_but_for_what_is_dominated(scenario, any_degree):
    rules = active(scenario, frozenset())
    dominated = [rule for rule in rules if rule.kind == "dominated"]
    expected = every_row(scenario, any_degree=any_degree)
    found = all_rows(built(scenario, {"sharding_degree": "1.."} if any_degree else {}))
    if expected is None:
        assert len(found) == 0
        return
    columns = {name: getattr(expected, name) for name in AXES}
    kept = np.all([np.broadcast_to(r.passes(columns, scenario), len(expected)) for r in dominated], axis=0)
    assert keys(found) == keys(expected.take(kept))


@settings(max_examples=50, deadline=None)
@given(drawn_scenarios(gpus=(4, 8), layers=(4, 8)), PINNED)
def test_pins_hold_in_every_row(scenario, pins):
    try:
        rows = all_rows(built(scenario, pins))
    except BadRequest:
        return
    for axis, pin in parse_pins(pins).items():
        column = getattr(rows, axis)
        allowed = np.isin(column, pin.values) if pin.values else (column >= pin.low) & (column <= pin.high)
        if axis == "recompute" and Recompute.PARTIAL in pin.values:  # what recomputes some layers may come to these
            allowed |= np.isin(column, (Recompute.NONE, Recompute.FULL))
        assert allowed.all(), axis


@each("number", [1, 2, 12, 97, 720, 12288, 1_048_576])
def test_divisors_are_all_of_them_in_order(number):
    assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


def test_layouts_are_all_ordered_factorisations():
    space = built(toy_scenario(gpus=16, model=toy_model(num_layers=16), batch=16))
    found = {(r["tp"], r["cp"], r["pp"], r["dp"]) for r in map(space.cores.row, range(len(space.cores)))}
    wanted = {t for t in itertools.product((1, 2, 4, 8, 16), repeat=4) if prod(t) == 16 and t[0] <= 8}
    assert found == wanted


@each(
    ("pins", "said"),
    [
        ({"tp": 5}, r"tp 5 does not divide 8 GPUs; \d and \d do"),
        ({"tp": 4, "pp": 4}, r"tp 4, pp 4 does not fit 8 GPUs: .*; tp 4, pp 2 does$"),
        ({"tp": 2, "pp": 8}, r"tp 2, pp 8 does not fit 8 GPUs: .*; tp 2, pp 4 does$"),
        ({"tp": 1, "cp": 1, "pp": 1, "dp": "..3"}, r"dp \.\.3 does not fit 8 GPUs: .*; tp 1, cp 1, pp 1, dp 8 does$"),
        ({"dp": "3..3"}, r"dp .* does not divide 8 GPUs"),
        ({"micro_batch_size": "17..31"}, r"micro_batch_size: no possible value lies in that range"),
    ],
)
def test_degrees_that_cannot_be_are_refused_with_what_can(pins, said):
    with pytest.raises(BadRequest, match=said):
        built(toy_scenario(), pins)


@pytest.mark.parametrize(
    "pins", [{"vpp": 64}, {"micro_batch_size": 1024}, {"pp": 2, "schedule": "none"}, {"zero_stage": 3}]
)
def test_pins_that_no_rule_admits_leave_an_empty_space_and_its_reasons(pins):
    space = built(toy_scenario(), pins)
    assert not space.allowed.any()
    assert space.refusals
    assert space.candidates == sum(refusal.count for refusal in space.refusals)


def test_sharding_is_over_everything_or_over_what_a_node_holds():
    space = built(toy_scenario(gpus=16, batch=64), {"tp": 1, "pp": 1, "cp": 1})
    assert {(z, d) for z, d in zip(*options(space), strict=True)} == {(0, 1), (1, 16), (1, 4)}


def options(space):
    rows = all_rows(space)
    return rows.zero_stage.tolist(), rows.sharding_degree.tolist()


@pytest.mark.parametrize("gpus", [2**20, 2**24, 720_720])
def test_huge_machines_are_laid_out_without_overflow(gpus):
    space = built(toy_scenario(gpus=gpus, batch=gpus, stack=toy_stack(schedules=("none",))))
    rows = space.cores
    assert (rows.tp * rows.cp * rows.pp * rows.dp == gpus).all()


def test_short_sequences_are_searched_with_the_usual_kind_of_context_parallelism_alone(monkeypatch):
    monkeypatch.setattr(lattice, "LONG_SEQUENCE", 8192)
    stack = toy_stack(cp_kinds=CP_KINDS)
    windowed = toy_model().model_copy(update={"sliding_window": 128})
    short, long = (toy_scenario(stack=stack, seq_length=length) for length in (4096, 8192))
    assert context_kinds(short) == ("p2p",)
    assert context_kinds(long) == CP_KINDS
    assert context_kinds(toy_scenario(stack=stack, model=windowed)) == CP_KINDS
