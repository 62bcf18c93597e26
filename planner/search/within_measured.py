"""The fastest among degrees that were measured, where one beyond them is not surely faster.

A search drifts to where its model is too kind, and nothing corrected the model where nobody measured. So a plan with a
degree beyond all measured runs of such models gives way to the best without it, unless measured errors leave that less
than one chance in three.
"""

from __future__ import annotations

import numpy as np

from costmodels.node_groups import Mixed
from costmodels.strategy import Bools, Strategies
from planner.answer.text import WORTH_SHOWING
from planner.request.budget import Budget
from planner.search.choice import SURE, WIDEST, faster
from planner.search.objective import Search
from planner.trust.extents import degrees_past, measured_extents

EFFORT = 1e6
"""Of the search among measured degrees."""


def prefer_measured(search: Search, budget: Budget) -> Search:
    """The search itself, or the one among measured degrees, with what lies beyond in words (``Search.beyond``).

    Degrees that the request pins are its own affair, as are objectives that runs were not measured by.
    """
    question = search.objective.question
    open_ties = search.resolved.request.ties != "fastest" and search.objective.by_time
    if isinstance(question, Mixed) or not open_ties or search.outcome.best is None or not search.outcome.proved:
        return search
    past = {axis: known for axis, known in degrees_past(question, search.taken.row).items() if axis not in search.pins}
    if not past:
        return search
    most = {axis: known for axis, known in measured_extents(question).items() if axis not in search.pins}

    def measured(rows: Strategies) -> Bools:
        return np.all([getattr(rows, axis) <= known for axis, known in most.items()], axis=0)

    narrow = search.space.among(np.flatnonzero(measured(search.space.cores)))
    outcome = search.objective.search(narrow, budget=budget.part(EFFORT, share=1 / 4))
    if outcome.best is None or not outcome.proved:
        return search
    said = ", ".join(f"{axis.upper()} {known}" for axis, known in past.items())
    within = f"among strategies with at most {said}, the most that was measured"
    inside = Search(search.resolved, search.pins, narrow, outcome, within, kept=measured)
    best, other = search.taken, inside.taken
    chance = faster(best, other, search.resolved)
    if chance >= SURE or other.iteration > best.iteration * (1.0 + WIDEST):
        return search
    gain = 1.0 - best.iteration / other.iteration
    degrees = ", ".join(f"{axis.upper()} {int(getattr(best.row, axis)[0])}" for axis in past)
    if gain >= WORTH_SHOWING:
        inside.beyond = (
            f"{degrees} would be {gain:.1%} faster in the model, but no measured run of such models has more than "
            f"{said}; it has a {chance:.0%} chance to be faster; --ties fastest takes it"
        )
    return inside
