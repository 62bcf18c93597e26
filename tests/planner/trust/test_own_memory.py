"""What readings of memory of one's own teach: where the need lies, how surely, and the margin that follows."""

import json
import math
import tomllib

import numpy as np
import pytest
from scipy.stats import t

from planner import PlanRequest, calibrate, plan, predict
from planner.runs.case import case_of
from planner.runs.judge import shown_bytes
from planner.runs.schema import run_of
from planner.trust.error_model import FREEDOM, Variances
from planner.trust.memory import SURE
from planner.trust.own_memory import SURE_SCORE, Needs, Seen, learn_needs
from tests.planner.measured_run import run
from tests.planner.trust.test_error_model import points

KNOWN = Variances(**dict.fromkeys(Variances._fields, 0.0))._replace(common=0.05, cell=0.03, smooth=0.03, noise=0.02)
"""Figures about as large as those found, which change with every run that joins."""


def needs(missed=(), room=(), side=()):
    """Of runs that were read, then of runs that ran or ran out."""
    count, nothing = len(missed) + len(room), [math.nan]
    seen = ([*missed, *nothing * len(room)], [*[1.0] * len(missed), *room], [*nothing * len(missed), *side])
    return learn_needs(points(count), Seen(*map(np.array, seen)), KNOWN)


def test_the_more_that_read_alike_the_surer_the_need():
    found = [needs(missed=[0.2] * count) for count in (1, 3, 10)]
    assert [one.center for one in found] == pytest.approx([0.2] * 3, abs=0.07)
    assert abs(found[2].center - 0.2) < abs(found[0].center - 0.2)
    assert found[0].scale > found[1].scale > found[2].scale
    assert found[2].narrowed < found[1].narrowed < 1.0


def test_a_failure_with_room_to_spare_says_that_more_is_needed_and_a_narrow_success_less():
    failed, ran = needs(room=[0.2], side=[-1.0]), needs(room=[-0.2], side=[1.0])
    assert failed.center > 0.05
    assert failed.center == pytest.approx(-ran.center, abs=0.01)
    assert abs(needs(room=[0.5], side=[1.0]).center) < 0.01


def test_the_margin_is_for_the_probability_that_it_promises():
    assert t(FREEDOM).ppf(SURE) == pytest.approx(SURE_SCORE, abs=1e-3)
    one = Needs(0.1, 0.05, 0.5)
    assert t(FREEDOM).cdf((-math.log(1.0 - one.margin) - 0.1) / 0.05) == pytest.approx(SURE, abs=1e-3)
    assert Needs(-0.5, 0.05, 0.5).margin == 0.0


def profile(tmp_path, *, times, runs):
    """A profile of runs that needed so many times what is predicted."""
    rows = []
    for number in range(runs):
        row = run(id=f"run-{number}", request={"global_batch_size": 64 * (number + 1)})
        found = case_of(run_of(row | {"measured": {"peak_memory": {"bytes": 1e9}}}))
        read = run_of(row | {"measured": {"peak_memory": {"bytes": 1e9}}})
        row["measured"] = {"peak_memory": {"bytes": times * shown_bytes(read, found, found.price())}}
        rows.append(row)
    path, to = tmp_path / "mine.jsonl", tmp_path / "profile.toml"
    path.write_text("\n".join(map(json.dumps, rows)))
    answer = calibrate([path])
    to.write_text(answer.profile)
    return answer, to


def test_a_profile_says_what_memory_is_needed_and_plans_keep_the_margin_that_follows(tmp_path):
    answer, path = profile(tmp_path, times=1.2, runs=8)
    (told,) = answer.constants
    assert (told.name, told.before) == ("stack.calibrated.memory_needed", 1.0)
    uncertain = tomllib.loads(answer.profile)["stack"]["calibrated"]["memory_uncertain"]
    assert math.log(1.2 / told.after) == pytest.approx(0.0, abs=uncertain)
    assert told.after > 1.1
    assert {(one.what, one.points) for one in answer.errors} == {("memory", 8)}
    question = PlanRequest(
        model="llama3-8b", gpus=8, cluster="dgx-a100-40gb", global_batch_size=64, top=0, reasons=False
    )
    mine = question.model_copy(update={"stack": str(path)})
    usual, careful = plan(question), plan(mine)
    filled = [max(stage.total / stage.limit for stage in one.memory_bytes) for one in (usual, careful)]
    assert filled[1] < 1.0 / 1.2 < filled[0] <= 1.0 - usual.request["memory_margin"]
    assert careful.prediction.fit_probability >= SURE
    assert any("80% sure to fit by runs of yours" in line for line in careful.defaults)


def test_prices_of_memory_stay_and_the_probability_follows(tmp_path):
    _, more = profile(tmp_path, times=1.3, runs=4)
    pins = {"tp": 2, "pp": 1}
    usual = predict(PlanRequest(model="llama3-8b", gpus=64, pins=pins))
    mine = predict(PlanRequest(model="llama3-8b", gpus=64, pins=pins, stack=str(more)))
    assert mine.memory_bytes == usual.memory_bytes
    assert mine.prediction.fit_probability < usual.prediction.fit_probability


def test_a_reading_in_other_units_is_not_used(tmp_path):
    path = tmp_path / "mine.jsonl"
    rows = [run(id="a"), run(id="b", measured={"peak_memory": {"bytes": 30.0}})]
    path.write_text("\n".join(map(json.dumps, rows)))
    answer = calibrate([path])
    assert any("run b: memory not used" in line for line in answer.notes)
    assert not any("memory_needed" in one.name for one in answer.constants)
