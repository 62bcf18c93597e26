"""What `robust` asks of a question, over one node group or over several, whose machines are uncertain."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from costmodels.groups import Mixed, price_mixed
from costmodels.layout.split import Assignment
from costmodels.pricing import price_strategy
from costmodels.scenario import Scenario
from planner.analyses.what_if import best_of
from planner.answer.build import strategy_record
from planner.answer.plan import Strategy
from planner.errors import NothingFits, OutOfTime
from planner.explain.levers import uncertain_of
from planner.explain.mixed import promising as promising_branches
from planner.explain.mixed_records import mixed_record
from planner.mixed import space_that_fits
from planner.request.pins import parse_pins
from planner.request.request import PlanRequest, Resolved
from planner.search import mixed as mixed_search
from planner.search.best_first import promising, search
from planner.search.mixed import MixedIncumbent
from planner.search.objective import aim_of
from planner.search.split import Incumbent, best_split
from planner.space.lattice import Space
from planner.space.mixed import MixedSpace

BESIDE = 16
"""Best rows of the middle that are candidates beside the best of every scenario."""

Machines = TypeVar("Machines")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Question(Generic[Machines, Found]):
    """A question whose strategies are ``Found``, on ``Machines``."""

    said: Machines
    """With everything as it is said to be."""
    names: tuple[str, ...]
    """What is uncertain; of several node groups, of all of them alike."""
    changed: Callable[[Mapping[str, float]], Machines]
    """With factors on some of it."""
    best: Callable[[Machines, float], Found]
    """The proved best there, by a deadline."""
    beside: Callable[[float], list[Found]]
    """Good ones as it is said."""
    seconds: Callable[[Found, Machines], float]
    record: Callable[[Found], Strategy]
    axes: Callable[[Found], tuple[object, ...]]
    """All by which two strategies differ."""


def on_one_group(request: PlanRequest) -> Question[Scenario, Incumbent]:
    """The question on one node group.

    Raises:
        BadRequest, OutOfTime: as `sensitivity.best_of`.
    """
    resolved, space, _, _ = best_of(request)
    scenario = aim_of(resolved).scenario
    return Question(
        scenario,
        names=tuple(uncertain_of(scenario)),
        changed=lambda factors: changed_by(scenario, factors),
        best=lambda machines, until: _best(space, machines, until),
        beside=lambda until: _beside(space, scenario, until),
        seconds=lambda one, machines: price_strategy(one.row, machines, one.assignment).iteration,
        record=lambda one: strategy_record(one.row, one.assignment, scenario),
        axes=lambda one: (*one.row.row(0).items(), *_layers(one.assignment)),
    )


def on_groups(resolved: Resolved, mixed: Mixed) -> Question[Mixed, MixedIncumbent]:
    """The question on several node groups.

    Raises:
        NothingFits: no strategy does.
        OutOfTime: no strategy was found in time.
    """
    until = time.perf_counter() + resolved.request.time_limit
    space, outcome, _ = space_that_fits(mixed, parse_pins(resolved.request.pins), until)
    if outcome.best is None:
        if outcome.proved:
            raise NothingFits("nothing fits; `plan` says why and what comes nearest")
        raise OutOfTime(f"no plan within {resolved.request.time_limit:g} s")
    return Question(
        mixed,
        names=tuple(dict.fromkeys(name for one in mixed.scenarios for name in uncertain_of(one))),
        changed=lambda factors: changed_groups(mixed, factors),
        best=lambda machines, until: _best_over(space, machines, until),
        beside=lambda until: _beside_over(space, mixed, until),
        seconds=lambda one, machines: price_mixed(one.row, machines, one.assignment).iteration,
        record=lambda one: mixed_record(one.row, one.assignment, mixed),
        axes=_axes_over,
    )


def changed_by(scenario: Scenario, factors: Mapping[str, float]) -> Scenario:
    """The scenario with its uncertain quantities times those factors."""
    levers = uncertain_of(scenario)
    for name, factor in factors.items():
        if name in levers:
            scenario = levers[name](scenario, factor)
    return scenario


def changed_groups(mixed: Mixed, factors: Mapping[str, float]) -> Mixed:
    """The same of all node groups; links between groups are network."""
    parts = tuple(changed_by(one, factors) for one in mixed.scenarios)
    network = factors.get("network", 1.0)
    links = tuple(one.model_copy(update={"link": one.link.times(network)}) for one in mixed.cluster.between)
    groups = tuple(one.group for one in parts)
    return Mixed(mixed.cluster.model_copy(update={"groups": groups, "between": links}), parts)


def _best(space: Space, scenario: Scenario, until: float) -> Incumbent:
    found = search(space, scenario, deadline=until)
    if found.best is None or not found.proved:
        raise OutOfTime(LATE)
    return found.best


def _best_over(space: MixedSpace, mixed: Mixed, until: float) -> MixedIncumbent:
    found = mixed_search.search(space, mixed, deadline=until)
    if found.best is None or not found.proved:
        raise OutOfTime(LATE)
    return found.best


LATE = "the scenarios were not all proved in time; --time-limit gives more"


def _beside(space: Space, scenario: Scenario, until: float) -> list[Incumbent]:
    """The most promising rows of the middle, each under its best split."""
    outcome = search(space, scenario, deadline=until)
    found: list[Incumbent] = []
    for _, row in promising(outcome, scenario):
        if len(found) >= BESIDE or time.perf_counter() > until:
            break
        if solved := best_split(row, scenario, deadline=until):
            found.append(solved)
    return found


def _beside_over(space: MixedSpace, mixed: Mixed, until: float) -> list[MixedIncumbent]:
    outcome = mixed_search.search(space, mixed, deadline=until)
    found: list[MixedIncumbent] = []
    for _, one in promising_branches(outcome):
        if len(found) >= BESIDE or time.perf_counter() > until:
            break
        if solved := mixed_search.best_split(one, mixed, deadline=until):
            found.append(solved)
    return found


def _axes_over(one: MixedIncumbent) -> tuple[object, ...]:
    rows = one.row
    at = tuple(tuple(group.row(0).items()) for group in rows.groups)
    return (*at, *rows.stages[0].tolist(), *rows.order[0].tolist(), *_layers(one.assignment))


def _layers(split: Assignment) -> tuple[int, ...]:
    return (*split.layers.tolist(), *split.recomputed.tolist())
