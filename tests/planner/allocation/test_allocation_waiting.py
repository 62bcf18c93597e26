"""Jobs that wait take their turn for devices that others hold, and the answer says when that is."""

import re

import pytest

from planner.allocation import curves
from planner.allocation.allocate import allocate
from planner.allocation.options import options_of
from planner.allocation.queue import queue_of
from planner.request.budget import Budget
from tests.planner.allocation.test_allocation import LARGER, queue


def _behind(period):
    """A job that holds all of the better group, and one that could also run on the other."""
    only = {"gpus": [32], "groups": ["new"], "priority": 50.0}
    first = LARGER | only | {"tokens": "20B"}
    return allocate(queue_of(queue(first, LARGER, period=period, objective="weighted-finish")))


def test_a_job_that_waits_where_something_is_left_says_how_much_sooner_that_is():
    found = _behind("1 h")
    waits, use = found.jobs[1], {group.name: group.gpus - group.used for group in found.groups}
    assert (waits.change, use["old"]) == ("waits", 16)
    said = (
        r"waits: if it starts on 32 new (\S+) h from now, when they are free, it is done in (\S+) h,"
        r" on the 16 old that are left in (\S+) h"
    )
    start, later, now = map(float, re.fullmatch(said, waits.because).groups())
    held = found.jobs[0].placed.finish_seconds / 3600
    assert start == pytest.approx(held, rel=0.01)
    assert held < later < now
    (pace,) = (point.tokens_per_second for point in waits.curve if (point.group, point.gpus) == ("old", 16))
    assert now == pytest.approx(10e9 / pace / 3600, rel=0.01)


def test_nobody_waits_for_devices_that_another_job_keeps_longer():
    slow = {"gpus": [32], "groups": ["new"], "priority": 50.0, "tokens": "500B"}
    found = allocate(queue_of(queue(LARGER | slow, LARGER, period="1 h", objective="weighted-finish")))
    assert [(job.change, job.placed.group) for job in found.jobs] == [("starts", "new"), ("starts", "old")]
    assert found.value == pytest.approx(sum(job.priority * job.placed.finish_seconds for job in found.jobs))


def test_a_job_that_finds_nothing_left_says_when_it_is_reckoned_to_start():
    only = {"gpus": [32], "groups": ["new"]}
    found = allocate(queue_of(queue(LARGER | only, LARGER | only, period="1 h", objective="weighted-finish")))
    first = next(job.placed.finish_seconds for job in found.jobs if job.placed)
    waits = next(job.because for job in found.jobs if not job.placed)
    said = re.search(r"expected to start on 32 new (\S+) h from now, done in (\S+) h$", waits)
    assert [float(each) for each in said.groups()] == pytest.approx([first / 3600, 2 * first / 3600], rel=0.03)
    assert found.value == pytest.approx(3 * first)


def test_a_deadline_is_missed_by_a_job_that_waits_for_devices_that_are_kept():
    only = {"gpus": [32], "groups": ["new"]}
    jobs = (LARGER | only | {"tokens": "500B", "priority": 9.0}, LARGER | only | {"deadline": "1 d"})
    found = allocate(queue_of(queue(*jobs, period="1 h")))
    assert [job.change for job in found.jobs] == ["waits", "starts"]


def test_jobs_that_wait_for_the_same_devices_come_one_after_the_other():
    only = {"gpus": [32], "groups": ["new"]}
    found = allocate(queue_of(queue(*[LARGER | only] * 4, period="1 h", objective="weighted-finish")))
    first = next(job.placed.finish_seconds for job in found.jobs if job.placed)
    assert found.value == pytest.approx((1 + 2 + 3 + 4) * first, rel=1e-6)


def test_in_a_long_queue_starts_are_reckoned_at_fewer_moments(monkeypatch):
    asked = queue_of(queue(*[LARGER] * 4, period="1 min", objective="weighted-finish"))
    points = curves.curves(asked, budget=Budget()).points
    ends = {p.seconds for mine in points for p in mine}

    def starts():
        return {option.start for option in options_of(asked, points)[0] if option.after and option.after.group == "new"}

    every = starts()
    monkeypatch.setattr("planner.allocation.options.MOST_WAYS_TO_WAIT", 1)
    some = starts()
    assert len(some) <= 8 < len(every)
    assert {60.0} < some & every
    assert max(some) > max(ends)


def test_in_a_long_queue_half_of_the_moments_are_left_for_those_far_away(monkeypatch):
    only = {"gpus": [16, 32], "groups": ["new"]}
    asked = queue_of(queue(*[LARGER | only] * 40, period="2 d", objective="weighted-finish"))
    points = curves.curves(asked, budget=Budget()).points
    monkeypatch.setattr("planner.allocation.options.MOST_WAYS_TO_WAIT", 1)
    starts = sorted({option.start for option in options_of(asked, points)[0] if option.after})
    soon = 2 * 86400 + 2 * max(point.seconds for point in points[0])
    assert [start > soon for start in starts] == [False] * 4 + [True] * 3


def test_jobs_that_end_within_the_period_are_followed_as_soon_as_they_are_done():
    only = {"gpus": [32], "groups": ["new"]}
    found = allocate(queue_of(queue(*[LARGER | only] * 3, period="30 d", objective="weighted-finish")))
    first = next(job.placed.finish_seconds for job in found.jobs if job.placed)
    assert first < 86400
    assert found.value == pytest.approx(first + 2 * 30 * 86400 + (1 + 2) * first, rel=1e-6)
