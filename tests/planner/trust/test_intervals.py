"""Intervals cover what they promise, and widen where nothing is comparable, nothing is known or little is products."""

from collections import defaultdict
from functools import cache, partial
from statistics import fmean

import numpy as np
import pytest

from costmodels.stack.stack import stack as find_stack
from planner import PlanRequest, predict
from planner.runs import residuals
from planner.trust.interval import COVERAGE, NOTHING, expected_miss, interval
from planner.trust.table import ENOUGH, FURTHER, LEFT_OUT, every_run, figures, from_rows, scale
from tests.planner.trust.test_trust import asked, row, table_rows


def toy(*misses, sources=None):
    """Runs that are alike in everything but their misses."""
    template = table_rows()[0] | {"split": "fit", "mfu": "1", "error": "0", "nearest": "0"}
    names = sources or [f"source-{i}" for i in range(len(misses))]
    rows = [template | {"group": name, "miss": str(miss)} for name, miss in zip(names, misses, strict=True)]
    return from_rows(rows)


def test_far_from_everything_the_expected_miss_is_the_usual_one():
    known = toy(0.02, -0.04, 0.9)
    assert expected_miss(np.full(3, 50.0), known, 0.08) == pytest.approx(0.08)


def test_comparable_sources_that_are_predicted_well_narrow_and_others_widen():
    usual, near = 0.08, np.zeros(3)
    well = expected_miss(near, toy(0.01, -0.01, 0.01), usual)
    badly = expected_miss(near, toy(0.4, -0.4, 0.4), usual)
    assert well == pytest.approx((3 * 0.01 + NOTHING * usual) / (3 + NOTHING))
    assert well < usual < badly


def test_a_source_speaks_once_however_many_runs_it_has():
    usual = 0.08
    once = expected_miss(np.zeros(2), toy(0.3, 0.02), usual)
    often = expected_miss(np.zeros(6), toy(*[0.3] * 5, 0.02, sources=["a"] * 5 + ["b"]), usual)
    assert often == pytest.approx(once)


def test_the_interval_scales_with_the_prediction_and_holds_it():
    scenario = asked()
    one, ten = (interval(scenario, row(), seconds, mfu=0.4) for seconds in (1.0, 10.0))
    assert one.low < 1.0 < one.high
    assert (ten.low, ten.high) == pytest.approx((10 * one.low, 10 * one.high))
    assert one.coverage == COVERAGE == 0.9


def test_a_source_that_is_judged_is_set_aside():
    run = residuals.priced_runs({"korthikanti-2022"})[0]
    scenario, rows = run.case.scenario, run.case.strategy
    told = partial(interval, scenario, rows, run.predicted, mfu=0.4)
    anybody, itself = told(), told(source="korthikanti")
    assert told(source="nobody") == anybody
    assert anybody.low < itself.low < run.predicted < itself.high < anybody.high


def test_a_source_of_the_check_split_is_set_aside_as_well():
    told = partial(interval, asked(cluster="aurora", gpus=384), row(dp=192), 1.0, mfu=0.3)
    assert told(source="aurora-max1550").high < told().high


def test_a_source_that_no_constant_is_fitted_to_is_anybodys():
    told = partial(interval, asked(), row(), 1.0, mfu=0.4)
    fitted, left_out = (told(source=name) for name in ("megatron-bridge", LEFT_OUT[0]))
    assert fitted.high - fitted.low < 0.7 * (left_out.high - left_out.low)


@pytest.mark.parametrize(("runs", "known"), [(0, False), (ENOUGH - 1, False), (ENOUGH, True), (9, True)])
def test_who_has_calibrated_on_runs_of_ones_own_is_missed_to_either_side_alike(runs, known):
    scenario = asked(stack=find_stack("megatron-core").changed({"calibrated.own_runs": runs}))
    low, high = np.log(ends_of(interval(scenario, row(), 1.0, mfu=0.4)))
    assert (-low > 0.8 * high) == known
    assert (low, high) == pytest.approx(np.log(ends_of(interval(asked(), row(), 1.0, mfu=0.4)))) or known


def ends_of(found):
    return found.low, found.high


def test_a_source_that_misses_by_the_same_throughout_is_known_once_seen():
    """Three sources of five runs, of which one scatters."""
    known = toy(*[0.5] * 5, *[-0.2] * 5, 0.1, -0.1, 0.1, -0.1, 0.3, sources=["a"] * 5 + ["b"] * 5 + ["c"] * 5)
    low, high = residuals.levelled(known, np.full(15, 0.1))
    assert residuals.levelled(known.take(np.flatnonzero(known.sources != "c")), np.full(10, 0.1)) == (0.0, 0.0)
    assert (low, high) == pytest.approx((-2.0, 3.0))


def test_the_less_of_a_step_its_products_fill_the_wider_the_interval():
    wide, half, narrow = (interval(asked(), row(), 1.0, mfu=mfu) for mfu in (0.1, 0.2, 0.4))
    assert np.log(wide.high) == pytest.approx(2.0 * np.log(narrow.high))
    assert np.log(wide.low) == pytest.approx(2.0 * np.log(narrow.low))
    assert wide.low < half.low < narrow.low < 1.0 < narrow.high < half.high < wide.high


def test_the_interval_of_an_answer_is_that_of_its_utilisation():
    answer = predict(PlanRequest(model="llama3-8b", gpus=64, pins={"tp": 2, "pp": 1}))
    found = interval(asked(), row(), answer.prediction.iteration_seconds, mfu=answer.prediction.mfu)
    assert answer.prediction.interval.high == pytest.approx(found.high, rel=0.05)


def test_the_further_the_nearest_run_the_wider_the_interval_whatever_was_measured_there():
    known = toy(0.1, 0.1)
    near, far = (scale(np.array(0.25), np.array(away)) for away in (0.0, 1.0))
    assert near == pytest.approx(2.0)
    assert far == pytest.approx(2.0 * np.exp(FURTHER))
    assert known.scaled == pytest.approx([0.1, 0.1])
    far, near = (interval(asked(**of), row(), 1.0, mfu=0.4) for of in ({"cluster": "mi355x-8x", "stack": "paddle"}, {}))
    assert far.high > near.high


@pytest.mark.parametrize("wide", [True, False])
def test_the_coverage_is_that_promised_to_those_that_nothing_was_learnt_from(wide):
    """Runs of the check split, each judged by the runs of other sources: slow or far ones, and fast and near ones."""
    table, found = every_run().of("fit", "check"), figures()
    expected = residuals.expected_misses(table, found.usual)
    inside = (found.low * expected <= table.scaled) & (table.scaled <= found.high * expected)
    check = table.splits == "check"
    chosen = check & ((table.scales > np.median(table.scales[check])) == wide)
    assert 0.85 <= inside[chosen] @ residuals.weights(table.sources[chosen]) <= 0.95


@pytest.mark.parametrize("split", ["fit", "dev", "check"])
def test_the_coverage_is_that_promised_on_every_split(split):
    """Over the shipped table, mean over groups: what ``plan validate`` prints, but for runs it leaves out."""
    table, held = every_run(), defaultdict(list)
    for i in np.flatnonzero(table.splits == split):
        run = table.runs[i]
        mine, known = table.take(np.array([i])), table.of("fit", "check")
        away = residuals.others_away(mine, known)[0]
        miss = expected_miss(away, known, figures().usual) * float(mine.scales[0])
        held[run.group].append(ends(run.source)[0] * miss <= -np.log1p(run.error) <= ends(run.source)[1] * miss)
    assert 0.85 <= fmean(map(fmean, held.values())) <= 0.95


@cache
def ends(name):
    """Those of sources that constants know, or anybody's."""
    found, fitted = figures(), every_run().of("fit").runs
    known = any(run.source == name and run.group not in LEFT_OUT for run in fitted)
    return (found.fitted_low, found.fitted_high) if known else (found.low, found.high)


def test_below_the_slowest_measured_run_intervals_grow_no_further():
    lowest = float(every_run().mfus.min())
    wide = [interval(asked(), row(), 1.0, mfu=mfu) for mfu in (0.5, lowest, lowest / 2.0, 1e-6)]
    assert wide[0].high < wide[1].high
    assert wide[1:] == [wide[1]] * 3


def test_a_utilisation_below_all_that_was_measured_is_outside_the_validated_region():
    tiny = predict(PlanRequest(model="llama3-8b", gpus=4096, global_batch_size=8, pins={"tp": 8, "pp": 8, "cp": 8}))
    assert tiny.prediction.mfu < 0.017
    assert any("MFU" in said and "at least" in said for said in tiny.trust.beyond)
    assert not tiny.trust.inside
    assert tiny.prediction.interval.high < 20 * tiny.prediction.interval.low
    usual = predict(PlanRequest(model="llama3-8b", gpus=64, pins={"tp": 2}))
    assert not any("MFU" in said for said in usual.trust.beyond)
