"""Logs of MaxText: the configuration that it prints, and its lines of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from planner.jobs.imported import ImportedJob
from planner.jobs.logs.statements import Findings
from planner.jobs.logs.tables import log_reader, made_job
from planner.jobs.maxtext.options import OPTIONS, SIZES
from planner.jobs.maxtext.read import maxtext_job
from planner.jobs.reader import Context, JobFile
from planner.jobs.values import literal


def _job(findings: Findings, _: JobFile, __: Context) -> ImportedJob:
    said = {name: literal(value) for name, value in findings.start.said.items()}
    known = {option.word for option in OPTIONS}
    settings = {name: value for name, value in said.items() if name in known and value not in (None, "")}
    job = made_job(lambda: _settled(settings), "configuration that it prints does")
    gpus = {"gpus": said["num_devices"]} if "num_devices" in said else {}
    return replace(job, fields={**job.fields, **gpus}, length=None)


def _settled(settings: Mapping[str, Any]) -> ImportedJob:
    """The job of the settings, without its model where an excerpt leaves sizes out."""
    job = maxtext_job(settings) if settings else ImportedJob()
    if not isinstance(job.fields.get("model"), Mapping) or all(OPTIONS[size].word in settings for size in SIZES):
        return job
    fields = {name: value for name, value in job.fields.items() if name != "model"}
    lacks = "the log does not give all sizes of the model; give the model with --model"
    return replace(job, fields=fields, lacks=lacks)


READERS: Final = (log_reader("maxtext", _job),)
