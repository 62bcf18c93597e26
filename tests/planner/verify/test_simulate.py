from dataclasses import replace
from itertools import pairwise
from time import process_time

import numpy as np
import pytest

from costmodels.pipeline.schedules import SCHEDULES, BadSchedule, pipeline_seconds
from planner.verify.simulate import Deadlock, simulate
from tests.each import each

PIPELINES = [
    (name, p, m, v)
    for name, schedule in SCHEDULES.items()
    for p in (1, 2, 3, 4, 6, 8)
    for m in (*range(1, 9), 12, 16, 24)
    for v in (1, 2, 3, 4)
    if schedule.allowed(p, m, v)
]
WHOLE_BACKWARD = tuple(name for name, schedule in SCHEDULES.items() if not schedule.splits_backward)
CLOSED = [row for row in PIPELINES if row[0] in WHOLE_BACKWARD]


def closed_form(forward, backward, m):
    seconds = (forward + backward).sum(axis=1)
    v = forward.shape[1]
    return float(pipeline_seconds(micro_batches=m, slowest=seconds.max(), total=seconds.sum(), vpp=v))


@each(("name", "p", "m", "v"), CLOSED)
def test_simulation_equals_the_closed_forms_for_equal_stages(name, p, m, v):
    forward, backward = np.full((p, v), 0.7), np.full((p, v), 1.9)
    schedule = SCHEDULES[name]
    result = simulate(schedule, p=p, m=m, v=v, forward=forward, backward=backward)
    assert result.makespan == pytest.approx(closed_form(forward, backward, m), rel=1e-12)
    assert result.period == result.makespan
    idle = (result.makespan - result.busy) / (2.6 * v)
    np.testing.assert_allclose(idle, (p - 1) / v, atol=1e-9)
    np.testing.assert_array_equal(result.peak_in_flight, schedule.in_flight(p, m, v, np.arange(p)) * v)


@each(("name", "p", "m", "v"), PIPELINES[::7])
def test_passes_of_a_stage_never_overlap_and_inputs_arrive_before_they_are_used(name, p, m, v):
    rng = np.random.default_rng(0)
    forward, backward, weight, p2p = rng.random((p, v)), rng.random((p, v)), rng.random((p, v)), 0.05
    schedule = SCHEDULES[name]
    weights = None if name in WHOLE_BACKWARD else weight
    run = simulate(schedule, p=p, m=m, v=v, forward=forward, backward=backward, weight=weights, p2p=p2p)
    for stage in range(p):
        mine = [event for event in run.events if event.stage == stage]
        assert all(first.end <= second.start for first, second in pairwise(mine))
        assert run.busy[stage] == pytest.approx(sum(event.end - event.start for event in mine))
    paths = schedule.paths(p, v)
    at = {(e.kind, e.micro_batch, paths[e.micro_batch % len(paths)].index((e.stage, e.chunk))): e for e in run.events}
    assert len(at) == len(run.events)
    for (kind, i, place), e in at.items():
        if kind == "W":
            assert e.start >= at["B", i, place].end - 1e-12
            continue
        before = at.get(("F", i, place - 1) if kind == "F" else ("B", i, place + 1))
        if before is not None:
            assert e.start >= before.end + (p2p if before.stage != e.stage else 0.0) - 1e-12
        if kind == "B":
            assert e.start >= at["F", i, place].end - 1e-12


def whole_layers(rng, p, v):
    """Layers of (1, 2) seconds, a third second when recomputed; an embedding and a head."""
    layers = rng.integers(2, 7) * v + rng.integers(-1, 2, size=p)
    recomputed = (layers * rng.random(p) * rng.integers(0, 2)).astype(int)
    chunks, again = (np.stack([np.bincount(np.arange(n) % v, minlength=v) for n in x]) for x in (layers, recomputed))
    forward, backward = 1.0 * chunks, 2.0 * chunks + again
    forward[0, 0] += 0.1
    backward[0, 0] += 0.2
    forward[-1, -1] += 1.0
    backward[-1, -1] += 2.0
    return forward, backward


def test_1f1b_of_whole_layers_lies_between_its_slowest_stage_and_the_closed_form():
    rng = np.random.default_rng(3)
    for _ in range(200):
        p, m = int(rng.integers(2, 9)), int(rng.integers(1, 33))
        forward, backward = whole_layers(rng, p, 1)
        taken = simulate(SCHEDULES["1f1b"], p=p, m=m, v=1, forward=forward, backward=backward).makespan
        assert m * (forward + backward).max() <= taken * (1 + 1e-12)
        assert taken <= closed_form(forward, backward, m) * (1 + 1e-12)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved-1f1b"])
def test_closed_form_bounds_uneven_stages_with_one_ratio_of_forward_to_backward(name):
    rng = np.random.default_rng(4)
    v = 3 if name.startswith("interleaved") else 1
    for _ in range(60):
        p = int(rng.integers(2, 9))
        m = p * int(rng.integers(1, 5))
        seconds = np.repeat(rng.exponential(size=(p, 1)) + 0.05, v, axis=1)
        taken = simulate(SCHEDULES[name], p=p, m=m, v=v, forward=seconds, backward=1.8 * seconds).makespan
        expected = closed_form(seconds, 1.8 * seconds, m)
        assert taken <= expected * (1 + 1e-12)
        if name == "gpipe":
            assert taken == pytest.approx(expected)


def test_interleaving_unequal_chunks_exceeds_the_closed_form_by_no_more_than_documented():
    rng = np.random.default_rng(5)
    excess = []
    for _ in range(150):
        p, v = int(rng.integers(2, 9)), int(rng.integers(2, 5))
        m = p * int(rng.integers(1, 7))
        forward, backward = whole_layers(rng, p, v)
        schedule = SCHEDULES["interleaved-1f1b"]
        taken = simulate(schedule, p=p, m=m, v=v, forward=forward, backward=backward).makespan
        excess.append(taken / closed_form(forward, backward, m) - 1)
    assert abs(np.median(excess)) < 0.03
    assert 0.01 < max(excess) < 0.19


def test_sending_is_paid_once_per_stage_on_the_way_down_and_up_in_gpipe():
    p, m, p2p = 4, 8, 0.25
    forward, backward = np.ones((p, 1)), np.full((p, 1), 2.0)
    taken = simulate(SCHEDULES["gpipe"], p=p, m=m, v=1, forward=forward, backward=backward, p2p=p2p)
    assert taken.makespan == pytest.approx((m + p - 1) * 3.0 + 2 * (p - 1) * p2p)


def test_slower_sending_never_speeds_an_iteration_up():
    forward = np.full((4, 2), 0.5)
    for name, v in (("1f1b", 1), ("interleaved-1f1b", 2)):
        times = [
            simulate(SCHEDULES[name], p=4, m=8, v=v, forward=forward[:, :v], backward=forward[:, :v], p2p=p2p).makespan
            for p2p in (0.0, 0.1, 0.3, 1.0)
        ]
        assert times == sorted(times)
        assert times[0] < times[-1]


def test_a_schedule_that_waits_for_itself_is_called_a_deadlock():
    plain = SCHEDULES["1f1b"]
    crossed = replace(plain, order=lambda p, m, v, stage: plain.order(p, m, v, stage)[:: -1 if stage == 1 else 1])
    with pytest.raises(Deadlock, match=r"stage 1 at B\(micro-batch 3, chunk 0\) for B\(.*\) of stage 2"):
        simulate(crossed, p=3, m=4, v=1, forward=np.ones((3, 1)), backward=np.ones((3, 1)))


def test_times_of_the_wrong_shape_and_pipelines_that_cannot_run_are_refused():
    with pytest.raises(ValueError, match=r"forward seconds must have shape \(stages, chunks\) = \(2, 1\)"):
        simulate(SCHEDULES["1f1b"], p=2, m=2, v=1, forward=np.ones(2), backward=np.ones((2, 1)))
    with pytest.raises(BadSchedule):
        simulate(SCHEDULES["interleaved-1f1b"], p=2, m=3, v=2, forward=np.ones((2, 2)), backward=np.ones((2, 2)))


def test_weight_seconds_belong_to_the_backward_pass_where_it_is_whole():
    forward, backward, weight = np.ones((4, 1)), np.full((4, 1), 1.2), np.full((4, 1), 0.8)
    plain = SCHEDULES["1f1b"]
    split = simulate(plain, p=4, m=8, v=1, forward=forward, backward=backward, weight=weight)
    whole = simulate(plain, p=4, m=8, v=1, forward=forward, backward=backward + weight)
    assert split.makespan == whole.makespan
    assert {event.kind for event in split.events} == {"F", "B"}


def test_without_weight_seconds_the_backward_pass_has_all_and_a_weight_pass_takes_nothing():
    ones = np.ones((4, 1))
    run = simulate(SCHEDULES["zb-1p"], p=4, m=8, v=1, forward=ones, backward=2 * ones)
    assert all(event.start == event.end for event in run.events if event.kind == "W")
    assert run.makespan == pytest.approx(
        simulate(SCHEDULES["1f1b"], p=4, m=8, v=1, forward=ones, backward=2 * ones).makespan
    )


def test_a_piece_takes_its_own_time_on_whichever_stage_a_path_runs_it():
    forward = np.array([[1.0], [2.0], [3.0], [5.0]])
    run = simulate(SCHEDULES["dualpipe"], p=4, m=8, v=1, forward=forward, backward=forward, weight=forward)
    lengths = {(e.micro_batch % 2, e.stage): e.end - e.start for e in run.events}
    assert [lengths[0, stage] for stage in range(4)] == pytest.approx([1.0, 2.0, 3.0, 5.0])
    assert [lengths[1, stage] for stage in range(4)] == pytest.approx([5.0, 3.0, 2.0, 1.0])
    np.testing.assert_allclose(run.busy, 12 * np.array([6.0, 5.0, 5.0, 6.0]))


def test_a_large_pipeline_is_simulated_at_once():
    forward = np.ones((16, 4))
    taken = []
    for _ in range(3):
        start = process_time()
        simulate(SCHEDULES["interleaved-1f1b"], p=16, m=64, v=4, forward=forward, backward=forward)
        taken.append(process_time() - start)
    assert min(taken) < 0.2
