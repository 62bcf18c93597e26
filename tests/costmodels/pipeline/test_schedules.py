from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.names import SCHEDULE_NAMES
from costmodels.pipeline.schedules import SCHEDULES, BadSchedule, Slot, pipeline_seconds
from tests.each import each

WHOLE_BACKWARD = tuple(name for name, schedule in SCHEDULES.items() if not schedule.splits_backward)
PIPELINES = [
    (name, p, m, v)
    for name, schedule in SCHEDULES.items()
    for p in range(1, 7)
    for m in range(1, 13)
    for v in range(1, 5)
    if schedule.allowed(p, m, v)
]


def test_every_schedule_of_a_strategy_is_in_the_table():
    assert tuple(SCHEDULES)[: len(SCHEDULE_NAMES)] == SCHEDULE_NAMES
    assert all(name == schedule.name and schedule.source for name, schedule in SCHEDULES.items())


@each(("name", "p", "m", "v"), PIPELINES)
def test_every_stage_runs_every_pass_once_and_forward_before_backward(name, p, m, v):
    kinds = "FB" if name in WHOLE_BACKWARD else "FBW"
    everything = {(kind, i, chunk) for kind in kinds for i in range(m) for chunk in range(v)}
    for order in SCHEDULES[name].passes(p=p, m=m, v=v):
        assert len(order) == len(everything)
        assert set(order) == everything
        place = {slot: k for k, slot in enumerate(order)}
        for before, after in pairwise(kinds):
            assert all(place[before, i, chunk] < place[after, i, chunk] for i in range(m) for chunk in range(v))


def spelled(order: list[Slot]) -> str:
    return " ".join(f"{kind}{micro_batch}.{chunk}" for kind, micro_batch, chunk in order)


def test_one_forward_one_backward_as_in_the_figure_of_megatron():
    first, last = (SCHEDULES["1f1b"].order(3, 4, 1, stage) for stage in (0, 2))
    assert spelled(first) == "F0.0 F1.0 F2.0 B0.0 F3.0 B1.0 B2.0 B3.0"
    assert spelled(last) == "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0 F3.0 B3.0"


def test_interleaving_goes_through_all_chunks_with_one_group_of_p_micro_batches():
    last = SCHEDULES["interleaved-1f1b"].order(2, 4, 2, 1)
    assert spelled(last) == ("F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0")


def test_interleaved_warm_up_is_megatrons():
    for stage in range(4):
        order = SCHEDULES["interleaved-1f1b"].order(4, 16, 3, stage)
        first_backward = next(k for k, slot in enumerate(order) if slot.kind == "B")
        assert first_backward == (4 - stage - 1) * 2 + (3 - 1) * 4 + 1


def test_gpipe_keeps_every_micro_batch_and_1f1b_at_most_one_per_stage_behind():
    assert SCHEDULES["gpipe"].in_flight(4, 64, 1, np.arange(4)).tolist() == [64, 64, 64, 64]
    assert SCHEDULES["1f1b"].in_flight(4, 64, 1, np.arange(4)).tolist() == [4, 3, 2, 1]
    assert SCHEDULES["1f1b"].in_flight(4, 2, 1, np.arange(4)).tolist() == [2, 2, 2, 1]


def test_interleaving_holds_more_on_the_first_stage_by_the_factor_of_the_paper():
    p, v = 8, np.array([2, 4, 6])
    more = SCHEDULES["interleaved-1f1b"].in_flight(p, 64, v, 0) / SCHEDULES["1f1b"].in_flight(p, 64, 1, 0)
    # Korthikanti et al. (2022), section 4.2.3: 1 + (p - 1) / (p v) for the interleaved schedule.
    np.testing.assert_allclose(more, 1 + (p - 1) / (p * v))


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_closed_forms_of_many_rows_are_those_of_each_row(data):
    schedule = SCHEDULES[data.draw(st.sampled_from(sorted(SCHEDULES)))]
    rows = data.draw(st.lists(st.tuples(*[st.integers(1, 12)] * 3), min_size=1, max_size=8))
    p, m, v = np.array(rows).T
    for whole, single in (
        (schedule.allowed(p, m, v), [schedule.allowed(*row) for row in rows]),
        (schedule.in_flight(p, m, v, 0), [schedule.in_flight(*row, 0) for row in rows]),
        (schedule.drain(p, m, v, 1, 1.2, 0.8), [schedule.drain(*row, 1, 1.2, 0.8) for row in rows]),
        (schedule.drain(p, m, v, 3, 2, 1, barrier=True), [schedule.drain(*row, 3, 2, 1, barrier=True) for row in rows]),
    ):
        assert whole.shape == (len(rows),)
        np.testing.assert_allclose(whole, np.array([x.item() for x in single]), rtol=1e-12, atol=1e-12)


def test_what_a_schedule_cannot_run_is_refused_with_the_reason():
    with pytest.raises(BadSchedule, match="interleaved-1f1b cannot run 4 stages, 6 micro-batches and 2 chunks"):
        SCHEDULES["interleaved-1f1b"].passes(p=4, m=6, v=2)
    with pytest.raises(BadSchedule, match="one stage and one chunk"):
        SCHEDULES["none"].passes(p=2, m=6, v=1)
    assert not SCHEDULES["1f1b"].allowed(4, 8, 2)
    assert not SCHEDULES["interleaved-1f1b"].allowed(4, 8, 1)


def test_the_bubble_vanishes_with_many_micro_batches_and_shrinks_with_chunks():
    m, v = np.array([8, 64, 4096]), np.array([[1], [2], [4]])
    share = pipeline_seconds(micro_batches=m, slowest=3.0, total=24.0, vpp=v) / (m * 3.0) - 1
    np.testing.assert_allclose(share, 7 / v / m)
    assert np.all(np.diff(share, axis=0) < 0)
    assert np.all(share[:, -1] < 2e-3)


def test_pipeline_seconds_of_uneven_stages_by_hand():
    # 10 passes of the slowest stage (5 s), and once the 2 + 3 s of the others.
    assert pipeline_seconds(micro_batches=10, slowest=5.0, total=10.0, vpp=1) == pytest.approx(55.0)


def test_the_older_schedules_drain_once_whatever_the_micro_batches_and_the_end_of_the_iteration():
    p, v, m = 8, np.array([1, 2, 4]), np.array([[8], [64]])
    schedule = SCHEDULES["interleaved-1f1b"]
    idle = schedule.drain(p, m, v, 1.0, 1.2, 0.8)
    np.testing.assert_allclose(idle, np.broadcast_to(7 / v * 3.0, (2, 3)))
    np.testing.assert_array_equal(idle, schedule.drain(p, m, v, 1.0, 1.2, 0.8, barrier=True))
