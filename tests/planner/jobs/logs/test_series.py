"""The time of an iteration is the median after warm-up; what is left out is reported."""

from __future__ import annotations

import pytest

from planner.jobs.logs.series import Reading, timing


def readings(*seconds: float, each: int = 1) -> list[Reading]:
    return [Reading(1 + place * each, (place + 1) * each, value) for place, value in enumerate(seconds)]


def test_the_first_iterations_are_no_measurement():
    found = timing(readings(30.0, 4.0, 2.0, 2.02, 1.98, 2.0, 2.0, 2.0))
    assert found is not None
    assert found.seconds == 2.0
    assert (found.first, found.last, found.warm_up, found.count) == (3, 8, 2, 6)


def test_the_very_first_iteration_never_counts_however_fast_it_is():
    found = timing(readings(2.0, 2.0, 2.0, 2.0))
    assert found is not None
    assert found.first == 2


def test_times_of_asynchronous_dispatch_are_too_few_and_then_too_many():
    found = timing(readings(0.3, 0.0, 11.0, 5.7, 5.6, 5.7, 5.7, 5.7, 5.8, 5.7))
    assert found is not None
    assert found.seconds == 5.7
    assert found.warm_up == 3


def test_slow_iterations_are_told_and_do_not_move_the_median():
    found = timing(readings(9.0, *[1.0] * 20, 8.0, *[1.0] * 20))
    assert found is not None
    assert (found.seconds, found.outliers, found.slowest) == (1.0, 1, 8.0)
    assert found.settled


def test_what_holds_an_evaluation_is_left_out():
    some = readings(1.0, 1.0, 1.0, 7.0, 1.0, 1.0)
    some[3] = Reading(4, 4, 7.0, aside="an evaluation")
    found = timing(some)
    assert found is not None
    assert (found.count, found.aside, found.slowest) == (4, (("an evaluation", 1),), 1.0)


def test_a_ramp_of_the_batch_is_not_averaged():
    ramp = [Reading(place, place, 1.0, batch=32) for place in range(1, 6)]
    full = [Reading(place, place, 4.0, batch=128) for place in range(6, 30)]
    found = timing([*ramp, *full])
    assert found is not None
    assert (found.seconds, found.batch, found.batches) == (4.0, 128, (32, 128))


def test_a_running_mean_forgets_the_warm_up_late():
    found = timing(readings(9.0, 9.0, 7.0, 5.0, 3.0, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9), of_last=5)
    assert found is not None
    assert found.first == 6


@pytest.mark.parametrize("seconds", [(2.0,), (2.0, 2.0), (2.0, 2.0, 2.0)])
def test_a_few_iterations_are_no_measurement(seconds):
    assert timing(readings(*seconds)) is None


def test_one_mean_over_many_iterations_is_a_measurement():
    found = timing(readings(3.0, 1.5, each=10))
    assert found is not None
    assert (found.seconds, found.count) == (1.5, 10)


def test_a_run_that_never_settles_is_told():
    found = timing(readings(*(1.0 + 0.2 * place for place in range(30))))
    assert found is not None
    assert not found.settled
