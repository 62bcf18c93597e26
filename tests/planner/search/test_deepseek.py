"""The published cost of DeepSeek-V3's pre-training, priced with the stack that says what was published of it.

DeepSeek-V3 Technical Report (arXiv 2412.19437), table 1 and sections 3.2 and 4.2: 2.664 M H800 hours for 14.8 T tokens
on 2,048 devices, 16 stages, 64 expert ranks over 8 nodes, ZeRO-1, 15,360 sequences of 4,096 tokens (after a ramp over
the first 3 % of the tokens, which is left out here), one layer that predicts a further token.
"""

import pytest

from costmodels.model.catalogue import model
from planner.api import plan, predict
from planner.request.request import PlanRequest

HOURS = 2.664e6
JOB = {
    "gpus": 2048,
    "cluster": "dgx-h800",
    "stack": "deepseek",
    "precision": "fp8",
    "global_batch_size": 15360,
    "seq_length": 4096,
}
LAYOUT = {"tp": 1, "pp": 16, "ep": 64, "zero_stage": 1, "micro_batch_size": 1, "recompute": "selective"}


def trained():
    return model("deepseek-v3").model_copy(update={"mtp_layers": 1})


def priced(**changes):
    return predict(PlanRequest(model=trained(), **JOB | {"pins": LAYOUT | {"schedule": "dualpipe"} | changes}))


def test_the_published_run_fits_and_its_hours_are_met_within_a_tenth():
    told = priced()
    assert told.fits
    assert told.strategy.dp == 128
    assert told.prediction.gpu_hours / HOURS - 1 == pytest.approx(-0.013, abs=0.09)


def test_one_way_1f1b_would_wait_for_the_experts_traffic_that_dualpipe_hides():
    both_ways, one_way = priced(), priced(schedule="1f1b")
    assert one_way.breakdown_seconds["ep"] > 4 * both_ways.breakdown_seconds["ep"]
    assert 1.3 < one_way.prediction.iteration_seconds / both_ways.prediction.iteration_seconds < 2.0


def test_the_search_chooses_the_schedule_and_the_shards_of_deepseek():
    changes = {"pins": {"tp": 1, "cp": 1}, "reasons": False, "memory_margin": 0.05}
    best = plan(PlanRequest(model=trained(), **JOB | changes)).strategy
    assert (best.schedule, best.zero_stage, best.recompute) == ("dualpipe", 1, "selective")
    assert best.pp >= 16
    assert best.ep >= 32
