"""What an iteration waits for its sends, by the closed forms and by playing the orders of the passes."""

import numpy as np
import pytest

from costmodels.names import SCHEDULE_NAMES
from costmodels.pipeline.schedules import SCHEDULES
from costmodels.step.traffic import stage_send_seconds, waited_sends
from costmodels.strategy import strategies
from planner.verify.simulate import simulate
from tests.each import each
from tests.scenarios import toy_scenario, toy_stack

BESIDE = {"zb-1p": 0.0, "zb-2p": 0.0, "zb-v": 0.0, "v-half": 0.03, "v-min": 0.08, "interleaved-zb": 0.0}
"""Schedules whose sends stop nobody, and how far their forms may be off the simulation."""
THIRD = (1 / 3, 1 / 3, 1 / 3)


def chunks(name):
    """Chunks a stage has at least."""
    return 1 if SCHEDULES[name].allowed(8, 16, 1) else 2


def seconds(name, *, p, m, v, share, passes=THIRD):
    """An iteration of equal stages of one second a micro-batch whose sends and receives take this share of it."""
    forward, backward, weight = (np.full((p, v), part / v) for part in passes)
    played = {"forward": forward, "backward": backward, "weight": weight}
    return simulate(SCHEDULES[name], p=p, m=m, v=v, **played, p2p=share / (2 * v)).period


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("v", [2, 4])
def test_sends_that_delay_their_receiver_alone_cost_what_the_form_says(name, v):
    v = v if name == "interleaved-zb" else chunks(name)
    for p, m in [(4, 8), (4, 32), (8, 16), (8, 64), (16, 32), (16, 128)]:
        share = 0.04
        idle = float(SCHEDULES[name].drain(p, m, v, *THIRD))
        alone = seconds(name, p=p, m=m, v=v, share=0.0)
        waited = float(SCHEDULES[name].waits(p, m, v))
        late = seconds(name, p=p, m=m, v=v, share=share) - alone
        assert late == pytest.approx(waited * share, rel=BESIDE[name] + 1e-6)
        priced = (m + idle) * (1 + share * float(SCHEDULES[name].waited(p, m, v)))
        assert priced == pytest.approx(alone + waited * share, rel=0.006 if name == "v-min" else 0.002)


@pytest.mark.parametrize("name", BESIDE)
def test_unequal_passes_have_slack_to_wait_for_less_in(name):
    rng, v = np.random.default_rng(5), chunks(name)
    for _ in range(20):
        parts = rng.uniform(0.28, 0.4, 3)
        passes, p = tuple(parts / parts.sum()), 2 * int(rng.integers(2, 7))
        m = p * int(rng.integers(2, 6))
        late = [seconds(name, p=p, m=m, v=v, share=share, passes=passes) for share in (0.0, 0.03)]
        counted = float(SCHEDULES[name].waits(p, m, v)) * 0.03
        assert 0.0 <= late[1] - late[0] <= 1.1 * counted


@each("name", sorted(set(SCHEDULES) - set(BESIDE) - {"none"}))
def test_other_schedules_are_priced_for_sends_that_stop_both_stages(name):
    v = chunks(name)
    assert SCHEDULES[name].waits(8, 32, v) == 32
    assert not SCHEDULES[name].sends_overlap


def test_a_stage_pays_the_share_of_its_hops_that_its_schedule_waits_for():
    names = ("1f1b", "zb-1p", "zb-2p")
    codes = [SCHEDULE_NAMES.index(name) for name in names]
    rows = strategies(pp=4, num_microbatches=16, schedule=codes)
    scenario = toy_scenario(stack=toy_stack(schedules=("none", *names)))
    share = waited_sends(rows)
    assert share == pytest.approx([1.0, 2 * 3 / (16 + 1), 3 / 16])
    hops = stage_send_seconds(rows, scenario)
    assert hops / hops[0] == pytest.approx(share)


def test_one_stage_waits_for_nothing():
    rows = strategies(dp=4, schedule=[SCHEDULE_NAMES.index("zb-1p")])
    assert waited_sends(rows) == 1.0
