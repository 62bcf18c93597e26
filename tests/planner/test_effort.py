"""What an answer says depends on effort that is counted, not on how busy the machine is."""

import json
import subprocess
import sys
import time

import pytest

from planner import OutOfTime, PlanRequest, plan
from planner.request.budget import Budget
from planner.search.question import resolve_search
from planner.space.cache import cached_space

BUSY = [sys.executable, "-c", "while True: pass"]


def said(request):
    """The document of a plan, without how long it took."""
    document = json.loads(plan(request).to_json())
    del document["proof"]["wall_seconds"]
    return document


def test_an_answer_is_the_same_on_an_idle_and_on_a_busy_machine():
    asked = PlanRequest(model="llama3-8b", gpus=64)
    idle = said(asked)
    busy = [subprocess.Popen(BUSY) for _ in range(2)]
    try:
        assert said(asked) == idle
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_time_limit_ends_the_laying_out_of_a_lattice():
    resolved, began = resolve_search(PlanRequest(model="kimi-k2", gpus=14_400_000)), time.process_time()
    with pytest.raises(OutOfTime, match=r"no plan: .* within 0\.01 s; --time-limit gives more"):
        cached_space(resolved.scenario, {}, Budget(0.01))
    assert time.process_time() - began < 1.0
