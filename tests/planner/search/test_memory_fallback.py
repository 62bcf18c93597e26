"""What is taken where nothing fits as asked: more memory never gives a slower plan."""

import math
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodels.names import OFFLOADS
from planner import OutOfTime, PlanRequest, plan
from planner.explain.what_helps import WINS
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.search import memory_savers
from planner.search.core_bounds import with_memory
from planner.search.memory_savers import DEGREES, FAR, NO_MARGIN, saved_below, with_savers
from planner.search.objective import search_question
from planner.search.question import resolve_search
from planner.space.lattice import build
from tests.planner.searched import price_cores
from tests.scenarios import toy_cluster, toy_model, toy_stack

ROUNDING = 1e-9
PLAIN = {"offload": "none", "recompute_num_layers": 1}


def asked(memory, **changes):
    """A small job on devices of so many bytes, whose hosts take states slowly and which may repeat layers together."""
    cluster = toy_cluster(node=4)
    group = cluster.groups[0]
    host = {"host_memory": 1e15, "host_link": changes.pop("host", 1e10), "host_bandwidth": 1e11}
    device = group.accelerator.model_copy(update={"usable_memory": memory})
    group = group.model_copy(update={"accelerator": device, **host})
    stack = toy_stack(offloads=OFFLOADS[1:], recompute_groups=True, zero_stages=changes.pop("zero_stages", (0, 1)))
    fields = {
        "model": toy_model(num_layers=16, seq_length=4096),
        "gpus": 4,
        "global_batch_size": 16,
        "stack": stack,
        "ties": "fastest",
    }
    return PlanRequest(cluster=cluster.model_copy(update={"groups": (group,)}), **(fields | changes))


def least(**changes):
    """Bytes that the leanest plan without savers needs."""
    best = plan(asked(80e9, objective="memory", reasons=False, **changes))
    return max(stage.total for stage in best.memory_bytes)


def seconds(answer):
    """Of an iteration of a plan; infinite where nothing fits."""
    return answer.prediction.iteration_seconds if answer.prediction else math.inf


def saves(answer):
    """Whether a plan has what saves memory because nothing fits without."""
    return any("nothing fits" in line for line in answer.defaults)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.floats(0.3, 1.0),
    st.lists(st.floats(1.001, 1.5), min_size=3, max_size=3),
    st.sampled_from([1e10, 1e12]),
    st.sampled_from([16, 256]),
    st.sampled_from([{}, {"recompute": "none"}]),
)
def test_more_memory_never_gives_a_slower_plan(share, steps, host, batch, pins):
    changes = {"host": host, "global_batch_size": batch, "pins": pins}
    memory, before = share * least(**changes), None
    for step in steps:
        memory *= step
        now = plan(asked(memory, **changes))
        known = min(seconds(now), now.saving_memory.iteration_seconds if now.saving_memory else math.inf)
        if before is not None:
            assert known <= seconds(before) / (1.0 - WINS) * (1.0 + ROUNDING)
            assert seconds(now) <= seconds(before) / (1.0 - FAR) * (1.0 + ROUNDING)
            if saves(before) and saves(now):
                assert seconds(now) <= seconds(before) * (1.0 + ROUNDING)
        before = now


def test_where_several_ways_save_memory_the_fastest_is_taken():
    request = asked(0.9 * least(), reasons=False)
    both, alone, margin = plan(request), {}, resolve_search(request).margin
    for pins in ({"recompute_num_layers": "2.."}, {"offload": "any", "recompute_num_layers": 1}):
        alone[tuple(pins)] = seconds(plan(request.model_copy(update={"pins": pins, "memory_margin": margin})))
    assert math.isfinite(seconds(both))
    assert seconds(both) <= min(alone.values()) * (1.0 + ROUNDING)


@pytest.mark.parametrize("step", [1.0, 1.01, 1.03])
def test_where_nothing_fits_with_the_margin_as_much_of_it_stays_as_the_leanest_plan_leaves(step):
    leanest = least(zero_stages=(0,))
    request = asked(1.005 * step * leanest, zero_stages=(0,), pins=PLAIN)
    found = plan(request.model_copy(update={"reasons": False}))
    margin = found.request["memory_margin"]
    assert any(NO_MARGIN in line for line in found.defaults)
    assert (1.0 - margin) * 1.005 * step * leanest == pytest.approx(leanest)
    assert max(stage.total for stage in found.memory_bytes) <= leanest * (1.0 + 1e-6)


def test_a_plan_that_recomputes_gives_way_to_one_that_is_faster_by_far_and_the_answer_begins_with_it():
    margin = resolve_search(asked(80e9)).margin
    request = asked(1.007 / (1.0 - margin) * least(global_batch_size=256), global_batch_size=256)
    found, plain = plan(request), plan(request.model_copy(update={"pins": {"offload": "none"}, "reasons": False}))
    assert (found.strategy.offload, plain.strategy.offload) == ("optimizer", "none")
    assert seconds(found) < (1.0 - FAR) * seconds(plain)
    assert found.saving_memory.subject == "offload optimizer"
    assert f"{1.0 - seconds(found) / seconds(plain):.1%} faster" in found.saving_memory.text
    short = plan(request.model_copy(update={"reasons": False}))
    assert (short.strategy, short.saving_memory) == (found.strategy, found.saving_memory)


@pytest.mark.parametrize("memory", [1.7, 2.0, 2.4, 2.8])
@pytest.mark.parametrize("pins", [{}, {"recompute": "none"}])
def test_a_plan_gives_way_to_one_that_is_faster_by_far_and_to_no_other_whatever_it_recomputes(memory, pins):
    request = asked(memory * least(global_batch_size=256), global_batch_size=256, pins=pins, host=1e12, reasons=False)
    found = plan(request)
    plain = seconds(plan(request.model_copy(update={"pins": {**pins, **PLAIN}})))
    saving = seconds(
        plan(request.model_copy(update={"pins": {**pins, "offload": "any", "recompute_num_layers": "1.."}}))
    )
    far = saving <= (1.0 - FAR) * plain
    assert seconds(found) == pytest.approx(saving if far else plain)
    assert (found.saving_memory is not None or saves(found)) == far


@pytest.mark.parametrize("host", [1e10, 1e12])
@pytest.mark.parametrize("share", [0.5, 0.8, 1.5])
def test_what_saves_memory_is_looked_for_wherever_it_may_fit_and_takes_no_less_than_with_memory_to_spare(share, host):
    question = resolve_search(asked(share * least(), host=host, memory_margin=0.0)).scenario
    free = parse_pins({"offload": "any", "recompute_num_layers": "1.."})
    space, wider = build(question, {}), build(question, free)
    everything = price_cores(wider, np.arange(len(wider.cores)), question)
    fitting = everything.take(everything.fits & np.isfinite(everything.even_split_seconds))
    seconds = fitting.even_split_seconds
    assert len(seconds)
    below = float(np.median(seconds))
    near = space.cores.take(saved_below(space.cores, question, free, below))
    kept, faster = (np.stack([getattr(rows, axis) for axis in DEGREES], axis=1) for rows in (near, fitting.rows))
    assert {tuple(row) for row in faster[seconds < below].tolist()} <= {tuple(row) for row in kept.tolist()}
    roomy = price_cores(space, np.arange(len(space.cores)), with_memory(question, 1e18))
    assert roomy.even_split_seconds.min() <= seconds.min() * (1.0 + ROUNDING)


def test_a_time_limit_that_passes_while_ways_to_save_are_looked_at_is_said(monkeypatch):
    clock, freest = [0.0], memory_savers._freest
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def late(*given):
        clock[0] = 100.0
        return freest(*given)

    request = asked(0.9 * least(), time_limit=10.0, reasons=False)
    monkeypatch.setattr(memory_savers, "_freest", late)
    with pytest.raises(OutOfTime, match=r"nothing fits as asked, and .* not all looked at within 10 s"):
        plan(request)


def test_what_is_not_used_is_not_asked_for():
    request = asked(0.9 * least())
    moved = with_savers(request, resolve_search(request), Budget()).request
    found = plan(replace_reasons(moved))
    assert set(moved.pins) == {
        axis
        for axis, plain in (("offload", "none"), ("recompute_num_layers", 1))
        if getattr(found.strategy, axis) != plain
    }


@pytest.mark.parametrize("pins", [{"recompute_num_layers": 1}, {}])
def test_a_lattice_that_was_searched_for_what_fits_is_not_searched_again(pins):
    request = asked(0.9 * least(), pins=pins)
    there = with_savers(request, resolve_search(request), Budget())
    moved = resolve_search(there.request)
    known, anew = (search_question(moved, Budget(), known=before) for before in (there.searched, None))
    assert (known.outcome is there.searched.outcome) == there.searched.space.same(anew.space) == bool(pins)
    assert known.space.same(anew.space)
    assert (known.space.candidates, known.space.refusals) == (anew.space.candidates, anew.space.refusals)
    assert counts(known.outcome) == counts(anew.outcome)
    assert known.outcome.best.row.row(0) == anew.outcome.best.row.row(0)


def counts(outcome):
    best = outcome.best
    return best.iteration, outcome.lower_bound, outcome.priced, outcome.feasible, outcome.solves, outcome.memory_refused


def replace_reasons(request):
    return request.model_copy(update={"reasons": False})
