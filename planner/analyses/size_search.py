"""Sizes of a cluster that are looked at for a deadline or a budget: each answered once, and what it has to meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hardware.records import BadNodeCount
from planner.analyses.size_document import Option
from planner.answer.plan import Plan
from planner.errors import BadRequest, OutOfTime
from planner.request.budget import Budget
from planner.request.request import PlanRequest
from planner.studies.answer import searched
from planner.studies.sharing import Shared


@dataclass(frozen=True)
class Limits:
    """What a size has to meet; None is no limit."""

    days: float | None
    dollars: float | None

    def met(self, option: Option | None) -> bool:
        """Whether an option meets them."""
        return option is not None and self.soon(option) and self.cheap(option)

    def soon(self, option: Option) -> bool:
        """Whether it meets the deadline."""
        return self.days is None or option.days <= self.days

    def cheap(self, option: Option) -> bool:
        """Whether it meets the budget."""
        return self.dollars is None or (option.cost_dollars or 0.0) <= self.dollars


@dataclass
class Sizes:
    """Answers by nodes, each worked out once.

    Attributes:
        request: the question; its GPUs are the most that are considered.
        least: nodes below which the deadline would need more than the peak rate.
        most: nodes at most.
        each: accelerators of a node.
        budget: of all sizes together.
        refusal: why the last size that cannot be asked for cannot.
    """

    request: PlanRequest
    least: int
    most: int
    each: int
    budget: Budget
    known: dict[int, Option | None] = field(default_factory=dict)
    unproved: set[int] = field(default_factory=set)
    refusal: str = ""
    shared: Shared = field(default_factory=Shared)

    def at(self, nodes: int) -> Option | None:
        """The best plan on so many nodes; None where nothing fits, or the size cannot be had."""
        if nodes not in self.known:
            self.known[nodes] = self._asked(nodes)
        return self.known[nodes]

    def _asked(self, nodes: int) -> Option | None:
        if self.late():
            self.unproved.add(nodes)
            return None
        asked = self.request.model_copy(update={"gpus": nodes * self.each})
        try:
            plan = searched(asked, self.shared, self.budget)
        except (BadNodeCount, BadRequest) as reason:  # a size that the pins do not divide, or that cannot be had
            self.refusal = f"; {reason}"
            return None
        except OutOfTime:
            self.unproved.add(nodes)
            return None
        if plan.status == "feasible":
            self.unproved.add(nodes)
        return _option(plan, nodes)

    def late(self) -> bool:
        """Whether the budget is spent."""
        return self.budget.spent()

    def options(self) -> list[Option]:
        """Every size that was searched and runs, smallest first."""
        return [option for nodes in sorted(self.known) if (option := self.known[nodes])]

    def first(self, met: Callable[[Option | None], bool], least: int) -> int | None:
        """Fewest nodes from ``least`` on that meet a limit, where fewer never do if more do not; None where none do."""
        below = least - 1
        for nodes in [n for n in round_sizes(self.most) if n >= least] + [self.most]:
            if self.late():
                return None
            if met(self.at(nodes)):
                return self._halved(met, below, nodes)
            below = nodes
        return None

    def _halved(self, met: Callable[[Option | None], bool], below: int, enough: int) -> int:
        while enough - below > 1 and not self.late():
            middle = (below + enough) // 2
            if met(self.at(middle)):
                enough = middle
            else:
                below = middle
        return enough


def round_sizes(most: int) -> list[int]:
    """Powers of two and three halves of them, up to ``most``."""
    powers = [2**k for k in range(most.bit_length())]
    return sorted({n for power in powers for n in (power, power + power // 2) if n <= most})


def _option(plan: Plan, nodes: int) -> Option | None:
    if plan.strategy is None or plan.prediction is None or not plan.fits:
        return None
    said, good = plan.prediction, plan.goodput
    return Option(
        gpus=plan.request["gpus"],
        nodes=nodes,
        days=good.wall_days if good else said.training_days,
        cost_dollars=good.wall_cost_dollars if good else said.cost_dollars,
        mfu=said.mfu,
        iteration_seconds=said.iteration_seconds,
        global_batch_size=plan.strategy.global_batch_size,
        strategy=plan.strategy,
        proved=plan.status == "optimal",
        effective=good.effective if good else None,
        spare_nodes=good.spare_nodes if good else None,
        careful=plan.warnings,
    )
