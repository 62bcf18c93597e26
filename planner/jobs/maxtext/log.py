"""Logs of MaxText: the configuration that it prints, and its lines of steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob
from planner.jobs.logs.forms import row
from planner.jobs.logs.lines import has
from planner.jobs.logs.scan import Fact, Tables
from planner.jobs.logs.statements import findings_of, with_findings
from planner.jobs.maxtext.options import OPTIONS, SIZES
from planner.jobs.maxtext.read import maxtext_job
from planner.jobs.reader import Context, JobFile, LogReader
from planner.jobs.values import literal

_SETTING: Final = re.compile(r"Config param (?P<name>\w+): (?P<value>.*)$")
TABLES: Final = Tables(
    forms=(
        row(
            "completed step:",
            r"completed step: (?P<step>\d+)",
            r"\bseconds: (?P<s>[\d.]+)",
            r"Tokens/s/device: (?P<tokens_s>[\d.]+)",
            first=0,
        ),
    ),
    facts=(Fact("Num_devices", re.compile(r"Num_devices: (?P<num_devices>\d+)")),),
    settings=("Config param ", _SETTING),
)
"""The first steps are handed over and not waited for: their seconds are too few, and those of the third too many."""


def _read(file: JobFile, context: Context) -> ImportedJob:
    findings = findings_of(file, TABLES)
    said = {name: literal(value) for name, value in findings.start.said.items()}
    known = {option.word for option in OPTIONS}
    settings = {name: value for name, value in said.items() if name in known and value not in (None, "")}
    job = _settled(settings)
    gpus = {"gpus": said["num_devices"]} if "num_devices" in said else {}
    return with_findings(replace(job, fields={**job.fields, **gpus}, length=None), findings, context)


def _settled(settings: Mapping[str, Any]) -> ImportedJob:
    """The job of the settings; where they make none, why, and no model where an excerpt leaves sizes out."""
    try:
        job = maxtext_job(settings) if settings else ImportedJob()
    except BadRequest as error:
        return ImportedJob(missing=(f"the configuration that it prints does not make a job: {error}",))
    if isinstance(job.fields.get("model"), Mapping) and not all(OPTIONS[size].word in settings for size in SIZES):
        fields = {name: value for name, value in job.fields.items() if name != "model"}
        return replace(
            job, fields=fields, lacks="the log does not give all sizes of the model; give the model with --model"
        )
    return job


def _recognises(file: JobFile) -> bool:
    return has(file.text, _SIGN)


_SIGN: Final = re.compile(r"completed step: \d+, seconds: |^.*Config param (?:ici|dcn)_\w+:", re.MULTILINE)

READERS: Final = (LogReader("maxtext-log", "a log of MaxText", "maxtext", _recognises, _read),)
