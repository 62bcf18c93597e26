"""The objective of a request: seconds of an iteration, seconds of wall time, or bytes; and the search for its least.

At a given number of devices time, utilisation, money and tokens per device-hour put strategies in the same order. Wall
time counts interruptions and checkpoints too, memory is what the fullest device allocates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from costmodels.node_groups import AnyScenario, Mixed, parts_of, price
from costmodels.pricing import iteration_seconds, stage_bytes
from costmodels.scenario import Scenario
from costmodels.strategy import Floats, Ints, Strategies
from costmodels.training.goodput import upkeep
from planner.answer.text import format_bytes, format_seconds
from planner.errors import OutOfTime
from planner.request.budget import Budget
from planner.request.pins import Pin, parse_pins
from planner.request.resolve import Resolved
from planner.search.best_first import MARGIN, Outcome, promising, search
from planner.search.choice import Choice, choose, width
from planner.search.core_bounds import core_bound, know_bound, layer_bound, passes_bound
from planner.search.first_strategy import first_strategy
from planner.search.fitting import those_that_may_fit
from planner.search.least_bytes import SPARING, known_bytes, least_bytes
from planner.search.least_memory import least_memory_split, least_memory_strategies, search_least_memory
from planner.search.priced import Priced
from planner.search.split import TOLERANCE, Incumbent, best_split
from planner.space.cache import cached_space
from planner.space.lattice import PASSES, Begun, Likely, Space, begin, build
from planner.space.mixed import lay_out

MANY = 1 << 17
"""Rows of a lattice without switches from which what is far slower is left out of it."""
LEAST = 1 / 32
"""Share of the rows, those of the least bounds, that a first strategy is looked for in."""
AFTER = 3e4
"""Effort of the search after a time limit that left none: some rows are priced, and their layers hardly split."""
FAR = 2.05
"""Times the seconds or bytes of that strategy from which others are left out: a machine twice as fast gains less."""

Promising = tuple[float, Strategies]
"""A row, and what no split of it needs less of."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A quantity to minimise, and what it is priced on.

    Attributes:
        name: as in the request: time, goodput, memory.
        question: what a search prices, with interruptions and checkpoints where goodput is wanted.
        tie_width: how much slower than the fastest a plan may be and be taken in its place, as a share.
        margin: share of the devices' memory that the question leaves alone.
    """

    name: str
    question: AnyScenario
    tie_width: float
    margin: float = 0.0

    @property
    def scenario(self) -> Scenario:
        """The question on its one node group, or on the first of several."""
        return parts_of(self.question)[0]

    @property
    def by_memory(self) -> bool:
        """Whether bytes count, not seconds."""
        return self.name == "memory"

    @property
    def by_time(self) -> bool:
        """Whether an iteration's seconds are all that counts, which are what measured sweeps bear out."""
        return self.name not in {"memory", "goodput"}

    def on(self, question: AnyScenario) -> Objective:
        """This objective on other machines, or with another batch."""
        if isinstance(question, Scenario):
            question = replace(question, stability=self.scenario.stability)
        return replace(self, question=question)

    def search(
        self,
        space: Space,
        *,
        budget: Budget,
        among: Ints | None = None,
        margin: float | None = None,
        seen: Sequence[Priced] = (),
        confirm: bool = True,
        below: float = math.inf,
    ) -> Outcome:
        """The best of the space, with what was seen on the way; arguments as of ``best_first.search``."""
        if self.by_memory:
            return search_least_memory(space, self.scenario, budget=budget, among=among, below=below)
        near = max(MARGIN, 1.0 + self.tie_width) if margin is None else margin
        known = {"budget": budget, "among": among, "margin": near, "seen": seen, "confirm": confirm, "below": below}
        return search(space, self.question, **known)  # type: ignore[arg-type]

    def search_below(
        self, pins: Mapping[str, Pin], below: float, *, budget: Budget, margin: float = 1.0, confirm: bool = True
    ) -> Outcome:
        """The best of another lattice that takes less than so many seconds or bytes, laid out only as far as it may.

        Raises:
            BadRequest, OutOfTime: as ``lattice.build``.
        """
        reach = margin * below * (1.0 + TOLERANCE)
        space = build_below(self, pins, reach, budget=budget)
        fit = those_that_may_fit(space, np.arange(len(space.cores)), self.scenario)
        return self.search(space, budget=budget, among=fit, margin=margin, confirm=confirm, below=below)

    def bounds(self, pins: Mapping[str, Pin]) -> bool:
        """Whether ``layer_bound`` is one of all strategies that the pins allow."""
        return not (self.by_memory and SPARING & set(pins))

    def layer_bound(self, rows: Strategies) -> Floats:
        """What no strategy needs less of, in what a search compares, by the axes of a layer alone, (N,)."""
        return least_bytes(rows, self.scenario) if self.by_memory else layer_bound(rows, self.scenario)

    def passes_bound(self, rows: Strategies) -> Floats:
        """The same by chunks and schedule too, which bytes do not ask for."""
        return least_bytes(rows, self.scenario) if self.by_memory else passes_bound(rows, self.scenario)

    def core_bound(self, cores: Strategies) -> Floats:
        """The same of cores, (C,)."""
        return known_bytes(cores, self.scenario) if self.by_memory else core_bound(cores, self.scenario)

    def sought(self, found: Incumbent) -> float:
        """What a search compares, of a strategy that it found: seconds, or bytes under the even split."""
        return found.even_split_peak_bytes if self.by_memory else found.iteration

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

    def compared(self, found: Incumbent) -> float:
        """What a search compares, of a strategy found elsewhere: seconds, or wall time less what all lose alike."""
        if isinstance(self.question, Mixed):
            return price(found.row, self.question, found.assignment).iteration
        return iteration_seconds(found.row, self.question, found.assignment)

    def seconds(self, found: Incumbent) -> float:
        """Seconds of an iteration, without interruptions and checkpoints, of a strategy that a search found."""
        return found.iteration if self.by_time else self._iteration_seconds(found)

    def _iteration_seconds(self, found: Incumbent) -> float:
        question = self.question
        plain = question if isinstance(question, Mixed) else replace(question, stability=None)
        return replace(self, question=plain).compared(found)

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

    def promising(self, outcome: Outcome, budget: Budget, below: float, asked: Likely) -> Iterator[Promising]:
        """The most promising rows that a search saw, each with its bound, best first; some only, from ``below`` on.

        Those that are not ``asked`` for may be left out.
        """
        if self.by_memory:
            yield from least_memory_strategies(outcome, self.scenario, budget)
            return
        best, alike = outcome.best, 1.0
        if best and not self.by_time:  # a search leaves out of wall time what all strategies lose alike
            alike = self.value(best) / iteration_seconds(best.row, self.scenario, best.assignment)
        for bound, row in promising(outcome, self.question, budget, below / alike * (1.0 + TOLERANCE), asked):
            yield bound * alike, row

    def split(self, row: Strategies, budget: Budget) -> Incumbent | None:
        """A row under the split of its layers that this objective likes best; None where none fits in time."""
        if self.by_memory:
            return least_memory_split(row, self.scenario, budget=budget)
        return best_split(row, self.question, budget=budget)

    def choice(self, outcome: Outcome) -> Choice:
        """The best, or what is as good as that and better validated."""
        return choose(outcome, self.scenario, self.tie_width, self.margin)


def objective_of(resolved: Resolved) -> Objective:
    """The objective of a request, with what to price for it."""
    name = resolved.request.objective
    if resolved.mixed:
        return Objective(name, resolved.mixed, 0.0, resolved.margin)
    tie_width = 0.0 if name in {"memory", "goodput"} else width(resolved.request.ties)
    stability = resolved.stability if name == "goodput" else None
    return Objective(name, replace(resolved.scenario, stability=stability), tie_width, resolved.margin)


@dataclass
class Search:
    """A question that was searched: what was asked, among which strategies, and what was found.

    Attributes:
        resolved: the request.
        pins: the request's, or as they were read, one value for each node group.
        space: the lattice.
        outcome: what the search found there.
        within: what else the lattice was restricted to, as a phrase.
        beyond: what is faster without that restriction, as a sentence.
        kept: which cores it was restricted to, (N,); all of them unless given.
    """

    resolved: Resolved
    pins: Mapping[str, Pin]
    space: Space
    outcome: Outcome
    within: str = ""
    beyond: str = ""
    kept: Likely | None = None

    def whole(self, budget: Budget, rows: Likely | None = None) -> Space:
        """The lattice with what was left out of it for being far slower; of one node group, the ``rows`` alone.

        Raises:
            OutOfTime: the time limit passed.
        """
        begun = begin(self.objective.scenario, self.pins, budget=budget)
        space = begun.finish(np.flatnonzero(begun.each(rows)) if rows else slice(None))
        return space.among(np.flatnonzero(self.kept(space.cores))) if self.kept else space

    @cached_property
    def objective(self) -> Objective:
        """What was looked for."""
        return objective_of(self.resolved)

    @cached_property
    def choice(self) -> Choice:
        """The strategy taken, where anything was found."""
        return self.objective.choice(self.outcome)

    @property
    def fastest(self) -> Incumbent:
        """What the search is the proof of, where anything was found."""
        assert self.outcome.best is not None
        return self.outcome.best

    @property
    def taken(self) -> Incumbent:
        """The same without why."""
        return self.choice.taken

    @property
    def value(self) -> float:
        """Its quantity."""
        return self.objective.value(self.taken)


class Searched(NamedTuple):
    """A whole lattice that was searched for the fastest, with what was found."""

    question: AnyScenario
    space: Space
    outcome: Outcome

    def answers(self, objective: Objective, space: Space) -> bool:
        """Whether a search of another lattice, of one node group, would find the very same for an objective."""
        if not (objective.by_time and objective.tie_width <= MARGIN - 1.0 and isinstance(self.question, Scenario)):
            return False
        return self.outcome.proved and objective.question == self.question and self.space.same(space)


def search_question(
    resolved: Resolved,
    budget: Budget,
    pins: Mapping[str, Pin] | None = None,
    *,
    any_width: bool = False,
    known: Searched | None = None,
) -> Search:
    """Lay out the lattice of a question and search it, unless what is ``known`` answers it.

    ``pins`` are the request's unless they are given.

    Over several node groups every stage has as many ranks, as launchers ask for; only where no such strategy fits do
    widths differ. Where nothing fits at all, the lattice is that of one width unless ``any_width``.

    Raises:
        BadRequest: pinned degrees that cannot make up the GPUs.
        OutOfTime: the budget was spent before a lattice over several node groups was laid out.
    """
    objective, pins = objective_of(resolved), pins or parse_pins(resolved.request.pins)
    question = objective.question
    space = lay_out(question, pins, budget=budget) if isinstance(question, Mixed) else _lattice(objective, pins, budget)
    if known and known.answers(objective, space):
        shared = replace(known.space, candidates=space.candidates, refusals=space.refusals)
        return Search(resolved, pins, shared, known.outcome)
    outcome = objective.search(space, budget=budget)
    cut_off = budget.timed and outcome.best is None and not outcome.proved and not isinstance(question, Mixed)
    if space.sampled or cut_off:
        return Search(resolved, pins, space, _after_the_limit(objective, space))
    if isinstance(question, Mixed) and outcome.best is None and outcome.proved:
        wider = lay_out(question, pins, one_width=False, budget=budget)
        found = objective.search(wider, budget=budget)
        if any_width or found.best or not found.proved:
            return Search(resolved, pins, wider, found)
    return Search(resolved, pins, space, outcome)


def _lattice(objective: Objective, pins: Mapping[str, Pin], budget: Budget) -> Space:
    """The lattice of one node group; of a large one what may be of use, where an answer does not list its values."""
    if any(pin.listed for pin in pins.values()) or not objective.bounds(pins):
        return cached_space(objective.scenario, pins, budget)
    return cached_space(objective.scenario, pins, budget, lambda begun: _far_left_out(begun, objective))


def _far_left_out(begun: Begun, objective: Objective) -> Space | None:
    """A large lattice without what needs far more than some strategy that fits; None of others.

    The strategy comes from rows spread over those of the least bounds, and from rows like its own. Where a time limit
    passes before what may be better is laid out, the former alone, with the least bound of all.
    """
    if len(begun.table) < MANY:
        return None
    bound = begun.each(objective.passes_bound)
    place = int(LEAST * len(bound))
    least = np.flatnonzero(bound <= np.partition(bound, place)[place])
    untimed = replace(begun, table=replace(begun.table, budget=None))
    some, found = first_strategy(untimed, least, bound, objective.scenario, by_memory=objective.by_memory)
    if not math.isfinite(found):
        return begun.finish()
    try:
        return near_lattice(begun, objective, FAR * found, bound)
    except OutOfTime:
        return replace(some, below=float(bound.min()), sampled=True)


def _after_the_limit(objective: Objective, space: Space) -> Outcome:
    """What a small part of a second still finds where a time limit left none for what is laid out."""
    found = objective.search(space, budget=Budget(effort=AFTER))
    if space.sampled:
        return replace(found, proved=False, lower_bound=0.0 if objective.by_memory else space.below)
    return found


def build_below(objective: Objective, pins: Mapping[str, Pin], below: float, *, budget: Budget | None = None) -> Space:
    """The lattice of what may need less than so many seconds or bytes; all where that is infinite or not known.

    Counts and refusals are of no use.

    Raises:
        BadRequest, OutOfTime: as ``lattice.build``.
    """
    if not (math.isfinite(below) and objective.bounds(pins)):
        return build(objective.scenario, pins, budget=budget)
    begun = begin(objective.scenario, pins, budget=budget, layer_first=True)
    begun = begun.among(np.flatnonzero(begun.each(objective.layer_bound) < below)).further(PASSES)
    return begun.finish(np.flatnonzero(begun.each(objective.passes_bound) < below))


def near_lattice(begun: Begun, objective: Objective, below: float, bound: Floats) -> Space:
    """A lattice without what cannot need less than so many seconds or bytes, by the ``bound`` of its rows, (N,)."""
    space, needs = begun.finish_near(np.flatnonzero(bound < below), objective.core_bound, below)
    if not objective.by_memory:
        know_bound(space.cores, objective.scenario, needs)
    return space


__all__ = ["Objective", "Search", "Searched", "build_below", "near_lattice", "objective_of", "search_question"]
