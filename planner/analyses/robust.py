"""The strategy with the least worst-case regret where bandwidths and efficiencies are uncertain.

A scenario has every uncertain quantity of `levers.uncertain_of` at 1 - x, 1 or 1 + x of what it is said to be: all
corners of that box and its middle. Each is searched, so that its best time is proved, and the regret of a strategy in a
scenario is how much longer it takes there than that. Candidates are the best of every scenario and the best rows of the
middle; the choice is the least worst case over these. That is exact for them and for these scenarios; it is no proof
over all strategies, nor between the corners.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Generic, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from costmodels.strategy import Floats
from planner.analyses.uncertain import Found, Machines, Question, on_groups, on_one_group
from planner.answer.build import provenance_record
from planner.answer.plan import Provenance, Strategy
from planner.errors import BadRequest
from planner.request.budget import Budget
from planner.request.request import PlanRequest, Resolved, resolve
from planner.request.written import percentage
from planner.search.choice import CLOSE
from planner.search.split import TOLERANCE

STEPS: Final = 6
"""Halvings of the radius: to 1/64 of the box."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Candidate(_Part):
    """A strategy and how it fares over the scenarios."""

    strategy: Strategy
    seconds: float
    """In the middle, where everything is as said."""
    regret: float
    """In the middle: share over the best there."""
    worst_regret: float
    worst_where: dict[str, float]
    """The factors of the scenario where it is worst."""
    best_in: int
    """Scenarios in which nothing searched is faster."""


class Robust(BaseModel):
    """The answer, schema ``robust/1``."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

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
    """The fastest where everything is as said."""
    others: tuple[Candidate, ...]
    """The next in the order of their worst regret."""
    radius: float
    """Largest share, up to ``within``, at whose corners no candidate beats the best by more than 0.1 %."""
    statement: str
    defaults: tuple[str, ...]
    provenance: Provenance


@dataclass(frozen=True)
class _Priced(Generic[Found]):
    """Candidates and scenarios: seconds (C, S), and the proved best of each scenario (S,)."""

    candidates: list[Found]
    factors: list[dict[str, float]]
    seconds: Floats
    least: Floats

    @property
    def regret(self) -> Floats:
        return self.seconds / self.least - 1.0


def robust(request: PlanRequest, within: float) -> Robust:
    """The least worst-case regret over the corners of what is uncertain.

    Args:
        request: the question.
        within: share by which every quantity may be off, both ways; above 0 and below 1.

    Raises:
        BadRequest: a share out of range, or as `sensitivity.best_of`.
        OutOfTime: the budget was spent before every scenario was proved.
    """
    if not 0.0 < within < 1.0:
        raise BadRequest(f"--robust: expected a share between 0 and 1 such as 20%, got {within:g}")
    budget, resolved = Budget(request.time_limit), resolve(request)
    if resolved.mixed:
        return _answer(on_groups(resolved, resolved.mixed, budget), resolved, resolved.mixed.gpus, within, budget)
    return _answer(on_one_group(request, budget), resolved, resolved.scenario.gpus, within, budget)


def _answer(asked: Question[Machines, Found], resolved: Resolved, gpus: int, within: float, budget: Budget) -> Robust:
    corners = corners_of(asked.names, within)
    found = [asked.best(asked.changed(factors), budget) for factors in corners]
    candidates = _distinct(asked, [*found, *asked.beside(budget)])
    least = np.array([asked.seconds(one, asked.changed(at)) for one, at in zip(found, corners, strict=True)])
    priced = _table(asked, candidates, corners, least)
    order = np.lexsort((priced.regret[:, 0], priced.regret.max(axis=1)))
    told = _unlike([_candidate(asked, priced, int(i)) for i in order])
    best = int(np.argmin(priced.seconds[:, 0]))
    return Robust(
        model=resolved.scenario.model.name,
        cluster=resolved.cluster.name,
        gpus=gpus,
        within=within,
        uncertain=asked.names,
        scenarios=len(corners),
        chosen=told[0],
        best=_candidate(asked, priced, best),
        others=tuple(told[1 : 1 + resolved.request.top]),
        radius=_radius(asked, candidates, within, best),
        statement=_statement(len(candidates), len(corners)),
        defaults=resolved.defaults,
        provenance=provenance_record(resolved),
    )


def _distinct(asked: Question[Machines, Found], found: Sequence[Found]) -> list[Found]:
    """Strategies that differ in an axis or in their layers, in order of first appearance."""
    seen: dict[tuple[object, ...], Found] = {}
    for one in found:
        seen.setdefault(asked.axes(one), one)
    return list(seen.values())


def _unlike(told: Sequence[Candidate]) -> list[Candidate]:
    """Candidates without those that differ from an earlier one in nothing that is priced."""
    kept: dict[tuple[float, float], Candidate] = {}
    for one in told:
        kept.setdefault((round(one.seconds, 9), round(one.worst_regret, 9)), one)
    return list(kept.values())


def corners_of(names: Sequence[str], within: float) -> list[dict[str, float]]:
    """Factors of every scenario, the middle first, then all corners."""
    ends = product((1.0 - within, 1.0 + within), repeat=len(names))
    return [dict.fromkeys(names, 1.0), *(dict(zip(names, corner, strict=True)) for corner in ends)]


def _table(
    asked: Question[Machines, Found], candidates: list[Found], corners: list[dict[str, float]], least: Floats
) -> _Priced[Found]:
    changed = [asked.changed(factors) for factors in corners]
    rows = [[asked.seconds(one, machines) for machines in changed] for one in candidates]
    return _Priced(candidates, corners, np.array(rows), least)


def _candidate(asked: Question[Machines, Found], priced: _Priced[Found], i: int) -> Candidate:
    regret = priced.regret[i]
    return Candidate(
        strategy=asked.record(priced.candidates[i]),
        seconds=float(priced.seconds[i, 0]),
        regret=max(float(regret[0]), 0.0),
        worst_regret=max(float(regret.max()), 0.0),
        worst_where=priced.factors[int(regret.argmax())],
        best_in=int(np.sum(regret <= TOLERANCE)),
    )


def _radius(asked: Question[Machines, Found], candidates: list[Found], within: float, best: int) -> float:
    """Largest share at whose corners no candidate beats the best of the middle noticeably, by halving."""

    def stays(share: float) -> bool:
        corners = corners_of(asked.names, share)
        priced = _table(asked, candidates, corners, np.ones(len(corners)))
        return bool(np.all(priced.seconds[best] <= priced.seconds.min(axis=0) * (1.0 + CLOSE)))

    if stays(within):
        return within
    low, high = 0.0, within
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if stays(middle) else (low, middle)
    return low


def _statement(candidates: int, scenarios: int) -> str:
    return (
        f"exact over {candidates} candidates and {scenarios} scenarios, each of whose best times is proved; other "
        "strategies, and points between the corners, are not looked at"
    )


def share_of(text: str) -> float:
    """A share as people write it, "20%" or "0.2".

    Raises:
        BadRequest: it is none.
    """
    try:
        share = percentage(text)
    except ValueError:
        share = math.nan
    if not 0.0 < share < 1.0:
        raise BadRequest(f"--robust: expected a share such as 20% or 0.2, got {text!r:.40}")
    return share
