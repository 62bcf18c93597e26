"""What an allocation does that nobody asked for is said: offloading, prices, the time that reasons have."""

import pytest

from planner import PlanRequest, plan
from planner.allocation.allocate import allocate
from planner.allocation.queue import queue_of
from tests.planner.allocation.test_allocation import LARGER, MIXED, SMALL, queue

OFFLOADED = {"model": "llama3-70b", "tokens": "1B"}


def test_a_job_that_fits_only_with_offloading_gets_what_plan_takes_and_the_answer_says_so():
    found = allocate(queue_of(queue(OFFLOADED, cluster="dgx-h100", gpus=8)))
    asked = PlanRequest(model="llama3-70b", gpus=8, global_batch_size=512, reasons=False)
    assert found.jobs[0].placed.strategy == plan(asked).strategy
    what = f"offload {found.jobs[0].placed.strategy.offload}"
    assert what != "offload none"
    assert f"{what} where nothing fits without, as of j0" in found.assumed


def test_a_job_that_asks_for_no_offloading_gets_none():
    found = allocate(queue_of(queue(OFFLOADED | {"pins": {"offload": "none"}}, cluster="dgx-h100", gpus=8)))
    assert found.jobs[0].placed is None
    assert not any("offload" in line for line in found.assumed)


@pytest.mark.parametrize(
    ("own", "said"), [({}, ["price 2.95 $/h per h100-sxm (the catalogue's)"]), ({"price": "3 $/h"}, [])]
)
def test_a_price_that_nobody_said_is_said(own, said):
    new = MIXED["groups"][1] | own
    found = allocate(queue_of(queue(SMALL | {"gpus": [8]}, cluster=MIXED | {"groups": [new]})))
    assert [line for line in found.assumed if "price" in line] == said
    if not own:
        assert found.jobs[0].placed.cost_dollars == pytest.approx(
            2.95 / 3600 * 8 * found.jobs[0].placed.finish_seconds, rel=1e-3
        )


def test_a_job_that_fits_nowhere_waits_and_says_so():
    found = allocate(
        queue_of(
            queue({"model": "llama3.1-405b", "tokens": "1B", "groups": ["new"], "pins": {"tp": 8, "cp": 1}}, SMALL)
        )
    )
    assert found.jobs[0].placed is None
    assert found.jobs[0].because.startswith(
        "no strategy fits on any placement that it allows: on 32 new the nearest to fitting, TP "
    )
    assert "GiB per GPU" in found.jobs[0].because
    assert found.jobs[1].placed is not None


def test_a_time_limit_that_is_asked_for_is_what_the_reasons_of_jobs_have(monkeypatch):
    jobs = (SMALL | {"gpus": [8, 16]}, LARGER | {"gpus": [8, 32]})
    usual = [job.with_more for job in allocate(queue_of(queue(*jobs))).jobs]
    monkeypatch.setattr("planner.allocation.explain.EXPLAINED", 0.0)
    assert [job.with_more for job in allocate(queue_of(queue(*jobs))).jobs] == [None, None]
    assert any(usual)
    assert [job.with_more for job in allocate(queue_of(queue(*jobs, time_limit="60 s"))).jobs] == usual


def test_equal_questions_are_searched_once():
    found = allocate(queue_of(queue(*[SMALL | {"tokens": f"{n}B"} for n in range(1, 6)])))
    assert found.searches == len(found.jobs[0].curve) == 5
    assert sum(group.used for group in found.groups) == 48


def test_two_processes_find_what_one_finds():
    asked = queue_of(queue(SMALL | {"max_gpus": 16}, LARGER | {"max_gpus": 16}))
    one, two = allocate(asked), allocate(asked, workers=2)
    assert [job.placed for job in one.jobs] == [job.placed for job in two.jobs]


@pytest.mark.parametrize(
    ("job", "objective", "said"),
    [({}, "throughput", False), ({}, "weighted-finish", True), ({"deadline": "30 d"}, "throughput", True)],
)
def test_when_those_who_wait_start_is_said_as_the_objective_and_deadlines_reckon(job, objective, said):
    found = allocate(queue_of(queue(SMALL | {"gpus": [8], "groups": ["new"]} | job, objective=objective)))
    assert ("or when jobs have ended" in found.assumed[-1]) == said


def test_what_a_move_takes_is_said_where_one_job_of_several_runs():
    running = SMALL | {"gpus": [8], "running": {"group": "old", "gpus": 8}}
    found = allocate(queue_of(queue(running, SMALL | {"gpus": [8]})))
    assert any(line.startswith("a move takes a checkpoint") for line in found.assumed)
