"""What points of a study have in common, worked out once in every process.

A search does not see prices: it serves all points that differ in money and power alone. Lattices serve more points
still (``planner.space.cache``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from costmodels.scenario import Scenario
from hardware.records import Accelerator
from planner.request.budget import Budget
from planner.request.pins import Pin
from planner.request.request import Resolved
from planner.search.best_first import Outcome
from planner.search.choice import only_tied
from planner.search.objective import Objective, objective_of
from planner.space.lattice import Space

OUTCOMES: Final = 64
"""Searches that a process keeps; each is a row and a few numbers."""
MARGIN: Final = 1.0 + 1e-6
"""Beside the width of a tie: no runners-up are wanted but those that may be taken."""

_BLANK_MONEY: Final[dict[str, Any]] = {"power_limit": None, "host_power": 0.0, "kernel_power": None, "price": None}


@dataclass
class Shared:
    """A process's memory of searches, the oldest forgotten first."""

    outcomes: list[tuple[Any, Outcome]] = field(default_factory=list)

    def found(self, resolved: Resolved, space: Space, pins: dict[str, Pin], budget: Budget) -> Outcome:
        """The search of a scenario, without the rows that it saw on the way."""
        aim = objective_of(resolved)
        question = (_without_money(aim.scenario), pins, aim.lean, aim.tie_width, resolved.request.time_limit)
        for place, (other, known) in enumerate(self.outcomes):
            if other == question:
                self.outcomes.append(self.outcomes.pop(place))
                return known
        self.outcomes.append((question, _searched(aim, space, budget)))
        del self.outcomes[:-OUTCOMES]
        return self.outcomes[-1][1]


def _searched(aim: Objective, space: Space, budget: Budget) -> Outcome:
    outcome = aim.search(space, budget=budget, margin=MARGIN + aim.tie_width)
    if outcome.best is not None:  # the rest of what was seen tells only why a point is infeasible
        outcome.pool = only_tied(outcome, aim.tie_width)
    return outcome


def _without_money(scenario: Scenario) -> Scenario:
    group = scenario.group
    whole: Accelerator = group.accelerator
    device = whole.model_copy(update=_BLANK_MONEY | {"power": whole.clock("bf16")})  # all that a search sees of power
    changes = {"accelerator": device, "price": None, "node_power_overhead": None}
    return replace(scenario, group=group.model_copy(update=changes))
