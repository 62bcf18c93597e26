"""Who got what of a divided cluster, and what the others leave of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.strategy import Ints
from planner.allocation.options import Option
from planner.allocation.queue import Queue
from planner.allocation.solver import Options


@dataclass(frozen=True, slots=True)
class Division:
    """Who got what: the options of all jobs in order, and the place of each job's."""

    queue: Queue
    table: Options
    options: tuple[Option, ...]
    chosen: Ints
    """(J,)"""
    proved: bool = True
    """No other division is better."""

    def of(self, job: int) -> Option:
        """What a job got."""
        return self.options[int(self.chosen[job])]

    def mine(self, job: int) -> Ints:
        """The options that a job has on some placement."""
        return np.flatnonzero((self.table.job == job) & (self.table.group >= 0))

    def left(self, job: int) -> Ints:
        """Nodes of every group that the other jobs leave, (G,)."""
        others = np.delete(self.chosen, job)
        taken = others[self.table.group[others] >= 0]
        used = np.bincount(self.table.group[taken], self.table.nodes[taken], len(self.table.capacity))
        return np.asarray(self.table.capacity - used.astype(np.int64))

    def placeable(self, job: int) -> Ints:
        """Those of a job's placements that what the others leave holds."""
        mine = self.mine(job)
        return mine[self.table.nodes[mine] <= self.left(job)[self.table.group[mine]]]

    def before(self, one: int, other: int) -> int | None:
        """The first objective under which one option costs less; None where it costs more first, or as much."""
        for place, objective in enumerate(self.table.objectives):
            if objective[one] != objective[other]:
                return place if objective[one] < objective[other] else None
        return None
