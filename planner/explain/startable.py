"""Whether the framework that a stack stands for starts the plan that was found, and what it starts if not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from costmodels.scenario import Scenario
from costmodels.strategy import AXES, Bools, Strategies
from planner.answer.text import told_seconds
from planner.frameworks.stacks import STARTED_WITH
from planner.request.request import PlanRequest
from planner.rules.core import Rule, binding, sentence
from planner.search.objective import Aim
from planner.search.priced import Priced
from planner.search.split import Incumbent

_DEGREES: Final = ("tp", "cp", "pp", "ep", "dp")


def unstarted(request: PlanRequest, aim: Aim, best: Incumbent, seen: Sequence[Priced]) -> tuple[str, ...]:
    """The remark that a plan cannot be started, where no framework was asked for; none where it can, or nobody knows.

    Which framework a stack of somebody's own stands for is not known. What it starts is looked for among the rows that
    the search has seen, under their even split.
    """
    framework = STARTED_WITH.get(aim.scenario.stack.name)
    if request.framework or framework is None or request.adapters:
        return ()
    scenario = replace(aim.scenario, framework=framework)
    rules = tuple(rule for rule in binding(scenario) if rule.kind == "framework")
    broken = [rule for rule in rules if not _passing(best.row, (rule,), scenario).all()]
    if not broken or any(rule.name.endswith("-device") for rule in broken):
        return ()
    lack = sentence(broken[0], best.row.row(0), scenario)
    return (f"{framework} cannot start this plan: {lack}; {_instead(framework, aim, best, seen, rules, scenario)}",)


def _passing(rows: Strategies, rules: Sequence[Rule], scenario: Scenario) -> Bools:
    columns = {name: getattr(rows, name) for name in AXES}
    return np.all([np.broadcast_to(rule.passes(columns, scenario), len(rows)) for rule in rules], axis=0)


def _instead(
    framework: str,
    aim: Aim,
    best: Incumbent,
    seen: Sequence[Priced],
    rules: Sequence[Rule],
    scenario: Scenario,
) -> str:
    """The fastest that it starts of the rows that were seen."""
    found: list[tuple[float, Strategies]] = []
    for part in seen:
        able = part.take(part.fits & np.isfinite(part.even))
        able = able.take(_passing(able.rows, rules, scenario)) if len(able.rows) else able
        if len(able.rows) and aim.by_time:
            i = int(np.argmin(able.even))
            found.append((float(able.even[i]), able.rows.take(np.array([i]))))
    if not found:
        return f"--for {framework} searches for one that it can"
    seconds, row = min(found, key=lambda one: one[0])
    slower = f"{told_seconds(seconds)} ({seconds / best.iteration - 1:+.1%})"
    return f"it starts {_degrees(row)}, {slower}; --for {framework} searches for the best that it can"


def _degrees(row: Strategies) -> str:
    named = ((name, int(getattr(row, name)[0])) for name in _DEGREES)
    return " ".join(f"{name} {degree}" for name, degree in named if degree > 1 or name == "dp")
