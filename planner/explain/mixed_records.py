"""A strategy over several node groups as the result document states it."""

from __future__ import annotations

import numpy as np

from costmodels.groups import Mixed, MixedRows
from costmodels.layout.split import Assignment
from costmodels.pricing import Price
from costmodels.strategy import Floats
from planner.answer.build import memory_records, strategy_record
from planner.answer.plan import Stage, StageMemory, Strategy

PER_GROUP = ("tp", "dp", "micro_batch_size")
"""Axes on which node groups may differ, and that a predicted strategy may give for each."""


def mixed_record(row: MixedRows, assignment: Assignment, mixed: Mixed) -> Strategy:
    """A strategy over groups: the degrees of its first stage, and at each stage those that differ between groups."""
    first = int(row.order[0, 0])
    whole = strategy_record(row.groups[first], assignment, mixed.scenarios[first])
    at = [group.row(0) for group in row.groups]
    apart = [name for name in (*PER_GROUP, "sharding_degree") if len({one[name] for one in at}) > 1]
    stages = tuple(
        Stage(
            layers=stage.layers,
            recompute_layers=stage.recompute_layers,
            group=mixed.scenarios[group].group.name,
            **{name: int(at[group][name]) for name in apart},
        )
        for stage, group in zip(whole.stages, row.group_at()[0].tolist(), strict=True)
    )
    zero = max(one["zero_stage"] for one in at)
    degree = (
        max(one["sharding_degree"] for one in at) if zero and not at[first]["zero_stage"] else whole.sharding_degree
    )
    return whole.model_copy(update={"stages": stages, "zero_stage": zero, "sharding_degree": degree})


def degrees_in_words(row: MixedRows, mixed: Mixed) -> str:
    """The degrees of every group: "a100 tp 2 cp 1 dp 8, h100 tp 1 cp 1 dp 8"."""
    parts = zip(mixed.scenarios, row.groups, row.stages[0].tolist(), strict=True)
    return ", ".join(
        f"{one.group.name} {stages} stages tp {group.tp[0]} cp {group.cp[0]} dp {group.dp[0]}"
        for one, group, stages in parts
    )


def mixed_memory(priced: Price, mixed: Mixed, row: MixedRows) -> tuple[StageMemory, ...]:
    """The footprint of every stage against its own group's device."""
    limits = stage_limits(mixed, row)
    records = memory_records(priced, mixed.scenarios[0])
    return tuple(one.model_copy(update={"limit": float(limits[one.stage])}) for one in records)


def stage_limits(mixed: Mixed, row: MixedRows) -> Floats:
    """Usable bytes of the device of every stage of a single row, (pp,)."""
    usable = np.array([one.group.accelerator.usable_memory for one in mixed.scenarios])
    return usable[row.group_at()[0]]
