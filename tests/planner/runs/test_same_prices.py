"""The shipped runs keep their prices, and a run has one price, whoever asks for it.

``golden/predictions.csv.gz`` holds the price of every document. One may move with a reason in the changelog; then the
file is written again. A plain run prices one document of each kind; ``--examples 2``, as in ``.ci/run``, all.
"""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from costmodels.pricing import price_strategy
from planner import predict
from planner.runs.case import case_of
from planner.runs.judge import judge_run
from tests.planner.measured_run import only
from tests.planner.shipped import shipped_runs

GOLDEN = Path(__file__).parent / "golden" / "predictions.csv.gz"
EVERY = 40
"""Of how many runs one is asked of ``predict`` too; of fewer with ``--examples``."""


def golden():
    with gzip.open(GOLDEN, "rt", encoding="utf-8", newline="") as lines:
        return {(row["group"], row["id"]): row for row in csv.DictReader(lines)}


def kind(run):
    """Stack, format and settings of a run: what decides which formulas price it, without its sizes."""
    asked = run.request.model_dump(exclude_defaults=True)
    pins = asked.get("pins", {})
    named = {axis: value for axis, value in pins.items() if isinstance(value, str) and not value.isdigit()}
    used = {axis for axis, value in pins.items() if str(value) not in {"0", "1", "none", "False"}}
    said = (asked.get("stack"), asked.get("precision"), named, sorted(used))
    return str((*said, sorted(asked)))


def test_shipped_runs_have_the_prices_that_they_had(request):
    known, every = golden(), [run for run in shipped_runs() if run.request]
    assert set(known) == {(run.group, run.id) for run in every}
    one_of_each = {kind(run): run for run in every}.values()
    for run in every if request.config.getoption("--examples") > 1 else one_of_each:
        found, was = case_of(run), known[run.group, run.id]
        priced = price_strategy(found.strategy, found.scenario, found.assignment)
        held, seconds = float(np.max(priced.footprint.total)), float(was["iteration_seconds"])
        assert held == pytest.approx(float(was["peak_bytes"]), rel=1e-9), run.id
        assert (held <= found.scenario.group.accelerator.usable_memory) == bool(int(was["fits"])), run.id
        assert priced.iteration == pytest.approx(seconds, rel=1e-9), run.id


def test_validating_a_run_and_predicting_its_request_give_the_same_figure(request):
    every = max(EVERY // request.config.getoption("--examples") ** 2, 1)
    measured = [run for run in shipped_runs() if run.request and run.measured.iteration_seconds]
    for run in measured[::every]:
        answer = predict(run.request, as_ran=True)
        verdict = only(judge_run(run), "iteration_time")
        assert answer.prediction.iteration_seconds == verdict.predicted, run.id
        assert [f"{one.rule}: {one.example}" for one in answer.rejected[: len(verdict.broken)]] == list(verdict.broken)
