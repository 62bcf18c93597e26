"""The leanest strategy: least memory on the fullest device, over all even splits."""

from __future__ import annotations

import time

import numpy as np

from costmodels.scenario import Scenario
from planner.search import CHUNK, Outcome, price_cores, remember
from planner.space import Space


def leanest(space: Space, scenario: Scenario, *, deadline: float) -> Outcome:
    """Price every core in chunks and keep the one with the lowest peak; ties go to the faster.

    Proved over even splits with all or no layers recomputed.
    """
    outcome = Outcome()
    for start in range(0, len(space.cores), CHUNK):
        if time.perf_counter() > deadline:
            outcome.proved = False
            break
        chunk = np.arange(start, min(start + CHUNK, len(space.cores)))
        remember(outcome, price_cores(space, chunk, scenario), scenario, lean=True)
    if outcome.best:
        outcome.lower_bound = outcome.best.iteration
    return outcome
