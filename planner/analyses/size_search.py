"""Sizes of a cluster, each answered once: what a deadline or a budget asks of them, and the answer as a document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from hardware.records import BadNodeCount
from planner.answer.plan import Answer, Plan, Provenance, Record, Share, Strategy
from planner.answer.text import plural
from planner.api.short import short_plan
from planner.errors import BadRequest, OutOfTime
from planner.request.budget import Budget
from planner.request.request import PlanRequest
from planner.studies.answer import Shared
from planner.trust.interval import probability_within
from planner.trust.memory import SURE


class Option(Record):
    """A size and the best plan on it."""

    gpus: int
    nodes: int
    days: float
    """Of training; of wall time with interruptions and checkpoints where goodput is asked about."""
    cost_dollars: float | None
    """Of these days; of the spare nodes too where goodput is asked about."""
    mfu: float
    iteration_seconds: float
    """Undisturbed, as ``mfu`` is."""
    global_batch_size: int
    strategy: Strategy
    proved: bool
    """Whether the search proved that nothing on this size is faster."""
    effective: float | None = None
    """Share of the wall time in which iterations run; None where interruptions are not counted."""
    spare_nodes: int | None = None
    """In addition to the job's nodes, likewise."""
    deadline_probability: Share | None = None
    """Probability that it meets the deadline, by how far measured runs are off; None where there is none."""
    budget_probability: Share | None = None
    """That it costs no more than the budget, likewise."""
    fit_probability: Share | None = None
    """That its fullest device has the memory that it needs."""
    careful: tuple[str, ...] = ()
    """What `plan` warns of on this size, memory that is all but full among it."""


class Neighbour(Record):
    """The smallest size found for another deadline, and what it costs against the answer."""

    deadline_days: float
    option: Option
    extra_dollars: float | None
    """Its cost less the answer's."""
    over_dollars: float | None = None
    """What it costs beyond the budget; None where that pays it, or there is none."""


class Size(Answer):
    """The answer to "how many GPUs", schema ``size/1``."""

    schema_: Literal["size/1"] = Field("size/1", alias="schema")
    status: Literal["met", "infeasible"]
    model: str
    cluster: str
    tokens: int
    deadline_days: float | None
    budget_dollars: float | None
    defaults: tuple[str, ...]
    answer: Option | None = None
    """The smallest for a deadline; the fastest where there is only a budget."""
    smallest: Option | None = None
    """The fewest nodes that meet the limits."""
    cheapest: Option | None = None
    """The least cost among the sizes that were searched and meet the limits."""
    fastest: Option | None = None
    """The least days among the sizes that were searched and meet the limits."""
    neighbours: tuple[Option, ...] = ()
    """One node fewer and one more than the answer, where they run."""
    day_later: Neighbour | None = None
    day_sooner: Neighbour | None = None
    surer: Option | None = None
    """Where the answer meets the limits with less than 80 %: what does with more, the smallest for a deadline, the
    fastest for a budget; None where no such size was found."""
    nearest: Option | None = None
    """Where nothing meets the limits: what comes nearest."""
    proved: bool = False
    """Whether every size below the smallest was searched to its end, or would need more than the peak rate."""
    searched: int = 0
    statement: str = ""
    provenance: Provenance


@dataclass(frozen=True)
class Limits:
    """What a size has to meet; None is no limit."""

    days: float | None
    dollars: float | None

    def met(self, option: Option | None) -> bool:
        """Whether an option meets them."""
        return option is not None and self.in_time(option) and self.in_budget(option)

    def in_time(self, option: Option) -> bool:
        """Whether it meets the deadline."""
        return self.days is None or option.days <= self.days

    def in_budget(self, option: Option) -> bool:
        """Whether it meets the budget."""
        return self.dollars is None or (option.cost_dollars or 0.0) <= self.dollars

    def surely_met(self, option: Option | None) -> bool:
        """Whether it meets them with a probability of ``SURE``."""
        chance = 1.0 if option is None else within_limits(option)
        return self.met(option) and (chance is None or chance >= SURE)


def within_limits(option: Option) -> float | None:
    """Probability that an option meets both limits, whose errors are one: of time; None where there is no limit."""
    known = [one for one in (option.deadline_probability, option.budget_probability) if one is not None]
    return min(known, default=None)


@dataclass
class Sizes:
    """Answers by nodes, each worked out once.

    Attributes:
        request: the question; its GPUs are the most that are considered.
        limits: what is asked of them.
        least: nodes below which the deadline would need more than the peak rate.
        most: nodes at most.
        each: accelerators of a node.
        budget: of all sizes together.
        refusal: why the last size that cannot be asked for cannot.
    """

    request: PlanRequest
    limits: Limits
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
        if self.effort_spent():
            self.unproved.add(nodes)
            return None
        asked = self.request.model_copy(update={"gpus": nodes * self.each})
        self.budget.go_on(f"searching for {plural(asked.gpus, 'GPU')}", len(self.known))
        try:
            plan = short_plan(asked, self.budget, self.shared.found)
        except (BadNodeCount, BadRequest) as reason:  # a size that the pins do not divide, or that cannot be had
            self.refusal = f"; {reason}"
            return None
        except OutOfTime:
            self.unproved.add(nodes)
            return None
        if plan.status == "feasible":
            self.unproved.add(nodes)
        return _option(plan, nodes, self.limits)

    def effort_spent(self) -> bool:
        """Whether the budget is spent."""
        return self.budget.spent()

    def options(self) -> list[Option]:
        """Every size that was searched and runs, smallest first."""
        return [option for nodes in sorted(self.known) if (option := self.known[nodes])]

    def first(self, met: Callable[[Option | None], bool], least: int) -> int | None:
        """Fewest nodes from ``least`` on that meet a limit, where fewer never do if more do not; None where none do."""
        below = least - 1
        for nodes in [n for n in round_sizes(self.most) if n >= least] + [self.most]:
            if self.effort_spent():
                return None
            if met(self.at(nodes)):
                return self.halved(met, fails=below, meets=nodes)
            below = nodes
        return None

    def halved(self, met: Callable[[Option | None], bool], *, fails: int, meets: int) -> int:
        """Nodes that meet a limit next to some that do not, between those that do and those that do not."""
        while abs(meets - fails) > 1 and not self.effort_spent():
            middle = (fails + meets) // 2
            if met(self.at(middle)):
                meets = middle
            else:
                fails = middle
        return meets

    def open_sizes(self, sizes: range) -> int:
        """How many of some sizes were not searched to the end."""
        return sum(nodes not in self.known or nodes in self.unproved for nodes in sizes)


def round_sizes(most: int) -> list[int]:
    """Powers of two and three halves of them, up to ``most``."""
    powers = [2**k for k in range(most.bit_length())]
    return sorted({n for power in powers for n in (power, power + power // 2) if n <= most})


def _option(plan: Plan, nodes: int, limits: Limits) -> Option | None:
    if plan.strategy is None or plan.prediction is None or not plan.fits:
        return None
    said, good = plan.prediction, plan.goodput
    days, cost = good.wall_days if good else said.training_days, good.wall_cost_dollars if good else said.cost_dollars
    return Option(
        gpus=plan.request["gpus"],
        nodes=nodes,
        days=days,
        cost_dollars=cost,
        mfu=said.mfu,
        iteration_seconds=said.iteration_seconds,
        global_batch_size=plan.strategy.global_batch_size,
        strategy=plan.strategy,
        proved=plan.status == "optimal",
        effective=good.effective if good else None,
        spare_nodes=good.spare_nodes if good else None,
        deadline_probability=probability_within(said, limits.days / days) if limits.days else None,
        budget_probability=probability_within(said, limits.dollars / cost) if limits.dollars and cost else None,
        fit_probability=said.fit_probability,
        careful=plan.warnings,
    )
