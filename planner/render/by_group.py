"""The strategy of a plan over several node groups: what each group holds of the pipeline, as a strategy of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from costmodels.node_groups import AnyScenario, Mixed, MixedStrategies
from costmodels.scenario import Scenario
from costmodels.strategy import Strategies, strategies
from planner.answer.load import strategy_from_plan
from planner.answer.plan import Stage, Strategy
from planner.errors import BadRequest


class Part(NamedTuple):
    """What stands on one node group."""

    scenario: Scenario
    row: Strategies
    """Its degrees, N = 1, with a pipeline of its own stages alone."""
    first: int
    """The first of its stages, which follow one another."""


def parts_by_group(record: Strategy, mixed: Mixed) -> Iterator[Part]:
    """What each node group holds, in the order of the pipeline."""
    row, first = row_over_groups(record, mixed), 0
    for group in row.order[0].tolist():
        count = int(row.stages[0, group])
        yield Part(mixed.scenarios[group], replace(row.groups[group], pp=np.array([count])), first)
        first += count


def strategy_on(record: Strategy, question: AnyScenario) -> Strategies:
    """The row behind a record on the machines of a question, N = 1.

    Raises:
        BadRequest: a group of the machines has no stage, or one of the record's is none of them.
    """
    return row_over_groups(record, question) if isinstance(question, Mixed) else strategy_from_plan(record)


def row_over_groups(record: Strategy, mixed: Mixed) -> MixedStrategies:
    """The row behind a record whose stages lie on several node groups, N = 1.

    Raises:
        BadRequest: a group of the machines has no stage, or one of the record's is none of them.
    """
    names = [one.group.name for one in mixed.scenarios]
    if (held := {stage.group for stage in record.stages}) != set(names):
        raise BadRequest(f"stages: they lie on {', '.join(sorted(held))}; the machines are {', '.join(names)}")
    at = [names.index(stage.group) for stage in record.stages]
    groups = tuple(_of_group(record, record.stages[at.index(group)]) for group in range(len(names)))
    return MixedStrategies.of(groups, np.array([np.bincount(at)]), np.array([list(dict.fromkeys(at))]))


def _of_group(record: Strategy, stage: Stage) -> Strategies:
    """The whole pipeline with the degrees of a stage's group; one rank shares out nothing."""
    names = ("tp", "dp", "micro_batch_size", "sharding_degree")
    own = {name: said for name in names if (said := getattr(stage, name)) is not None}
    row = strategy_from_plan(record).row(0) | own
    row |= {"sequence_parallel": 0} if row["tp"] == 1 else {}
    row |= {"zero_stage": 0, "sharding_degree": 1} if row["dp"] * row["cp"] == 1 else {}
    return strategies(**row)
