"""Offloading is searched where it is asked for; what it would save is said where memory is short."""

import numpy as np
import pytest

from planner import PlanRequest, plan
from planner.api.answers import ONE_GROUP
from planner.request.budget import CORE, Budget
from planner.search.objective import Objective

FREE = {"memory_margin": 0, "framework": "any", "top": 0}
SHORT = {"model": "moonlight-16b-a3b", "gpus": 4, "cluster": "dgx-a100-80gb", "global_batch_size": 32, **FREE}


@pytest.mark.parametrize(
    "asked", [SHORT, {**SHORT, "objective": "goodput"}, {"model": "llama3-70b", "gpus": 64, "stack": "fsdp", **FREE}]
)
def test_what_offloading_would_save_is_what_asking_for_it_saves(asked):
    line = next(line for line in plan(PlanRequest(**asked)).what_helps if line.subject.startswith("offload "))
    wider = plan(PlanRequest(**asked, reasons=False, pins={"offload": "any"}, ties="fastest"))
    assert line.subject == f"offload {wider.strategy.offload}"
    assert line.proved
    assert line.iteration_seconds == pytest.approx(wider.value)


def test_offloading_is_no_help_where_memory_is_not_short_or_the_stack_has_none():
    for there in ({"model": "llama3-8b", "gpus": 64}, {**SHORT, "stack": "megatron-lm-2022"}):
        lines = plan(PlanRequest(**there)).what_helps
        assert lines
        assert not any(line.subject.startswith("offload") for line in lines)


def test_offloading_that_could_not_be_looked_at_is_not_known(monkeypatch):
    monkeypatch.setattr("planner.api.answers.ONE_GROUP", ONE_GROUP._replace(helps=0.0))
    lines = {line.subject: line for line in plan(PlanRequest(**SHORT)).what_helps}
    assert not lines["offload any"].proved
    assert lines["offload any"].text.startswith("not known")


def test_what_offloading_saves_is_told_as_far_as_it_was_searched(monkeypatch):
    search = Objective.search

    def briefly(aim, space, *, budget, **known):
        offloads = bool(np.any(space.cores.offload > 0))
        some = Budget(effort=CORE * len(space.cores) + 1) if offloads else budget  # bounds, and a first chunk
        return search(aim, space, budget=some, **known)

    proved = next(one for one in plan(PlanRequest(**SHORT)).what_helps if one.subject.startswith("offload "))
    monkeypatch.setattr(Objective, "search", briefly)
    monkeypatch.setattr("planner.search.best_first.CHUNK", 1024)
    line = next(one for one in plan(PlanRequest(**SHORT)).what_helps if one.subject == "offload any")
    assert not line.proved
    assert line.text.startswith("at least -")
    assert line.iteration_seconds >= proved.iteration_seconds
