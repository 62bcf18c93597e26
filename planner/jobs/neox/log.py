"""Logs of GPT-NeoX: Megatron-LM's lines, and a dump of its own settings that says which of them the user set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob
from planner.jobs.logs.lines import has
from planner.jobs.logs.statements import findings_of, with_findings
from planner.jobs.megatron.dump import sizes_alone
from planner.jobs.megatron.log import TABLES
from planner.jobs.neox.read import neox_job
from planner.jobs.reader import Context, JobFile, LogReader
from planner.jobs.values import literal

_SET_BY: Final = re.compile(r"\.{2,}(?:updated|default)\s*$", re.MULTILINE)
"""What stands behind a value: whether the user set it."""


def _read(file: JobFile, context: Context) -> ImportedJob:
    findings = findings_of(file, TABLES)
    said = {name: _SET_BY.sub("", value).strip() for name, value in findings.start.said.items()}
    updated = {name: said[name] for name, value in findings.start.said.items() if value.rstrip().endswith("updated")}
    return with_findings(_settled(said, updated, context), findings, context)


def _settled(said: Mapping[str, str], updated: Mapping[str, str], context: Context) -> ImportedJob:
    """The job of what the user set, by the reader of its files; where that makes none, why."""
    sizes = sizes_alone(said)
    try:
        job = neox_job({name: literal(value) for name, value in updated.items()}, context)
    except BadRequest as error:
        return replace(sizes, missing=(f"the settings that it prints do not make a job: {error}",))
    return replace(job, fields={**job.fields, **sizes.fields}, pins={**job.pins, **sizes.pins}, length=None)


def _recognises(file: JobFile) -> bool:
    return has(file.text, _SIGN)


_SIGN: Final = re.compile(
    r"^.*\b(?:model_parallel_size|pipe_parallel_size) \.{2,}.*\.{2,}(?:updated|default)", re.MULTILINE
)

READERS: Final = (LogReader("gpt-neox-log", "a log of GPT-NeoX", "", _recognises, _read),)
