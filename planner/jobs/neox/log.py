"""Logs of GPT-NeoX: Megatron-LM's lines, and a dump of its own settings that says which of them the user set."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from planner.jobs.imported import ImportedJob
from planner.jobs.logs.statements import Findings
from planner.jobs.logs.tables import log_reader, made_job
from planner.jobs.megatron.dump import sizes_alone
from planner.jobs.neox.read import neox_job
from planner.jobs.reader import Context, JobFile
from planner.jobs.values import literal

_SET_BY: Final = re.compile(r"\.{2,}(?:updated|default)\s*$", re.MULTILINE)
"""What stands behind a value: whether the user set it."""


def _settled(findings: Findings, _: JobFile, context: Context) -> ImportedJob:
    """The job of what the user set, by the reader of its files; where that makes none, why."""
    given = findings.start.said
    said = {name: _SET_BY.sub("", value).strip() for name, value in given.items()}
    updated = {name: literal(said[name]) for name, value in given.items() if value.rstrip().endswith("updated")}
    sizes = sizes_alone(said)
    job = made_job(lambda: neox_job(updated, context), "settings that it prints do", sizes)
    return replace(job, fields={**job.fields, **sizes.fields}, pins={**job.pins, **sizes.pins}, length=None)


READERS: Final = (log_reader("neox", _settled),)
