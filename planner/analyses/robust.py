"""The strategy with the least worst-case regret where bandwidths and efficiencies are uncertain.

A scenario has every uncertain quantity of `uncertain_levers` at 1 - x, 1 or 1 + x of its stated value: all
corners of that box and its middle. Each is searched, so that its best time is proved, and the regret of a strategy in a
scenario is how much longer it takes there than that. Candidates are the best of every scenario and the best rows of the
middle; the choice is the least worst case over these. That is exact for them and for these scenarios; it is no proof
over all strategies, nor between the corners. A question is over one node group or over several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product, takewhile
from typing import Any, Final, Generic, Literal, TypeVar

import numpy as np
from pydantic import Field

from costmodels.groups import Mixed, price_mixed
from costmodels.layout.split import Assignment
from costmodels.pricing import price_strategy
from costmodels.scenario import Scenario
from costmodels.strategy import Floats
from planner.analyses.what_if import best_of, nothing_found
from planner.answer.build import provenance_record, strategy_record
from planner.answer.plan import Provenance, Record, Strategy
from planner.api.several_groups import space_that_fits
from planner.errors import BadRequest, OutOfTime
from planner.explain.mixed import mixed_record
from planner.explain.mixed import promising as promising_branches
from planner.explain.what_helps import uncertain_levers
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.request.request import PlanRequest
from planner.request.resolve import Resolved, resolve
from planner.request.values import share
from planner.search import mixed as mixed_search
from planner.search.best_first import promising, search
from planner.search.choice import CLOSE
from planner.search.mixed import MixedIncumbent
from planner.search.objective import objective_of
from planner.search.split import TOLERANCE, Incumbent, best_split

RUNNERS_UP = 16
"""Best rows of the middle that are candidates besides the best of every scenario."""
Machines = TypeVar("Machines")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Question(Generic[Machines, Found]):
    """A question whose strategies are ``Found``, on ``Machines``."""

    names: tuple[str, ...]
    """What is uncertain; of several node groups, of all of them alike."""
    changed: Callable[[Mapping[str, float]], Machines]
    """With factors on some of it."""
    search: Callable[[Machines], Any]
    """The outcome of a search there."""
    next_best: Callable[[Any], Iterator[Found | None]]
    """The most promising rows of an outcome, each under its best split; None where none fits."""
    seconds: Callable[[Found, Machines], float]
    record: Callable[[Found], Strategy]
    axes: Callable[[Found], tuple[object, ...]]
    """All by which two strategies differ."""
    budget: Budget

    def proved(self, machines: Machines) -> Any:
        """The outcome of a search on some machines, whose best is proved."""
        found = self.search(machines)
        if found.best is None or not found.proved:
            raise OutOfTime(f"the scenarios were not all proved {self.budget.limit}")
        return found

    def runners_up(self, found: Any) -> list[Found]:
        """Good ones of the outcome with everything at its stated value."""
        solved = takewhile(lambda _: not self.budget.spent(), self.next_best(found))
        return list(islice((one for one in solved if one is not None), RUNNERS_UP))


def on_one_group(request: PlanRequest, budget: Budget) -> Question[Scenario, Incumbent]:
    """The question on one node group.

    Raises:
        BadRequest, OutOfTime: as `what_if.best_of`.
    """
    resolved, space, _, _ = best_of(request, budget)
    scenario = objective_of(resolved).scenario
    return Question(
        names=tuple(uncertain_levers(scenario)),
        changed=lambda factors: changed_by(scenario, factors),
        search=lambda machines: search(space, machines, budget=budget),
        next_best=lambda found: (best_split(r, scenario, budget=budget) for _, r in promising(found, scenario)),
        seconds=lambda one, machines: price_strategy(one.row, machines, one.assignment).iteration,
        record=lambda one: strategy_record(one.row, one.assignment, scenario),
        axes=lambda one: (*one.row.row(0).items(), *_layers(one.assignment)),
        budget=budget,
    )


def on_groups(resolved: Resolved, mixed: Mixed, budget: Budget) -> Question[Mixed, MixedIncumbent]:
    """The question on several node groups.

    Raises:
        NothingFits: no strategy does.
        OutOfTime: no strategy was found within the budget.
    """
    space, outcome, _ = space_that_fits(mixed, parse_pins(resolved.request.pins), budget)
    if outcome.best is None:
        raise nothing_found(budget, proved=outcome.proved)
    return Question(
        names=tuple(dict.fromkeys(name for one in mixed.scenarios for name in uncertain_levers(one))),
        changed=lambda factors: changed_groups(mixed, factors),
        search=lambda machines: mixed_search.search(space, machines, budget=budget),
        next_best=lambda found: (
            mixed_search.best_split(one, mixed, budget=budget) for _, one in promising_branches(found)
        ),
        seconds=lambda one, machines: price_mixed(one.row, machines, one.assignment).iteration,
        record=lambda one: mixed_record(one.row, one.assignment, mixed),
        axes=_axes_on_groups,
        budget=budget,
    )


def changed_by(scenario: Scenario, factors: Mapping[str, float]) -> Scenario:
    """The scenario with its uncertain quantities times those factors."""
    levers = uncertain_levers(scenario)
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


def _axes_on_groups(one: MixedIncumbent) -> tuple[object, ...]:
    rows = one.row
    at = tuple(tuple(group.row(0).items()) for group in rows.groups)
    return (*at, *rows.stages[0].tolist(), *rows.order[0].tolist(), *_layers(one.assignment))


def _layers(split: Assignment) -> tuple[int, ...]:
    return (*split.layers.tolist(), *split.recomputed.tolist())


STEPS: Final = 6
"""Halvings of the radius: to 1/64 of the box."""


class Candidate(Record):
    """A strategy and how it fares over the scenarios."""

    strategy: Strategy
    seconds: float
    """In the middle, where everything is nominal."""
    regret: float
    """In the middle: share over the best there."""
    worst_regret: float
    worst_where: dict[str, float]
    """The factors of the scenario where it is worst."""
    best_in: int
    """Scenarios in which nothing searched is faster."""


class Robust(Record):
    """The answer, schema ``robust/1``."""

    schema_: Literal["robust/1"] = Field("robust/1", alias="schema")
    model: str
    cluster: str
    gpus: int
    within: float
    """Share by which every quantity may be off."""
    uncertain: tuple[str, ...]
    scenarios: int
    chosen: Candidate
    best: Candidate
    """The fastest where everything is nominal."""
    others: tuple[Candidate, ...]
    """The next in the order of their worst regret."""
    radius: float
    """Largest share, up to ``within``, at whose corners no candidate beats the best by more than 0.1 %."""
    statement: str
    defaults: tuple[str, ...]
    provenance: Provenance


def robust(request: PlanRequest, within: float | str) -> Robust:
    """The least worst-case regret over the corners of what is uncertain.

    Args:
        request: the question.
        within: share by which every quantity may be off, both ways, such as 0.2 or "20%"; above 0 and below 1.

    Raises:
        BadRequest: a share out of range, or as `what_if.best_of`.
        OutOfTime: the budget was spent before every scenario was proved.
    """
    within = share("--robust", within)
    if not 0.0 < within < 1.0:
        raise BadRequest(f"--robust: expected a share between 0 and 1 such as 20%, got {within:g}")
    budget, resolved = Budget(request.time_limit), resolve(request)
    if resolved.mixed:
        return _answer(on_groups(resolved, resolved.mixed, budget), resolved, resolved.mixed.gpus, within)
    return _answer(on_one_group(request, budget), resolved, resolved.scenario.gpus, within)


def _answer(asked: Question[Machines, Found], resolved: Resolved, gpus: int, within: float) -> Robust:
    corners = corners_of(asked.names, within)
    outcomes = [asked.proved(asked.changed(factors)) for factors in corners]
    found: list[Found] = [outcome.best for outcome in outcomes]
    distinct: dict[tuple[object, ...], Found] = {}  # strategies that differ in an axis or in their layers
    for one in (*found, *asked.runners_up(outcomes[0])):
        distinct.setdefault(asked.axes(one), one)
    candidates = list(distinct.values())
    least = np.array([asked.seconds(one, asked.changed(at)) for one, at in zip(found, corners, strict=True)])
    seconds = _seconds(asked, candidates, corners)
    regret = seconds / least - 1.0

    def candidate(i: int) -> Candidate:
        return Candidate(
            strategy=asked.record(candidates[i]),
            seconds=float(seconds[i, 0]),
            regret=max(float(regret[i, 0]), 0.0),
            worst_regret=max(float(regret[i].max()), 0.0),
            worst_where=corners[int(regret[i].argmax())],
            best_in=int(np.sum(regret[i] <= TOLERANCE)),
        )

    ranked = _without_repeats(map(candidate, np.lexsort((regret[:, 0], regret.max(axis=1))).tolist()))
    best = int(np.argmin(seconds[:, 0]))
    return Robust(
        model=resolved.scenario.model.name,
        cluster=resolved.cluster.name,
        gpus=gpus,
        within=within,
        uncertain=asked.names,
        scenarios=len(corners),
        chosen=ranked[0],
        best=candidate(best),
        others=tuple(ranked[1 : 1 + resolved.request.top]),
        radius=_radius(asked, candidates, within, best),
        statement=f"exact over {len(candidates)} candidates and {len(corners)} scenarios, each of whose best times is "
        "proved; other strategies, and points between the corners, are not looked at",
        defaults=resolved.defaults,
        provenance=provenance_record(resolved),
    )


def _without_repeats(ranked: Iterable[Candidate]) -> list[Candidate]:
    """Candidates without those that differ from an earlier one in nothing that is priced."""
    kept: dict[tuple[float, float], Candidate] = {}
    for one in ranked:
        kept.setdefault((round(one.seconds, 9), round(one.worst_regret, 9)), one)
    return list(kept.values())


def corners_of(names: Sequence[str], within: float) -> list[dict[str, float]]:
    """Factors of every scenario, the middle first, then all corners."""
    ends = product((1.0 - within, 1.0 + within), repeat=len(names))
    return [dict.fromkeys(names, 1.0), *(dict(zip(names, corner, strict=True)) for corner in ends)]


def _seconds(asked: Question[Machines, Found], candidates: list[Found], corners: list[dict[str, float]]) -> Floats:
    """Of every candidate in every scenario (C, S)."""
    changed = [asked.changed(factors) for factors in corners]
    return np.array([[asked.seconds(one, machines) for machines in changed] for one in candidates])


def _radius(asked: Question[Machines, Found], candidates: list[Found], within: float, best: int) -> float:
    """Largest share at whose corners no candidate beats the best of the middle noticeably, by halving."""

    def stays(share: float) -> bool:
        seconds = _seconds(asked, candidates, corners_of(asked.names, share))
        return bool(np.all(seconds[best] <= seconds.min(axis=0) * (1.0 + CLOSE)))

    if stays(within):
        return within
    low, high = 0.0, within
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if stays(middle) else (low, middle)
    return low
