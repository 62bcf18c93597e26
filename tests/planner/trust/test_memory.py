"""The probability of fitting: monotone, calibrated on publishers that were left out, found by what runs say."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t

from costmodels.stack.stack import stack, stack_names
from planner import PlanRequest, plan, predict
from planner.runs import memory_errors
from planner.trust.error_model import spread
from planner.trust.memory import (
    FREEDOM,
    SURE,
    below,
    fit_probability,
    memory_scale,
    probabilities,
    readings,
    score_at,
    usual_margin,
    verdicts,
)
from planner.trust.table import figures
from tests.each import each
from tests.planner.trust.test_trust import asked


def test_the_score_at_a_probability_is_that_of_a_student_t():
    shares = np.array([0.05, 0.3, 0.5, 0.8, 0.95, 0.999])
    scores = t(FREEDOM).ppf(shares)
    assert [score_at(share) for share in shares] == pytest.approx(scores, abs=1e-9)
    assert below(scores) == pytest.approx(shares, abs=1e-9)


def test_what_fills_its_memory_fits_as_often_as_not_and_less_fits_more_surely():
    scenario = asked()
    assert fit_probability(scenario, 1.0) == pytest.approx(0.5)
    assert fit_probability(scenario, 0.5) > fit_probability(scenario, 0.9) > 0.7
    assert fit_probability(scenario, 1.3) < 0.1


@each("scenario", [asked(), asked(gpus=4, model="llama3-8b"), asked(cluster="mi355x-8x", stack="paddle")])
def test_the_usual_margin_is_the_least_tenth_of_a_per_cent_that_makes_a_plan_sure_enough_to_fit(scenario):
    margin = usual_margin(scenario)
    assert fit_probability(scenario, 1.0 - margin) >= SURE > fit_probability(scenario, 1.001 - margin)


def test_where_no_reading_is_near_memory_is_less_sure():
    far = asked(cluster="mi355x-8x", stack="paddle")
    assert memory_scale(far) > 1.2 * memory_scale(asked())
    assert fit_probability(far, 0.9) < fit_probability(asked(), 0.9)


def test_on_few_gpus_memory_is_less_sure():
    assert memory_scale(asked(gpus=4, model="llama3-8b")) > 1.15 * memory_scale(asked(gpus=8, model="llama3-8b"))


@pytest.mark.parametrize("name", [name for name in stack_names() if stack(name).own_model])
def test_where_a_program_brings_its_model_memory_is_less_sure(name):
    assert memory_scale(asked(stack=name)) > 1.5 * memory_scale(asked())
    alone = replace(readings().points, nearest=np.zeros(len(readings().runs)))
    wide = spread(alone, figures().memory)
    brought = readings().traits.names["stack"] == name
    assert wide[brought].min() > 1.15 * np.median(wide[~alone.own_model])


def test_an_answer_tells_how_surely_its_fullest_stage_fits():
    for answer in (predict(PlanRequest(model="llama3-8b", gpus=64, pins={"tp": 2})), plan(PlanRequest(**TIGHT))):
        filled = max(stage.total / stage.limit for stage in answer.memory_bytes)
        said = answer.prediction.fit_probability
        assert (said > 0.5) == (filled < 1.0)
    assert 0.5 < said < 0.95


TIGHT = {
    "model": "llama3-8b",
    "gpus": 8,
    "cluster": "dgx-a100-40gb",
    "global_batch_size": 64,
    "top": 0,
    "reasons": False,
}


def test_what_is_said_to_fit_ran():
    """Of publishers whose runs the figures were found without."""
    found = verdicts(readings(), probabilities(readings()) >= 0.8)
    assert found["ran"] > 0.97
    assert found["caught"] > 0.7


def test_who_reports_failures_ran_as_often_as_was_said():
    """Of publishers left out, runs by how surely they were said to fit."""
    known = readings()
    said, fits = probabilities(known), known.column("fits")
    failing = np.isin(known.sources, known.sources[fits == "no"]) & (fits != "")
    for low, high in ((0.0, 0.5), (0.5, 0.9), (0.9, 1.01)):  # some hundred runs each: one publisher has twenty at 0.7
        among = failing & (said >= low) & (said < high)
        assert (fits[among] == "yes").mean() == pytest.approx(said[among].mean(), abs=0.07)


def test_readings_of_frameworks_own_models_on_nodes_lie_where_they_should():
    """Of publishers left out; on few GPUs, and of programs with a model of their own, more lies above."""
    known = readings()
    known = known.take(np.flatnonzero(known.read & ~known.points.own_model & (known.traits.sizes["gpus"] >= 3)))
    below = [np.mean(_scores(known)[known.sources == name] <= score_at(0.8)) for name in np.unique(known.sources)]
    assert 0.74 < np.mean(below) < 0.86


def _scores(known):
    return known.column("miss") / known.column("scale")


def test_runs_that_fail_in_spite_of_room_widen_the_errors():
    known = readings()
    failing = replace(
        known, runs=tuple(run._replace(fits="no") if run.fits and not run.reading else run for run in known.runs)
    )
    assert memory_errors.fitted(failing).common > 1.5 * figures().memory.common
