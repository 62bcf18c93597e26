from dataclasses import replace

import numpy as np
import pytest

from costmodels.pipeline.schedules import SCHEDULES, BadSchedule
from planner.verify.simulate import simulate
from tests.each import each

NAMES = ("zb-1p", "zb-2p", "zb-v", "v-half", "v-min", "dualpipe", "dualpipe-v", "interleaved-zb")
PIPELINES = [
    (name, p, m, v)
    for name in NAMES
    for p in (2, 3, 4, 5, 6, 7, 8, 12)
    for m in sorted({p, p + 1, 2 * p - 1, 2 * p, 3 * p + 2, 5 * p})
    for v in (1, 2)
    if SCHEDULES[name].allowed(p, m, v)
]
# Largest difference of a closed form, as a share of the iteration; docstrings of pipeline.bubbles say so.
DOCUMENTED = dict.fromkeys(NAMES, 1e-12) | {"v-half": 0.002, "v-min": 0.006}
RATIOS = ((1.0, 1.0, 1.0), (1.0, 1.2, 0.8), (1.0, 1.1, 0.7), (1.0, 1.3, 1.0), (1.0, 0.95, 1.05))


def played(name, *, p, m, v, f, b, w, p2p=0.0):
    one = np.ones((p, v)) / v
    return simulate(SCHEDULES[name], p=p, m=m, v=v, forward=f * one, backward=b * one, weight=w * one, p2p=p2p)


def chunks(name):
    return 1 if SCHEDULES[name].allowed(8, 16, 1) else 2


@each(("name", "p", "m", "v"), PIPELINES)
def test_any_times_complete_and_equal_stages_take_what_the_closed_form_says(name, p, m, v):
    schedule, rng = SCHEDULES[name], np.random.default_rng(p * m)
    uneven = rng.random((3, p, v))
    simulate(schedule, p=p, m=m, v=v, forward=uneven[0], backward=uneven[1], weight=uneven[2], p2p=0.3)
    for f, b, w in (*RATIOS, (1.0, rng.uniform(0.8, 1.4), rng.uniform(0.6, 1.1))):
        run, work = played(name, p=p, m=m, v=v, f=f, b=b, w=w), m * (f + b + w)
        for barrier, taken in ((False, run.period), (True, run.makespan)):
            assert abs(work + schedule.drain(p, m, v, f, b, w, barrier=barrier) - taken) <= DOCUMENTED[name] * taken


@each(("name", "p", "m", "v"), PIPELINES)
def test_no_stage_holds_more_than_the_closed_form_and_the_fullest_holds_it(name, p, m, v):
    run = played(name, p=p, m=m, v=v, f=1.0, b=1.0, w=1.0)
    held = SCHEDULES[name].in_flight(p, m, v, np.arange(p)) * v
    assert run.peak_in_flight.max() == held.max()
    # V-Min of 2, 5, 8, ... stages leaves room of two chunks on some, V-Half of few micro-batches of one.
    slack = {"v-min": 2.0 * (p % 3 == 2), "v-half": 1.0 * (m == p)}.get(name, 0.0)
    assert np.all((held - slack <= run.peak_in_flight) & (run.peak_in_flight <= held))


@each("name", NAMES)
def test_iterations_follow_each_other_after_one_period(name):
    p, m, v = 6, 18, chunks(name)
    schedule = SCHEDULES[name]
    repeated = [
        [slot._replace(micro_batch=slot.micro_batch + m * k) for k in range(6) for slot in order]
        for order in schedule.passes(p=p, m=m, v=v)
    ]

    again = {
        k: replace(schedule, order=lambda _p, _m, _v, stage, k=k: repeated[stage][: len(repeated[stage]) * k // 6])
        for k in (5, 6)
    }
    times = {"forward": np.full((p, v), 1.0), "backward": np.full((p, v), 1.2), "weight": np.full((p, v), 0.8)}
    five, six = (simulate(again[k], p=p, m=m, v=v, **times).makespan for k in (5, 6))
    assert six - five == pytest.approx(simulate(schedule, p=p, m=m, v=v, **times).period)


@pytest.mark.parametrize("ratio", RATIOS)
def test_more_memory_is_never_slower_among_the_straight_schedules(ratio):
    p = np.arange(2, 33)
    straight = [SCHEDULES[name].drain(p, 4 * p, 1, *ratio) for name in ("zb-2p", "zb-1p", "1f1b")]
    held = [SCHEDULES[name].in_flight(p, 4 * p, 1, 0) for name in ("zb-2p", "zb-1p", "1f1b")]
    assert np.all(straight[0] < straight[1])
    assert np.all(straight[1] < straight[2])
    assert np.all(held[0] > held[1])
    assert np.all(held[1] == held[2])


def test_equal_passes_leave_the_bubbles_of_the_papers_tables():
    p, m = np.arange(4, 33), 128
    idle = {name: SCHEDULES[name].drain(p, m, chunks(name), 1.0, 1.0, 1.0) for name in NAMES}
    np.testing.assert_allclose(idle["zb-1p"], (p - 1) * (1 + 1 - 1))
    np.testing.assert_allclose(idle["zb-2p"], 0.0)
    np.testing.assert_allclose(idle["zb-v"], 0.0, atol=1e-12)
    whole = 3.0 * (p - 1)
    assert np.all(np.abs(idle["v-half"] / whole - 1 / 2) < 1 / p)
    assert np.all(np.abs(idle["v-min"] / whole - 2 / 3) < 1 / p)
    np.testing.assert_allclose(idle["dualpipe"], p / 2 - 1)


def test_a_barrier_takes_back_what_the_second_warm_up_gained():
    # Every stage starts when the first pass reaches it; waiting for the last is the bubble of ZB-H1 again.
    first, second = (SCHEDULES[name].drain(8, 32, 1, 1.0, 1.0, 1.0, barrier=True) for name in ("zb-1p", "zb-2p"))
    assert first == second == 7.0
    for name in NAMES:
        free, together = (SCHEDULES[name].drain(8, 32, chunks(name), 1, 1.2, 0.8, barrier=end) for end in (False, True))
        assert together >= free


def test_v_half_holds_half_and_v_min_a_third_of_the_first_stage_of_1f1b():
    p = np.arange(6, 65)
    first = SCHEDULES["1f1b"].in_flight(p, 4 * p, 1, 0)
    np.testing.assert_array_equal(SCHEDULES["zb-v"].in_flight(p, 4 * p, 2, 0), first)
    half, third = (SCHEDULES[name].in_flight(p, 4 * p, 2, 0) for name in ("v-half", "v-min"))
    assert np.all((first / 2 <= half) & (half <= first / 2 + 1))
    assert np.all((first / 3 <= third) & (third <= first / 3 + 4 / 3))


def test_v_min_pays_for_unequal_passes_with_every_micro_batch_and_v_half_does_not():
    few, many = 32, 320
    lost = {
        name: SCHEDULES[name].drain(8, many, 2, 1.0, 1.2, 0.8) - SCHEDULES[name].drain(8, few, 2, 1.0, 1.2, 0.8)
        for name in ("v-half", "v-min")
    }
    assert lost["v-half"] == pytest.approx(0.0, abs=1e-9)
    assert lost["v-min"] == pytest.approx((many - few) * (3 * 1.2 - 3.0))


def test_dualpipe_holds_the_parameters_twice_and_its_half_once():
    assert {name: s.parameters_held for name, s in SCHEDULES.items() if s.parameters_held != 1.0} == {"dualpipe": 2.0}


def test_dualpipe_cut_in_half_is_dualpipe_of_twice_the_ranks():
    halves = played("dualpipe-v", p=4, m=12, v=2, f=2.0, b=2.4, w=1.6)
    whole = played("dualpipe", p=8, m=24, v=1, f=1.0, b=1.2, w=0.8)
    assert halves.period == pytest.approx(whole.period)
    np.testing.assert_array_equal(halves.peak_in_flight, whole.peak_in_flight[:4])


def spelled(name, p, m, v, stage):
    return " ".join(f"{kind}{i}.{chunk}" for kind, i, chunk in SCHEDULES[name].order(p, m, v, stage))


def test_orders_by_hand():
    assert spelled("zb-1p", 2, 3, 1, 0) == "F0.0 F1.0 B0.0 W0.0 F2.0 B1.0 W1.0 B2.0 W2.0"
    assert spelled("zb-1p", 2, 3, 1, 1) == "F0.0 B0.0 F1.0 B1.0 W0.0 F2.0 B2.0 W1.0 W2.0"
    assert spelled("zb-v", 2, 3, 2, 0).startswith("F0.0 F1.0 F2.0 F0.1 B0.1 W0.1")


def test_orders_are_the_same_whenever_they_are_made():
    for name in NAMES:
        v = chunks(name)
        first = SCHEDULES[name].passes(p=4, m=8, v=v)
        first[0].clear()
        assert SCHEDULES[name].passes(p=4, m=8, v=v)[0]


@each(
    ("name", "p", "m", "v", "needs"),
    [
        ("zb-1p", 4, 3, 1, "at least p micro-batches"),
        ("zb-2p", 4, 6, 1, "at least 2 p - 1"),
        ("zb-v", 4, 8, 1, "two chunks"),
        ("v-half", 2, 8, 2, "three stages"),
        ("v-min", 3, 8, 2, "four stages"),
        ("dualpipe", 3, 8, 1, "even number of stages"),
        ("dualpipe", 4, 9, 1, "even number of at least 2 p"),
        ("dualpipe-v", 4, 7, 2, "at least 2 p"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(name, p, m, v, needs):
    with pytest.raises(BadSchedule, match=needs):
        SCHEDULES[name].passes(p=p, m=m, v=v)


def test_uneven_stages_take_about_what_the_slowest_stage_says():
    rng = np.random.default_rng(3)
    for name in ("zb-1p", "zb-2p", "zb-v", "v-half"):
        schedule, v = SCHEDULES[name], chunks(name)
        for _ in range(15):
            p = int(rng.integers(3, 9))
            m = int(rng.integers(2 * p, 6 * p))
            layers = np.repeat(rng.integers(3, 6, size=(p, 1)), v, axis=1).astype(float)
            layers[0, 0] += 0.2
            run = simulate(schedule, p=p, m=m, v=v, forward=layers, backward=1.2 * layers, weight=0.8 * layers)
            most, total = layers.sum(axis=1).max(), 3.0 * layers.sum()
            others = (total - 3.0 * most) / ((p - 1) * 3.0 * most)
            priced = m * 3.0 * most + schedule.drain(p, m, v, most, 1.2 * most, 0.8 * most) * others
            assert run.period == pytest.approx(priced, rel=0.07)


def eager(p, m, f, b, w):
    """The first stage's span where all take what is at hand: a gradient, a forward pass, else a weights' gradient."""
    ready = {("F", 0, i): 0.0 for i in range(m)}
    free, first_stage = [0.0] * p, []
    for _ in range(3 * p * m):
        starts = [(max(free[stage], at), "BFW".index(kind), i, stage, kind) for (kind, stage, i), at in ready.items()]
        start, _, i, stage, kind = min(starts)
        del ready[kind, stage, i]
        free[stage] = end = start + {"F": f, "B": b, "W": w}[kind]
        if kind == "F":
            ready[("F", stage + 1, i) if stage < p - 1 else ("B", stage, i)] = end
        elif kind == "B":
            ready["W", stage, i] = end
            if stage:
                ready["B", stage - 1, i] = end
        first_stage += [end] * (stage == 0)
    return max(first_stage)


@pytest.mark.parametrize("name", ["zb-1p", "zb-2p"])
@pytest.mark.parametrize(("p", "m"), [(8, 1), (8, 2), (8, 4), (16, 4), (16, 8), (4, 3), (12, 11)])
def test_too_few_micro_batches_wait_for_gradients(name, p, m):
    """An eager order is not always the best one: the form may be a little below it, never above."""
    for f, b, w in ((1.0, 1.0, 1.0), (1.0, 1.2, 0.8), (1.0, 0.9, 1.1), (1.0, 1.3, 0.9)):
        idle = SCHEDULES[name].drain(p, m, 1, f, b, w)
        span, tried = m * (f + b + w) + idle, eager(p, m, f, b, w)
        assert 0.97 * tried <= span <= tried * (1 + 1e-9)
