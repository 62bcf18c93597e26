"""Whether a framework starts a plan: its rules, asked of one strategy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from costmodels.modules import module_mask
from costmodels.strategy import AXES, Recompute, Strategies, strategies
from planner.document import Strategy
from planner.export.job import Job
from planner.frameworks.conditions import Facts
from planner.frameworks.records import FrameworkRule
from planner.frameworks.table import FRAMEWORKS
from planner.pins import NAMED
from planner.rule import named


def broken(job: Job, framework: str) -> Iterator[str]:
    """Every rule of the framework that the plan breaks, as the end of a sentence with its source."""
    row, facts = row_of(job.strategy), _facts(job)
    columns = {name: getattr(row, name) for name in AXES}
    for rule in FRAMEWORKS[framework].constraints:
        if not np.all(rule.holds(columns, facts)):
            yield f"{_said(rule, row.row(0), facts)} ({rule.source})"


def row_of(record: Strategy) -> Strategies:
    """The row behind a record; what is recomputed in part is PARTIAL, whatever it came to."""
    same = {name: value for name, value in record.model_dump().items() if name in AXES and name not in NAMED}
    coded = {name: NAMED[name].index(getattr(record, name)) for name in NAMED if name != "sequence_parallel"}
    if any(stage.recompute_layers not in {0, stage.layers} for stage in record.stages):
        coded["recompute"] = int(Recompute.PARTIAL)
    modules = module_mask(record.recompute_modules)
    split = int(record.sequence_parallel)
    return strategies(**same | coded | {"recompute_modules": modules, "sequence_parallel": split})


def _facts(job: Job) -> Facts:
    return Facts(
        model=job.model,
        seq_length=job.seq_length,
        global_batch_size=job.strategy.global_batch_size,
        precision=job.precision,
        optimizer=job.optimizer,
        offload_fraction=float(job.asked("offload_fraction") or 1.0),
        loss_block=int(job.asked("loss_block") or 0),
        gpus_per_node=job.gpus_per_node,
    )


def _said(rule: FrameworkRule, row: dict[str, Any], facts: Facts) -> str:
    model = facts.model
    return rule.sentence.format(
        **named(row),
        precision=facts.precision,
        optimizer=facts.optimizer,
        offload_fraction=f"{facts.offload_fraction:g}",
        loss_block=facts.loss_block,
        num_layers=model.num_layers,
        num_heads=model.num_heads,
        num_query_groups=model.num_query_groups,
        model=model.name,
        global_batch_size=facts.global_batch_size,
        seq_length=facts.seq_length,
    )
