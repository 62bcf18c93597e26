"""Prices of whole iterations: their terms, one implementation for one row and many, and the laws of physics."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from costmodels.layout.split import Assignment
from costmodels.model.flops import utilization
from costmodels.names import SCHEDULE_NAMES, Recompute
from costmodels.pipeline.schedules import FILLING, SCHEDULES
from costmodels.pricing import price, price_strategy, row_assignment
from costmodels.strategy import strategies
from costmodels.useful_flops import counted_flops
from tests.costmodels.priced import check_prices, quotes_that_add_up
from tests.drawn import drawn_scenarios
from tests.each import each
from tests.scenarios import INTERLEAVED, ONE_F_ONE_B, changed_device, changed_link, random_rows, toy_scenario, toy_stack

SEEDS = st.integers(0, 2**32 - 1)
FILLED = [SCHEDULE_NAMES.index(name) for name in FILLING]
"""Schedules that weight gradients fill: where these get shorter, a larger share of what is sent is waited for."""


@settings(max_examples=60, deadline=None)
@given(drawn_scenarios(), SEEDS)
def test_the_price_of_many_rows_is_the_quote_of_each(scenario, seed):
    check_prices(random_rows(scenario, 10, seed), scenario)


@settings(max_examples=60, deadline=None)
@given(drawn_scenarios(), SEEDS)
def test_the_terms_of_any_split_add_up_to_the_iteration(scenario, seed):
    assert list(quotes_that_add_up(scenario, seed, 10))


@settings(max_examples=120, deadline=None)
@given(drawn_scenarios(), SEEDS)
def test_an_iteration_takes_longer_than_its_flops_at_peak(scenario, seed):
    rows = random_rows(scenario, 20, seed)
    peak = scenario.group.accelerator.peak_rate("bf16")
    causal = counted_flops(scenario, causal=True)
    seconds = price(rows, scenario).iteration
    assert (seconds > causal * scenario.tokens / scenario.gpus / peak).all()
    mfu = utilization(flops=causal * scenario.tokens, seconds=seconds, gpus=scenario.gpus, peak=peak)
    assert (mfu > 0).all()
    assert (mfu < 1).all()


def better_device(name):
    def change(scenario, factor):
        device = scenario.group.accelerator
        if name == "peak":
            return changed_device(scenario, peak={kind: rate * factor for kind, rate in device.peak.items()})
        return changed_device(scenario, **{name: getattr(device, name) * factor})

    return change


def better_link(index, name):
    def change(scenario, factor):
        assume(index < len(scenario.group.tiers))
        value = getattr(scenario.group.tiers[index].link, name)
        return changed_link(scenario, index, **{name: value * factor if name == "bandwidth" else value / factor})

    return change


IMPROVEMENTS = {
    "arithmetic": better_device("peak"),
    "memory bandwidth": better_device("memory_bandwidth"),
    **{f"bandwidth of tier {i}": better_link(i, "bandwidth") for i in range(3)},
    **{f"latency of tier {i}": better_link(i, "step_latency") for i in range(3)},
}


@pytest.mark.parametrize("improvement", IMPROVEMENTS.values(), ids=IMPROVEMENTS)
@settings(max_examples=60, deadline=None)
@given(drawn_scenarios(gpus=(4, 8, 16, 64), layers=(2, 4, 8)), SEEDS, st.sampled_from([1.1, 2.0, 100.0]))
def test_a_better_machine_is_never_slower(improvement, scenario, seed, factor):
    rows = random_rows(scenario, 25, seed)
    rows = rows.take(~np.isin(rows.schedule, FILLED))
    before, after = price(rows, scenario), price(rows, improvement(scenario, factor))
    assert_no_slower(before, after, hides_all_it_could(rows, scenario))


def hides_all_it_could(rows, scenario):
    """Rows whose traffic of a step hides behind all that the last micro-batch takes.

    None hides behind a repeated pass, which a faster device makes wait for its host for longer (decision 017).
    """
    return (rows.recompute == Recompute.NONE) | (scenario.stack.host.launch_time == 0.0)


def assert_no_slower(before, after, whole):
    """No row passes and sends more slowly; none of the ``whole`` ones with the traffic of the step either."""
    beside = (prices.iteration - prices.seconds.data_parallel for prices in (after, before))
    assert (next(beside) <= next(beside) * (1 + 1e-9)).all()
    assert (after.iteration <= before.iteration * (1 + 1e-9))[whole].all()


@settings(max_examples=60, deadline=None)
@given(drawn_scenarios(gpus=(8, 16, 64), layers=(2, 4, 8)), SEEDS)
def test_larger_nodes_are_never_slower_where_latency_does_not_matter(scenario, seed):
    """With latency they may be: a tree passes a node as a chain of its ranks."""
    inner = scenario.group.tiers[0]
    for index in range(len(scenario.group.tiers)):
        like = {"base_latency": 0.0, "step_latency": 0.0, "saturation": 0.0, "group_penalty": 0.0}
        like |= {"all_reduce_gain": 1.0}
        scenario = changed_link(scenario, index, **like)
    scenario = changed_link(scenario, 0, bandwidth=1e12)
    tiers = scenario.group.tiers
    wider = [tiers[0].model_copy(update={"domain": 4 * inner.domain}), tiers[-1]]
    narrow = scenario.group.model_copy(update={"tiers": (tiers[0], tiers[-1])})
    rows = random_rows(scenario, 25, seed)
    before = price(rows, with_group(scenario, narrow)).iteration
    after = price(rows, with_group(scenario, narrow.model_copy(update={"tiers": tuple(wider)}))).iteration
    assert (after <= before * (1 + 1e-9)).all()


def with_group(scenario, group):
    fields = {name: getattr(scenario, name) for name in scenario.__dataclass_fields__}
    return type(scenario)(**(fields | {"group": group}))


def test_the_pipeline_is_the_slowest_stage_for_every_micro_batch_and_the_others_once():
    scenario = toy_scenario()
    rows = strategies(pp=[4, 4], dp=2, vpp=[1, 2], num_microbatches=8, schedule=[ONE_F_ONE_B, INTERLEAVED])
    prices = price(rows, scenario)
    once = prices.seconds.data_parallel + prices.seconds.optimizer + prices.seconds.overhead
    waiting = (prices.total - prices.slowest) / np.array([1, 2])
    assert prices.iteration == pytest.approx(8 * prices.slowest + waiting + once)


def test_the_straggler_stretches_what_all_nodes_wait_for():
    rows = strategies(dp=8, num_microbatches=2)
    calm, late = (
        price_strategy(rows, toy_scenario(stack=toy_stack(straggler=s)), row_assignment(strategies(), 8))
        for s in (0, 0.1)
    )
    pipeline = 2 * calm.stage_seconds[0]
    assert late.iteration - calm.iteration == pytest.approx(0.1 * np.sqrt(2 * np.log(2)) * pipeline)
    assert late.breakdown["straggler"] == pytest.approx(late.iteration - calm.iteration)


def test_host_time_counts_once_an_iteration_and_once_a_micro_batch():
    rows = strategies(num_microbatches=16)
    stack = toy_stack(iteration_overhead="3 ms", micro_batch_overhead="1 ms")
    plain, slow = (
        price_strategy(rows, toy_scenario(gpus=1, stack=s), row_assignment(strategies(), 8))
        for s in (toy_stack(), stack)
    )
    assert slow.iteration - plain.iteration == pytest.approx(3e-3 + 16 * 1e-3)
    assert slow.breakdown["host"] == pytest.approx(19e-3)


def test_what_a_step_calls_beside_its_passes_takes_as_long_as_so_many_launches():
    rows, known = strategies(num_microbatches=16), {"launch_time": "1 us", "cuda_graphs": True}
    plain, slow = (
        price_strategy(
            rows, toy_scenario(gpus=1, stack=toy_stack(calls_per_step=calls, **known)), row_assignment(strategies(), 8)
        )
        for calls in (0, 500)
    )
    launch = toy_scenario(gpus=1, stack=toy_stack(**known)).rates.launch
    assert launch > 0
    assert slow.iteration - plain.iteration == pytest.approx(500 * launch)
    assert slow.breakdown["host"] - plain.breakdown["host"] == pytest.approx(500 * launch)


def test_recomputing_a_layer_costs_its_forward_pass_again():
    rows = strategies(num_microbatches=1, recompute=Recompute.FULL)
    none, two = (price_strategy(rows, toy_scenario(gpus=1), Assignment(np.array([8]), np.array([r]))) for r in (0, 2))
    assert two.iteration - none.iteration == pytest.approx(2 * two.seconds.forward[0])
    assert two.breakdown["recompute"] == pytest.approx(2 * two.seconds.forward[0])


@pytest.mark.parametrize(
    ("layers", "pp", "held"),
    [(8, 4, [2, 2, 2, 2]), (7, 4, [2, 2, 2, 1]), (6, 4, [1, 2, 2, 1]), (5, 4, [1, 2, 1, 1]), (3, 1, [3])],
)
def test_an_even_split_spares_the_last_stage_and_then_the_first(layers, pp, held):
    assert row_assignment(strategies(pp=pp), layers).layers.tolist() == held
    assert row_assignment(strategies(pp=pp, recompute=Recompute.FULL), layers).recomputed.tolist() == held
    assert row_assignment(strategies(pp=pp, recompute=Recompute.SELECTIVE), layers).recomputed.tolist() == [0] * pp


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 4))
def test_even_splits_hold_every_layer_in_equal_chunks_and_differ_by_one_slice(pp, slices, vpp):
    assume(pp <= slices)
    held = row_assignment(strategies(pp=pp, vpp=vpp), slices * vpp).layers
    assert held.sum() == slices * vpp
    assert (held % vpp == 0).all()
    assert held.max() - held.min() <= vpp
    assert held[-1] == held.min()


@each("name", FILLING)
@each("stages", [2, 3, 8, 32])
@each("weight", [0.1, 0.33, 0.6])
def test_a_slower_stage_never_shortens_the_pipeline(name, stages, weight):
    """The proof of the search needs the bubble's share between 0 and the micro-batches."""
    schedule, chunks = SCHEDULES[name], np.array([1 if SCHEDULES[name].allowed(8, 16, 1) else 2])
    for count in (stages, 2 * stages, 8 * stages):
        p, m = np.array([stages]), np.array([count])
        if not schedule.allowed(p, m, chunks).all():
            continue
        forward = np.array([(1.0 - weight) / 2])
        for barrier in (False, True):
            idle = schedule.drain(p, m, chunks, forward, forward, np.array([weight]), barrier=barrier)
            share = idle / (stages - 1)
            assert 0 <= share[0] <= count
