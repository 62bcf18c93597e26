"""Why nothing fits: every refusal of a search, and which of them decide.

In a lattice each rule sees what those before it left, so that a rule about one value of a range may have refused much
and still not matter. Those that refuse every strategy alone decide, else those without which some are left.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.node_groups import AnyScenario, Mixed
from costmodels.scenario import Scenario
from planner.answer.plan import Rejection
from planner.explain.nearest import nearest_request
from planner.explain.verdict import memory_example
from planner.request.budget import CORE, Budget
from planner.request.pins import Pin, parse_pins
from planner.request.resolve import Resolved
from planner.rules.rule import Rule
from planner.search.best_first import Outcome
from planner.space.active_rules import binding
from planner.space.lattice import MESH_AXES, Space, axes_of, build, layouts
from planner.space.sharding import SHARDING, sharding_degrees
from planner.space.table import Refusal

LAID_OUT = frozenset({"tp", "cp", "pp", "dp", "ranks", "widest", "most_tp", "most_dp"})
"""Axes of which the number of devices and the batch leave little choice."""


def order_refusals(found: Sequence[Rejection], resolved: Resolved, rules: Iterable[Rule]) -> tuple[Rejection, ...]:
    """Why nothing is left: memory first, then the rules about pinned axes, the last to speak first.

    A rule that spoke early left strategies for later ones to refuse; the last one refused what was left. What a
    rule refuses along an axis that is free, another value of that axis would have passed; such rules are named where no
    rule is about pinned axes alone, and that a strategy only repeats another where nothing else is known.

    Args:
        found: every refusal of a search, in the order in which rules spoke.
        resolved: the request.
        rules: those that no strategy may break.
    """
    pinned = {name for name, value in resolved.request.pins.items() if value is not None}
    settled = pinned | LAID_OUT | (set() if resolved.scenario.model.moe else {"ep", "etp"})
    reads = {rule.name: set(rule.reads) for rule in rules}
    binding = [one for one in reversed(found) if one.rule in reads]
    known = [one for one in binding if reads[one.rule] <= settled]
    about = [one for one in known if reads[one.rule] & pinned]
    touched = [one for one in binding if reads[one.rule] & pinned]
    memory = [one for one in found if one.rule == "memory"]
    if memory:
        return (*memory, *(about or known))
    return tuple(about or touched or known or binding or found)


EFFORT = 1e6
"""Effort in which lattices without one of the rules are laid out."""
MOST = 2_000_000
"""Combinations of what a rule reads that are looked at."""
Columns = Mapping[str, NDArray[Any]]


def deciding_rules(
    found: Sequence[Rejection], scenario: Scenario, pins: Mapping[str, Pin], rules: Sequence[Rule]
) -> tuple[Rejection, ...]:
    """The refusals to which it is due that nothing is left; all of them where no single rule decides."""
    known = {rule.name: rule for rule in rules}
    binding = [one for one in found if one.rule in known]
    alone = [one for one in binding if _refuses_all(known[one.rule], scenario, pins)]
    if alone:
        return tuple(alone)
    budget, needed = Budget(effort=EFFORT), []
    for one in reversed(binding):
        if budget.spent():
            break
        space = build(scenario, pins, without=one.rule)
        budget.spend(CORE * len(space.cores))
        if space.allowed.any():
            needed.append(one)
    return tuple(reversed(needed)) or tuple(found)


def _refuses_all(rule: Rule, scenario: Scenario, pins: Mapping[str, Pin]) -> bool:
    """Whether a rule refuses every combination of what it reads that the pins allow."""
    axes = axes_of(scenario, pins)
    stage, degree = axes.pop("sharding").T
    reads = set(rule.reads)
    columns: Columns = layouts(scenario.gpus, pins)
    if not reads & SHARDING:
        columns = _distinct({name: columns[name] for name in MESH_AXES if name in reads})
    for axis in reads - SHARDING - set(MESH_AXES):
        columns = _crossed(columns, {axis: axes[axis]})
    if reads & SHARDING:  # rows by options, as in the lattice
        columns = {name: column[:, None] for name, column in columns.items()} | {"zero_stage": stage[None, :]}
        columns = {**columns, "sharding_degree": sharding_degrees(columns, degree[None, :])}
    count = math.prod(np.broadcast_shapes(*(column.shape for column in columns.values())))
    return count <= MOST and not np.any(rule.passes(columns, scenario))


def _distinct(columns: Columns) -> Columns:
    """Every combination of values once."""
    if not columns:
        return columns
    rows = np.unique(np.stack(list(columns.values()), axis=1), axis=0)
    return dict(zip(columns, rows.T, strict=True))


def _crossed(columns: Columns, added: Columns) -> Columns:
    """Every row of some columns with every row of others."""
    rows = max((len(column) for column in columns.values()), default=1)
    times = max(len(column) for column in added.values())
    if rows * times > MOST:
        return {**columns, **{name: np.zeros(MOST + 1, dtype=np.int64) for name in added}}
    wide = {name: np.repeat(column, times) for name, column in columns.items()}
    return wide | {name: np.tile(column, rows) for name, column in added.items()}


def as_rejections(refusals: Iterable[Refusal]) -> tuple[Rejection, ...]:
    """Refusals of a lattice as the answer states them."""
    return tuple(Rejection(rule=one.rule, count=one.count, example=one.example) for one in refusals)


def rejections(space: Space, outcome: Outcome, question: AnyScenario) -> tuple[Rejection, ...]:
    """Every refusal by the rules and by memory, in the order in which they were applied."""
    refused = as_rejections(space.refusals)
    if not outcome.memory_refused:
        return refused
    example = memory_example(outcome, question)
    return (*refused, Rejection(rule="memory", count=outcome.memory_refused, example=example))


def refusal_reasons(resolved: Resolved, space: Space, outcome: Outcome) -> tuple[Rejection, ...]:
    """The refusals that say why nothing is left, memory first."""
    question, rules = resolved.question, binding(resolved.question)
    found = rejections(space, outcome, question)
    if outcome.memory_refused or isinstance(question, Mixed):
        return order_refusals(found, resolved, rules)
    due = deciding_rules(found, question, parse_pins(resolved.request.pins), rules)
    first = order_refusals(due, resolved, rules)
    return (*first, *(one for one in due if one not in first)) if len(due) < len(found) else first


def refusal_summary(resolved: Resolved, space: Space, outcome: Outcome) -> str:
    """The first of them in words, with its numbers."""
    found = refusal_reasons(resolved, space, outcome)
    return found[0].example if found else "no strategy is left"


def nearest_in_words(resolved: Resolved, budget: Budget) -> str:
    """The end of a sentence that says what is short: the nearest request that works, "" where none was found."""
    near = nearest_request(resolved, budget).advice
    return f"; nearest that works: {near.subject}" if near else ""
