"""The objective of a request: seconds of an iteration, seconds of wall time, or bytes; and the search for its least.

At a given number of devices time, utilisation, money and tokens per device-hour put strategies in the same order. Wall
time counts interruptions and checkpoints too, memory is what the fullest device allocates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodels.pricing import iteration_seconds, stage_bytes
from costmodels.scenario import Scenario
from costmodels.strategy import Ints, Strategies
from costmodels.training.goodput import upkeep
from planner.answer.text import format_bytes, format_seconds
from planner.request.budget import Budget
from planner.request.resolve import Resolved
from planner.search.best_first import MARGIN, Outcome, promising, search
from planner.search.choice import Choice, choose, width
from planner.search.least_memory import least_memory_rows, least_memory_split, search_least_memory
from planner.search.priced import Priced
from planner.search.split import TOLERANCE, Incumbent, best_split
from planner.space.lattice import Space

Promising = tuple[float, Strategies]
"""A row, and what no split of it needs less of."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A quantity to minimise, and the scenario that it is priced on.

    Attributes:
        name: as in the request: time, goodput, memory.
        scenario: what a search prices, with interruptions and checkpoints where goodput is wanted.
        tie_width: how much slower than the fastest a plan may be and be taken in its place, as a share.
    """

    name: str
    scenario: Scenario
    tie_width: float

    @property
    def by_memory(self) -> bool:
        """Whether bytes count, not seconds."""
        return self.name == "memory"

    @property
    def by_time(self) -> bool:
        """Whether an iteration's seconds are all that counts, which are what measured sweeps bear out."""
        return self.name not in {"memory", "goodput"}

    def on(self, scenario: Scenario) -> Objective:
        """This objective on other machines, or with another batch."""
        return replace(self, scenario=replace(scenario, stability=self.scenario.stability))

    def search(
        self,
        space: Space,
        *,
        budget: Budget,
        among: Ints | None = None,
        margin: float | None = None,
        seen: Sequence[Priced] = (),
        confirm: bool = True,
    ) -> Outcome:
        """The best of the space, with what was seen on the way; arguments as of ``best_first.search``."""
        if self.by_memory:
            return search_least_memory(space, self.scenario, budget=budget, among=among)
        near = max(MARGIN, 1.0 + self.tie_width) if margin is None else margin
        known = {"budget": budget, "among": among, "margin": near, "seen": seen, "confirm": confirm}
        return search(space, self.scenario, **known)  # type: ignore[arg-type]

    def value(self, found: Incumbent) -> float:
        """The quantity to minimise, of a strategy that a search for this objective found.

        Seconds of an iteration, of wall time with goodput, or bytes with memory.
        """
        return found.iteration if self.by_time else self.revalue(found)

    def revalue(self, found: Incumbent) -> float:
        """The quantity of a strategy that was found on other machines, or with another batch."""
        if self.by_memory:
            return float(np.max(stage_bytes(found.row, self.scenario, found.assignment).allocated))
        return self._iteration_seconds(found) / self.effective(found)

    def seconds(self, found: Incumbent) -> float:
        """Seconds of an iteration, without interruptions and checkpoints, of a strategy that a search found."""
        return found.iteration if self.by_time else self._iteration_seconds(found)

    def _iteration_seconds(self, found: Incumbent) -> float:
        return iteration_seconds(found.row, replace(self.scenario, stability=None), found.assignment)

    def effective(self, found: Incumbent) -> float:
        """Share of the wall time in which iterations run, where that is counted; else 1."""
        stability = self.scenario.stability
        return upkeep(found.row, self.scenario, stability).effective if stability else 1.0

    def format(self, value: float) -> str:
        """A value in words."""
        if self.by_memory:
            return f"{format_bytes(value)} allocated"
        return format_seconds(value) + (" of wall time" if self.name == "goodput" else "")

    def better(self, one: Incumbent, other: Incumbent) -> bool:
        """Whether one is better than another by more than rounding."""
        return self.value(one) < self.value(other) * (1.0 - TOLERANCE)

    def promising(self, outcome: Outcome) -> Iterator[Promising]:
        """The most promising rows that a search saw, each with its bound, best first."""
        if self.by_memory:
            yield from least_memory_rows(outcome, self.scenario)
            return
        best, alike = outcome.best, 1.0
        if best and not self.by_time:  # a search leaves out of wall time what all strategies lose alike
            alike = self.value(best) / iteration_seconds(best.row, self.scenario, best.assignment)
        for bound, row in promising(outcome, self.scenario):
            yield bound * alike, row

    def split(self, row: Strategies, budget: Budget) -> Incumbent | None:
        """A row under the split of its layers that this objective likes best; None where none fits in time."""
        return (least_memory_split if self.by_memory else best_split)(row, self.scenario, budget=budget)

    def choice(self, outcome: Outcome) -> Choice:
        """The best, or what is as good as that and better validated."""
        return choose(outcome, self.scenario, self.tie_width)


def objective_of(resolved: Resolved) -> Objective:
    """The objective of a request, with the scenario to price for it."""
    objective = resolved.request.objective
    asked = Objective(objective, resolved.scenario, 0.0)
    tie_width = width(resolved.request.ties) if asked.by_time else 0.0
    stability = resolved.stability if objective == "goodput" else None
    return Objective(objective, replace(resolved.scenario, stability=stability), tie_width)


__all__ = ["Objective", "objective_of"]
