"""The strategy with the least worst-case regret where bandwidths and efficiencies are uncertain.

A scenario has every uncertain quantity of `uncertain_levers` at 1 - x, 1 or 1 + x of its stated value: all
corners of that box and its middle. Each is searched, so that its best time is proved, and the regret of a strategy in a
scenario is how much longer it takes there than that. Candidates are the best of every scenario and the best rows of the
middle; the choice is the least worst case over these. That is exact for them and for these scenarios; it is no proof
over all strategies, nor between the corners. A question is over one node group or over several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product, takewhile
from typing import Final, Literal

import numpy as np
from pydantic import Field

from costmodels.layout.split import Assignment
from costmodels.node_groups import AnyScenario, Mixed, MixedStrategies, as_it_runs, parts_of, price
from costmodels.pricing import iterations_together
from costmodels.scenario import Scenario
from costmodels.strategy import Floats
from planner.analyses.what_if import best_of, nothing_found
from planner.answer.build import provenance_record, strategy_record
from planner.answer.plan import Answer, Provenance, Record, Strategy
from planner.errors import BadRequest, OutOfTime
from planner.explain.levers import uncertain_levers
from planner.explain.warnings import not_startable
from planner.request.budget import Budget
from planner.request.pins import parse_pins
from planner.request.progress import Tell
from planner.request.request import PlanRequest
from planner.request.resolve import Resolved
from planner.request.values import share
from planner.search.best_first import Outcome, promising, search
from planner.search.choice import CLOSE
from planner.search.objective import Objective, Search, objective_of, search_question
from planner.search.question import resolve_search
from planner.search.split import TOLERANCE, Incumbent, best_split
from planner.space.lattice import Space

RUNNERS_UP = 16
"""Best rows of the middle that are candidates besides the best of every scenario."""


@dataclass(frozen=True)
class Question:
    """A lattice of strategies and the machines that they are priced on, on one node group or several."""

    resolved: Resolved
    space: Space
    budget: Budget

    @cached_property
    def objective(self) -> Objective:
        """What every scenario changes the machines of."""
        return objective_of(self.resolved)

    @property
    def names(self) -> tuple[str, ...]:
        """What is uncertain; of several node groups, of all of them alike."""
        parts = parts_of(self.objective.question)
        return tuple(dict.fromkeys(name for one in parts for name in uncertain_levers(one)))

    def changed(self, factors: Mapping[str, float]) -> AnyScenario:
        """The machines with factors on some of it."""
        question = self.objective.question
        return changed_groups(question, factors) if isinstance(question, Mixed) else changed_by(question, factors)

    def proved(self, machines: AnyScenario) -> tuple[Outcome, Incumbent]:
        """The outcome of a search on some machines, and its best, which is proved."""
        found = search(self.space, machines, budget=self.budget)
        if found.best is None or not found.proved:
            raise OutOfTime(f"the scenarios were not all proved {self.budget.limit}")
        return found, found.best

    def runners_up(self, found: Outcome) -> list[Incumbent]:
        """Good ones of the outcome with everything at its stated value, each under its best split."""
        question = self.objective.question
        solved = (best_split(one, question, budget=self.budget) for _, one in promising(found, question, self.budget))
        within = takewhile(lambda _: not self.budget.spent(), solved)
        return list(islice((one for one in within if one is not None), RUNNERS_UP))

    def warnings(self, chosen: Incumbent) -> tuple[str, ...]:
        """That the stack's framework does not start a strategy; nobody knows of several node groups."""
        if self.resolved.mixed:
            return ()
        pins = parse_pins(self.resolved.request.pins)
        return not_startable(Search(self.resolved, pins, self.space, Outcome(best=chosen)))


def _asked(request: PlanRequest, resolved: Resolved, budget: Budget) -> Question:
    """The question with its lattice.

    Raises:
        BadRequest, NothingFits, OutOfTime: as `what_if.best_of`.
    """
    if not resolved.mixed:
        resolved, space, _, _ = best_of(request, budget)
        return Question(resolved, space, budget)
    found = search_question(resolved, budget)
    if found.outcome.best is None:
        raise nothing_found(budget, proved=found.outcome.proved)
    return Question(resolved, found.space, budget)


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


def _axes(one: Incumbent) -> tuple[object, ...]:
    """All by which two strategies differ."""
    row = one.row
    if not isinstance(row, MixedStrategies):
        return (*row.row(0).items(), *_layers(one.assignment))
    at = tuple(tuple(group.row(0).items()) for group in row.groups)
    return (*at, *row.stages[0].tolist(), *row.order[0].tolist(), *_layers(one.assignment))


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


class Robust(Answer):
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
    warnings: tuple[str, ...] = ()
    """That the stack's framework does not start the choice."""
    defaults: tuple[str, ...]
    provenance: Provenance


def robust(request: PlanRequest, within: float | str, *, progress: Tell | None = None) -> Robust:
    """The least worst-case regret over the corners of what is uncertain.

    Args:
        request: the question.
        within: share by which every quantity may be off, both ways, such as 0.2 or "20%"; above 0 and below 1.
        progress: called with how far the answer has come, as a `Progress`.

    Raises:
        BadRequest: a share out of range, or as `what_if.best_of`.
        OutOfTime: the budget was spent before every scenario was proved.
    """
    within = share("--robust", within)
    if not 0.0 < within < 1.0:
        raise BadRequest(f"--robust: expected a share between 0 and 1 such as 20%, got {within:g}")
    budget, resolved = Budget(request.time_limit, progress=progress), resolve_search(request)
    asked = _asked(request, resolved, budget)
    corners = corners_of(asked.names, within)
    outcomes: list[tuple[Outcome, Incumbent]] = []
    for factors in corners:
        budget.go_on("searching every corner of what is uncertain", len(outcomes), len(corners))
        outcomes.append(asked.proved(asked.changed(factors)))
    found = [best for _, best in outcomes]
    distinct: dict[tuple[object, ...], Incumbent] = {}  # strategies that differ in an axis or in their layers
    for one in (*found, *asked.runners_up(outcomes[0][0])):
        distinct.setdefault(_axes(one), one)
    candidates, places = list(distinct.values()), {axes: place for place, axes in enumerate(distinct)}
    seconds = _table(asked, candidates, corners)
    least = seconds[[places[_axes(one)] for one in found], np.arange(len(corners))]
    regret = seconds / least - 1.0

    def candidate(i: int) -> Candidate:
        return Candidate(
            strategy=strategy_record(candidates[i].row, candidates[i].assignment, asked.objective.question),
            seconds=float(seconds[i, 0]),
            regret=max(float(regret[i, 0]), 0.0),
            worst_regret=max(float(regret[i].max()), 0.0),
            worst_where=corners[int(regret[i].argmax())],
            best_in=int(np.sum(regret[i] <= TOLERANCE)),
        )

    order = np.lexsort((regret[:, 0], regret.max(axis=1))).tolist()
    ranked = _without_repeats(map(candidate, order))
    best = int(np.argmin(seconds[:, 0]))
    return Robust(
        model=resolved.scenario.model.name,
        cluster=resolved.cluster.name,
        gpus=resolved.scenario.gpus,
        within=within,
        uncertain=asked.names,
        scenarios=len(corners),
        chosen=ranked[0],
        best=candidate(best),
        others=tuple(ranked[1 : 1 + resolved.request.top]),
        radius=_radius(asked, candidates, seconds, within, best),
        statement=f"{len(candidates)} strategies were priced in {len(corners)} scenarios, each of whose best times is "
        "proved; other strategies, and rates between these scenarios, were not",
        warnings=asked.warnings(candidates[order[0]]),
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


def _table(asked: Question, candidates: list[Incumbent], corners: list[dict[str, float]]) -> Floats:
    """Seconds of every candidate in every scenario (C, S)."""
    return np.stack([_column(candidates, asked.changed(factors)) for factors in corners], axis=1)


def _column(candidates: list[Incumbent], machines: AnyScenario) -> Floats:
    """Seconds of every candidate on some machines, (C,)."""
    if isinstance(machines, Mixed):
        return np.array([price(one.row, machines, one.assignment).iteration for one in candidates])
    splits = [one.assignment for one in candidates]
    return iterations_together([as_it_runs(one.row, one.assignment) for one in candidates], machines, splits)


def _radius(asked: Question, candidates: list[Incumbent], seconds: Floats, within: float, best: int) -> float:
    """Largest share at whose corners no candidate beats the best of the middle noticeably, by halving.

    ``seconds`` are those of the corners of ``within`` itself.
    """

    def stays(seconds: Floats) -> bool:
        return bool(np.all(seconds[best] <= seconds.min(axis=0) * (1.0 + CLOSE)))

    if stays(seconds):
        return within
    low, high = 0.0, within
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        kept = stays(_table(asked, candidates, corners_of(asked.names, middle)))
        low, high = (middle, high) if kept else (low, middle)
    return low
