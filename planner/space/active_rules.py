"""Which rules hold in a search: the usual ones, and those of the framework that plans are for."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from costmodels.node_groups import AnyScenario, Mixed
from costmodels.scenario import Scenario
from costmodels.strategy import AXES, Bools, Strategies
from planner.frameworks.registry import FRAMEWORKS
from planner.rules.core import ALIKE, GROUP_RULES, RULES, Rule


def active(scenario: Scenario, pinned: frozenset[str]) -> tuple[Rule, ...]:
    """The rules of a search: what is dominated is kept where the request pins that very axis.

    A framework's own rules come on top; what they leave dominates nothing that they refuse. Those of a pipeline over
    several node groups, which are the first group's ``scenario`` here, are ``of_groups``.
    """
    usual = tuple(r for r in RULES if r.kind != "dominated" or not set(r.reads[-1:]) & pinned)
    if not scenario.framework:
        return usual
    framework = FRAMEWORKS[scenario.framework]
    return (*(rule for rule in usual if rule.name not in framework.dropped), *framework.searched(pinned))


def of_groups(lead: Scenario) -> tuple[Rule, ...]:
    """The rules of a pipeline over several node groups beyond those of each."""
    return (*GROUP_RULES, ALIKE) if lead.framework else GROUP_RULES


def binding(question: AnyScenario) -> tuple[Rule, ...]:
    """The rules that a strategy may not break, whoever proposes it: all but those about what is dominated."""
    if isinstance(question, Mixed):
        return (*of_groups(question.lead), *binding(question.lead))
    beyond = FRAMEWORKS[question.framework].rules if question.framework else ()
    return (*_BINDING, *beyond)


_BINDING = tuple(rule for rule in RULES if rule.kind != "dominated")


def passing(rows: Strategies, rules: Iterable[Rule], scenario: Scenario) -> Bools:
    """Which of N strategies break none of some rules, (N,)."""
    columns = {name: getattr(rows, name) for name in AXES}
    return np.all([np.broadcast_to(rule.passes(columns, scenario), len(rows)) for rule in rules], axis=0)
