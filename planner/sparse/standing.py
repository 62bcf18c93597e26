"""How far a search for a sparse plan has come, while it goes on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from planner.request.budget import Budget
from planner.sparse.headline import rate

HOUR: Final = 3600.0


@dataclass
class Standing:
    """Tells the best plan so far, and how far from the best possible it may be.

    Attributes:
        budget: of the search, which knows whom to call.
        cheapest: whether the least cost is looked for, else the most speed.
        bounded: whether what is searched now holds every plan, so that its bound is one of all.
    """

    budget: Budget
    cheapest: bool
    bounded: bool = False
    best: float = math.inf
    so_far: str = ""

    def found(self, examples_per_second: float, cost: float, bound: float) -> None:
        """Tell of a plan (dollars per second), and of what none can be better than (the same, or examples per second).

        The best is dollars per second, or seconds per example.
        """
        value = cost if self.cheapest else 1.0 / examples_per_second
        if value < self.best:
            worth = f"${cost * HOUR:,.2f} an hour" if self.cheapest else rate(examples_per_second)
            self.best, self.so_far = value, f"best so far {worth}"
        least = bound if self.cheapest else 1.0 / bound
        self.budget.found(self.best, min(least, self.best) if self.bounded else None, self.so_far)
