"""A plan leaves a margin of memory and says what that costs; one that fills the memory says so."""

import re

import pytest

from hardware.catalogue import cluster
from planner import PlanRequest, plan, predict
from planner.answer.text import WORTH_SHOWING
from planner.request.fields import PIN_AXES

FULL = {"model": "llama3-70b", "gpus": 8}


@pytest.fixture(scope="module")
def full():
    return plan(PlanRequest(**FULL, memory_margin=0.0, framework="any", top=0))


def test_a_plan_that_fills_the_memory_says_that_it_may_run_out(full):
    first, (second, *_) = full.warnings[0], full.choices
    assert re.match(r"stage \d fills (9[5-9]\.\d|100\.0)% of the usable memory and may run out .* leaves more$", first)
    assert second.subject == "--memory-margin 5%"


def test_the_plan_with_a_margin_is_the_plan_that_is_asked_for_with_one(full):
    """What nothing fits without is asked for by the plan itself, and so it is here."""
    pins = {"offload": full.strategy.offload}
    safe = plan(PlanRequest(**FULL, memory_margin=0.05, framework="any", pins=pins, reasons=False))
    slower = safe.prediction.iteration_seconds / full.prediction.iteration_seconds - 1.0
    told = full.choices[0].text
    assert told.startswith(f"{slower:.1%} slower, TP {safe.strategy.tp} ")
    assert f"PP {safe.strategy.pp}, " in told
    assert not any("usable memory" in warning for warning in safe.warnings)


def test_a_plan_with_room_or_with_a_margin_asked_for_says_nothing():
    for asked in ({"model": "gpt3-125m", "gpus": 8}, FULL | {"memory_margin": 0.02, "pins": {"offload": "any"}}):
        answer = plan(PlanRequest(**asked, top=0))
        assert not any("--memory-margin" in said for said in (*answer.warnings, *(c.subject for c in answer.choices)))


def test_what_fits_with_a_margin_only_by_what_saves_memory_is_not_said_to_fit_not_at_all():
    plain = PlanRequest(model="llama3-8b", gpus=2, cluster="dgx-h100", memory_margin=0, pins={"offload": "none"})
    told = {one.subject: one.text for one in plan(plain).choices}
    safe = plan(PlanRequest(model="llama3-8b", gpus=2, cluster="dgx-h100", memory_margin=0.05, reasons=False))
    assert safe.strategy.offload != "none"
    assert told["--memory-margin 5%"] == "nothing fits without offloading or recomputing layers together"


TIGHT = {"model": "175b", "gpus": 512, "top": 0}
"""A plan that the margin makes slower by more than is shown."""
CLOSE = {**TIGHT, "gpus": 1024}
"""One that it makes hardly slower."""


def test_a_plan_leaves_a_margin_unless_it_is_told_otherwise_and_says_what_that_costs():
    usual, edge = plan(PlanRequest(**TIGHT)), plan(PlanRequest(**TIGHT, memory_margin=0, reasons=False))
    assert edge.prediction.fit_probability < 0.8 <= usual.prediction.fit_probability
    gain = 1.0 - edge.prediction.iteration_seconds / usual.prediction.iteration_seconds
    (said,) = (one.text for one in usual.choices if one.subject == "--memory-margin 0")
    assert said.startswith(f"{gain:.1%} faster, TP {edge.strategy.tp} PP {edge.strategy.pp} ")
    assert said.endswith(f"and fits with a probability of {edge.prediction.fit_probability:.0%}")
    margin = usual.request["memory_margin"]
    assert f"memory margin {100 * margin:.3g}% (80% sure to fit; --memory-margin 0 leaves none)" in usual.defaults


def test_a_faster_plan_of_the_same_degrees_says_what_it_has_otherwise():
    tuned = {"model": "llama3-8b", "gpus": 4, "cluster": "dgx-h100", "task": "finetune", "seq_length": 8192, "top": 0}
    answer = plan(PlanRequest(**tuned))
    usual, edge = answer.strategy, plan(PlanRequest(**tuned, memory_margin=0, reasons=False)).strategy
    assert (usual.dp, usual.tp, usual.pp) == (edge.dp, edge.tp, edge.pp)
    assert usual.micro_batch_size != edge.micro_batch_size
    said = f" faster, the same degrees, micro-batch {edge.micro_batch_size}, no recomputation; it fills"
    assert any(said in one.text for one in answer.choices)


def test_a_gain_that_nobody_would_risk_a_run_for_is_not_shown():
    usual, edge = plan(PlanRequest(**CLOSE)), plan(PlanRequest(**CLOSE, memory_margin=0, reasons=False))
    assert (1.0 - WORTH_SHOWING) * usual.value < edge.value < usual.value
    assert not any(one.subject == "--memory-margin 0" for one in usual.choices)


def test_what_fits_only_at_the_edge_is_planned_there_and_said():
    tight = {"model": "llama3-8b", "gpus": 8, "pins": {"offload": "none", "recompute_num_layers": 1}, "reasons": False}
    least = plan(PlanRequest(**tight, cluster="dgx-h100", objective="memory"))
    needed = max(stage.total for stage in least.memory_bytes)
    found = plan(PlanRequest(**tight, cluster=with_memory("dgx-h100", needed * 1.02)))
    assert found.strategy is not None
    assert "memory margin 2.0% (nothing fits with the usual one)" in found.defaults


def with_memory(name, usable):
    found = cluster(name).with_gpus(8)
    device = found.groups[0].accelerator.model_copy(update={"usable_memory": usable})
    return found.model_copy(update={"groups": (found.groups[0].model_copy(update={"accelerator": device}),)})


def test_a_given_strategy_is_judged_without_a_margin():
    edge = plan(PlanRequest(**CLOSE, memory_margin=0, reasons=False)).strategy
    pins = {axis: value for axis in PIN_AXES if (value := getattr(edge, axis, None))}
    given = predict(PlanRequest(**CLOSE, pins=pins))
    assert given.fits
    assert max(stage.total / stage.limit for stage in given.memory_bytes) > 0.95
