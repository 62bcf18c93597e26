"""Whether a framework starts a plan: its rules, asked of one strategy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from costmodels.strategy import AXES
from planner.answer.load import strategy_from_plan
from planner.frameworks.conditions import Facts
from planner.frameworks.registry import FRAMEWORKS
from planner.jobs.job import Job
from planner.rules.rule import words_of


def broken(job: Job, framework: str, *, version: str = "") -> Iterator[str]:
    """Every rule of a framework's version, "" the newest, that the plan breaks, as a sentence's end with its source."""
    row, facts = strategy_from_plan(job.strategy), _facts(job)
    columns = {name: getattr(row, name) for name in AXES}
    for rule in FRAMEWORKS[framework].constraints:
        if rule.holds_in(version) and not np.all(rule.holds(columns, facts)):
            more = {"precision": facts.precision, "accelerator": facts.accelerator}
            words = words_of(row.row(0), facts.model, facts.switches, **more)
            yield f"it takes {rule.sentence.format(**words)} ({rule.source})"


def device_lack(job: Job, framework: str) -> str | None:
    """Why a framework does not run on the accelerators, whatever the strategy; None where it does."""
    facts, any_row = _facts(job), {"tp": np.ones(1, dtype=np.int64)}
    for rule in FRAMEWORKS[framework].constraints:
        if rule.name.endswith("-device") and not np.all(rule.holds(any_row, facts)):
            return f"it takes {rule.sentence.format(accelerator=facts.accelerator)} ({rule.source})"
    return None


def _facts(job: Job) -> Facts:
    return Facts(
        model=job.model,
        seq_length=job.seq_length,
        global_batch_size=job.strategy.global_batch_size,
        precision=job.precision,
        switches=job.switches,
        accelerator=job.nodes[0].accelerator,
        vendor=job.vendor,
    )
