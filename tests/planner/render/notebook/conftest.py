"""One answer of every kind, small and quick."""

from pathlib import Path

import pytest

import planner
from planner import PlanRequest
from tests.scenarios import toy_cluster, toy_model, toy_stack

EXAMPLES = Path(__file__).parents[4] / "examples"
ASKED = PlanRequest(model=toy_model(), cluster=toy_cluster(), stack=toy_stack(uneven_stages=True), gpus=16)
FEW = {"gpus": 4, "pins": {"pp": 1, "cp": 1, "recompute": "none", "zero_stage": 1}}
"""Every candidate is priced in every corner of what is uncertain."""
QUEUE = {"cluster": "dgx-h100", "gpus": 16, "jobs": [{"name": "a", "model": "llama3-8b", "tokens": "1B", "gpus": [8]}]}


def infeasible():
    return planner.plan(PlanRequest(model="llama3-70b", gpus=8, pins={"offload": "none"}, reasons=False))


def examined():
    import json

    return planner.examine_run(json.loads((EXAMPLES / "run.json").read_text()))


ASK = {
    "plan": lambda: planner.plan(ASKED),
    "infeasible": infeasible,
    "predict": lambda: planner.predict(PlanRequest(model="llama3-8b", gpus=64, pins={"tp": 8})),
    "why_not": lambda: planner.why_not(ASKED.model_copy(update={"pins": {"tp": 2}})),
    "compare": lambda: planner.compare(planner.predict(ASKED), planner.plan(ASKED)),
    "size": lambda: planner.size(ASKED.model_copy(update={"tokens": 10**9}), days=1000.0),
    "what_if": lambda: planner.what_if(ASKED),
    "robust": lambda: planner.robust(ASKED.model_copy(update=FEW), "10%"),
    "replan": lambda: planner.replan(planner.plan(ASKED.model_copy(update={"reasons": False})), 8),
    "allocate": lambda: planner.allocate(planner.queue_of(QUEUE)),
    "plan_sparse": lambda: planner.plan_sparse(EXAMPLES / "ctr-dnn.toml", "fleet-cpu", min_throughput="1M"),
    "calibrate": lambda: planner.calibrate(EXAMPLES / "calibrate" / "runs.jsonl"),
    "examine_run": examined,
    "sweep": lambda: planner.sweep({"model": "llama3-8b", "gpus": [8, 16], "mode": "predict", "pins": {"tp": 8}}),
    "validate": lambda: planner.validate(EXAMPLES / "run.json"),
    "read_job": lambda: planner.read_job(EXAMPLES / "my-job" / "train.sh"),
}
KNOWN = {}


@pytest.fixture
def answer(request):
    """The answer to a question by its name, asked once."""
    if request.param not in KNOWN:
        KNOWN[request.param] = ASK[request.param]()
    return KNOWN[request.param]


def every_answer(*but):
    return pytest.mark.parametrize("answer", [name for name in ASK if name not in but], indirect=True)


def one_answer(name):
    return pytest.mark.parametrize("answer", [name], indirect=True)
