"""What would help is what a plan on the better machine, or with the other batch, says."""

import pytest

from planner import PlanRequest, plan
from planner.explain.levers import scale_compute, scale_device, scale_links
from planner.explain.what_helps import gained
from planner.request.resolve import resolve

ASKED = {
    "llama3-70b on 512": {"model": "llama3-70b", "gpus": 512, "cluster": "dgx-h100", "global_batch_size": 512},
    "175b on 1024": {
        "model": "175b",
        "gpus": 1024,
        "global_batch_size": 1536,
        "pins": {"cp": 1, "recompute": "none,full"},
    },
    "mixtral-8x7b on 64": {
        "model": "mixtral-8x7b",
        "gpus": 64,
        "global_batch_size": 512,
        "objective": "goodput",
        "pins": {"cp": 1, "etp": 1},
    },
    "13b whose memory grows with the batch": {
        "model": "llama2-13b",
        "gpus": 24,
        "cluster": "aws-p4d",
        "global_batch_size": 117,
        "pins": {"pp": "1.."},
    },
    "22b pinned": {"model": "22b", "gpus": 64, "global_batch_size": 256, "pins": {"tp": [2, 4, 8]}},
}
LEVERS = {
    "network 2x": lambda asked: scale_links(asked, 2.0, inner=False),
    "node links 2x": lambda asked: scale_links(asked, 2.0, inner=True),
    "memory bandwidth 2x": lambda asked: scale_device(asked, memory_bandwidth=2.0),
    "memory 2x": lambda asked: scale_device(asked, usable_memory=2.0),
    "arithmetic 1.25x": lambda asked: scale_compute(asked, 1.25),
}


def on_better_machines(asked, better):
    """The question about machines of which everything else is as it was."""
    (group,) = resolve(asked).machines.groups
    changed = better(resolve(asked).scenario).group.model_copy(update={"nodes": group.nodes})
    machines = resolve(asked).machines.model_copy(update={"groups": (changed,)})
    return asked.model_copy(update={"cluster": machines, "reasons": False})


def value(found):
    """Seconds that are least wanted: of wall time where goodput is asked about."""
    return found.prediction.iteration_seconds / (found.goodput.effective if found.goodput else 1.0)


@pytest.mark.parametrize("question", ASKED)
def test_what_helps_is_what_a_fresh_plan_says(question):
    asked = PlanRequest(**ASKED[question], ties="fastest", time_limit=60.0, top=0)
    answer = plan(asked)
    lines = {line.subject: line for line in answer.what_helps}
    fresh = {lever: plan(on_better_machines(asked, better)) for lever, better in LEVERS.items()}
    larger = {"global_batch_size": 2 * asked.global_batch_size, "reasons": False}
    fresh["batch 2x"] = plan(asked.model_copy(update=larger))
    for lever, found in fresh.items():
        assert lines[lever].proved
        seconds = value(found) / (2.0 if lever == "batch 2x" else 1.0)
        assert lines[lever].iteration_seconds == pytest.approx(min(seconds, value(answer)), rel=1e-9), lever


def test_another_strategy_is_taken_where_the_network_is_faster():
    asked = PlanRequest(**ASKED["llama3-70b on 512"], memory_margin=0, framework="any")
    line = next(line for line in plan(asked).what_helps if line.subject == "network 2x")
    assert line.text == gained("network 2x", 7.505358583, 7.624267816).text
