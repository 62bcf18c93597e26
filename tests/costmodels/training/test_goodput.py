"""Failures and checkpoints: against a simulated job, the published formulas, and published runs."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from costmodels.model.catalogue import model
from costmodels.scenario import Scenario
from costmodels.stability import SPARE_RISK, Stability
from costmodels.stack.stack import stack
from costmodels.strategy import strategies
from costmodels.training.goodput import (
    best_interval,
    checkpoint_bytes,
    effective_share,
    expected_wall,
    failure_rate,
    move_seconds,
    stall_seconds,
    startup_seconds,
    upkeep,
    wall_stretch,
)
from hardware.catalogue import cluster

DAY = 86400.0
COPIES = {"tp": 8, "cp": 1, "pp": 8, "vpp": 6, "ep": 1, "etp": 1, "micro_batch_size": 1, "schedule": 3}


def a_row(dp, **changes):
    return strategies(**(COPIES | {"dp": dp, "sharding_degree": dp, "zero_stage": 1, "num_microbatches": 32} | changes))


def a_scenario(name="175b", machines="megascale", gpus=12288):
    group = cluster(machines).with_gpus(gpus).groups[0]
    return Scenario(model(name), group, stack("megatron-core"), gpus, 2048, 6144, "bf16")


def played(work, stall, downtime, rate, stretches, seed):
    """Mean wall seconds of a stretch of work, interruption by interruption."""
    random, total = np.random.default_rng(seed), 0.0
    for _ in range(stretches):
        while (strike := random.exponential(1 / rate)) < work + stall:
            total += strike
            while (again := random.exponential(1 / rate)) < downtime:
                total += again
            total += downtime
        total += work + stall
    return total / stretches


@pytest.mark.parametrize(
    ("work", "stall", "downtime", "per_day"), [(1800, 60, 600, 24), (600, 5, 1200, 48), (7200, 300, 60, 6)]
)
def test_the_expected_wall_time_is_that_of_a_job_played_interruption_by_interruption(work, stall, downtime, per_day):
    rate = per_day / DAY
    formula = float(expected_wall(np.array([work]), stall=np.array([stall]), downtime=downtime, rate=rate)[0])
    assert played(work, stall, downtime, rate, 40_000, seed=work) == pytest.approx(formula, rel=0.01)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.5, 600), st.floats(1e-6, 1e-3))
def test_the_best_interval_loses_least(stall, rate):
    best = float(best_interval(np.array([stall]), rate)[0])

    def lost(work):
        return float(expected_wall(np.array([work]), stall=np.array([stall]), downtime=600.0, rate=rate)[0]) / work

    found = minimize_scalar(lambda log: lost(math.exp(log)), bounds=(math.log(best / 50), math.log(best * 50)))
    assert lost(best) <= found.fun * (1 + 1e-9)


def test_the_best_interval_is_daly_s_to_a_thousandth():
    """[Daly06, equation 37], which starts from Young's sqrt(2 delta M)."""
    stall, rate = 120.0, 1 / 7200
    x = stall * rate / 2
    daly = math.sqrt(2 * stall / rate) * (1 + math.sqrt(x) / 3 + x / 9) - stall
    assert best_interval(np.array([stall]), rate) == pytest.approx(daly, rel=1e-3)


def test_a_checkpoint_that_costs_nothing_is_taken_all_the_time():
    assert best_interval(np.zeros(1), 1e-4)[0] < 0.01


def test_a_hundred_failures_of_25_minutes_leave_93_8_percent_of_four_weeks():
    assert effective_share(failures=100, lost=25 * 60, wall=28 * DAY) == pytest.approx(0.938, abs=5e-4)
    assert effective_share(failures=100, lost=25 * 60, wall=17.4 * DAY) == pytest.approx(0.9, abs=5e-4)


def test_megascale_trains_more_than_nine_tenths_of_the_time():
    """More than 100 restarts in several weeks on over 10,000 GPUs; three weeks is the worst reading."""
    rate = 100 / (21 * DAY * 12288)
    scenario = a_scenario()
    found = upkeep(a_row(192), scenario, Stability(failure=f"{rate} /s"))
    assert 0.9 < found.effective < 0.97
    assert found.downtime < 25 * 60, "detection within 10 minutes, and caught up within 15"


def test_llama_3_trains_more_than_nine_tenths_of_its_54_days():
    """419 unforeseen of 466 interruptions in 54 days on 16,384 GPUs, with a storage of 2 TB/s."""
    scenario = a_scenario("llama3.1-405b", "meta-24k", 16384)
    measured = Stability(failure=f"{419 / (54 * DAY * 16384)} /s", storage="2 TB/s")
    row = a_row(128, pp=16, vpp=1)
    found = upkeep(row, scenario, measured)
    assert found.mean_time_between_failures == pytest.approx(54 * DAY / 419)
    assert 0.9 < found.effective < 0.96
    assert upkeep(row, scenario, Stability(storage="2 TB/s")).effective == pytest.approx(found.effective, abs=0.005)


@pytest.mark.parametrize(
    ("kind", "gpus", "seconds"), [("tcpstore", 2048, 1047), ("redis", 2048, 361), ("ordered", 2048, 5)]
)
def test_process_groups_form_as_fast_as_megascale_measured(kind, gpus, seconds):
    assert startup_seconds(gpus, kind) == seconds


def test_process_groups_formed_in_order_take_half_a_minute_on_ten_thousand_gpus():
    assert startup_seconds(12288, "ordered") <= 30.0
    assert startup_seconds(12288, "tcpstore") > 3600.0


def test_a_move_writes_a_checkpoint_and_reads_it_back_around_a_restart():
    scenario, stability = a_scenario(), Stability(storage="100 GB/s", restart="5 min", startup="tcpstore")
    expected = 2 * checkpoint_bytes(scenario) / 100e9 + 300.0 + startup_seconds(12288, "tcpstore")
    assert move_seconds(scenario, stability) == pytest.approx(expected)


def test_a_checkpoint_of_bloom_holds_13_to_14_bytes_per_parameter():
    scenario = a_scenario("bloom-176b", "jean-zay-a100", 384)
    assert checkpoint_bytes(scenario) == pytest.approx(2.3e12, rel=0.08)


def test_where_the_wall_time_goes_adds_up():
    bad = Stability(spare_nodes=4, straggler_nodes=0.005, checkpoint="sync", repair="12 h")
    for stability in (Stability(), bad):
        found = upkeep(a_row(192), a_scenario(), stability)
        shares = (found.effective, found.checkpoints, found.failures, found.repairs, found.stragglers)
        assert sum(shares) == pytest.approx(1.0)
        assert min(shares) >= 0.0


def test_with_few_spares_the_job_waits_for_repairs():
    scenario, row = a_scenario(), a_row(192)
    shares = [upkeep(row, scenario, Stability(spare_nodes=n)).repairs for n in (0, 4, 8, 16, 32)]
    assert shares == sorted(shares, reverse=True)
    mean = failure_rate(scenario.group, 12288, Stability()) * 0.78 * DAY
    poisson = [math.exp(-mean) * mean**n / math.factorial(n) for n in range(9)]
    assert shares[2] == pytest.approx(1 - sum(poisson))
    assert upkeep(row, scenario, Stability()).spare_nodes == next(
        n for n in range(60) if upkeep(row, scenario, Stability(spare_nodes=n)).repairs <= SPARE_RISK
    )


def test_without_failures_nothing_is_checkpointed_and_nothing_lost():
    found = upkeep(a_row(192), a_scenario(), Stability(failure="0 /s"))
    assert (found.effective, found.interval, found.spare_nodes) == (1.0, math.inf, 0)


@pytest.mark.parametrize(("checkpoint", "written"), [("sync", 0.0), ("async", 1.0)])
def test_work_is_lost_back_to_the_last_checkpoint_that_storage_has_whole(checkpoint, written):
    scenario, often = a_scenario(), {"failure": "1 per 5000 h", "interval": "1 h", "straggler_nodes": 0.0}
    found = upkeep(a_row(192), scenario, Stability(**often, checkpoint=checkpoint, storage="100 GB/s"))
    seconds = checkpoint_bytes(scenario) / 100e9
    assert (found.checkpoint_stall == pytest.approx(seconds)) == (checkpoint == "sync")
    lost = found.downtime + written * seconds
    rate, stall = 1.0 / found.mean_time_between_failures, np.array([found.checkpoint_stall])
    wall = expected_wall(np.array([3600.0]), stall=stall, downtime=lost, rate=rate)
    assert found.effective == pytest.approx(3600.0 / wall[0])


def test_a_given_interval_costs_its_checkpoints_even_without_failures():
    given_one = Stability(failure="0 /s", checkpoint="sync", interval="1 h")
    found = upkeep(a_row(192), a_scenario(), given_one)
    assert found.checkpoints == pytest.approx(found.checkpoint_stall / (3600 + found.checkpoint_stall))


def test_slow_nodes_slow_everybody():
    few, many = (upkeep(a_row(192), a_scenario(), Stability(straggler_nodes=share)) for share in (1e-5, 0.005))
    assert few.effective > many.effective
    assert many.effective == pytest.approx(upkeep(a_row(192), a_scenario(), Stability()).effective / 1.1, rel=1e-3)


def test_shards_of_the_optimizer_shorten_the_stall():
    rows = [a_row(192), a_row(192, zero_stage=0, sharding_degree=1)]
    sharded, whole = (float(stall_seconds(row, a_scenario(), Stability())[0]) for row in rows)
    assert whole / sharded == pytest.approx(14 / (2 + 12 / 192))


def test_the_stretch_is_that_of_the_whole_reckoning_over_one_without_stalls():
    scenario, row, stability = a_scenario(), a_row(192), Stability(failure="1 per 5000 h")
    slow = replace(scenario, group=scenario.group.model_copy(update={"host_link": 1e9}))
    found = wall_stretch(row, slow, stability)[0]
    assert found > 1.001
    free = replace(scenario, group=scenario.group.model_copy(update={"host_link": 1e17}))
    expected = upkeep(row, free, stability).effective / upkeep(row, slow, stability).effective
    assert found == pytest.approx(expected, rel=1e-4)


def test_a_stall_that_is_the_same_for_all_strategies_stretches_none():
    assert wall_stretch(a_row(192), a_scenario(), Stability(checkpoint="sync")) == 1.0
