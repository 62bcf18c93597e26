"""Logs of NeMo 1 and 2, which Lightning prints: bars of progress and lines of steps; recipe or YAML say the job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob
from planner.jobs.logs.forms import row, table_in
from planner.jobs.logs.lines import has
from planner.jobs.logs.memory import MemoryForm
from planner.jobs.logs.scan import Tables
from planner.jobs.logs.statements import findings_of, with_findings
from planner.jobs.nemo.read import nemo_job
from planner.jobs.reader import Context, JobFile, LogReader

_IS: Final = r"[\"']?\s*[:=]\s*[\"']?"
_LAST: Final = 5
"""Steps over which its timer takes the mean (collections/nlp/modules/common/megatron: the buffer of named timers)."""
_BATCH: Final = r"global_batch_size" + _IS + r"(?P<batch>\d+)"
_TIME: Final = r"train_step_timing in s" + _IS + r"(?P<s>[\d.]+)"
TABLES: Final = Tables(
    forms=(
        row("train_step_timing", r"\biteration (?P<step>\d+)/(?P<of>\d+)", _TIME, _BATCH, of_last=_LAST, first=0),
        row("train_step_timing", r"\|\s*(?P<step>\d+)/(?P<of>\d+|\?) \[", _TIME, _BATCH, of_last=_LAST),
        row("train_step_timing", r"global_step" + _IS + r"(?P<step>\d+)\b", _TIME, _BATCH, of_last=_LAST, first=0),
        row(
            "reduced_train_loss",
            r"\|\s*(?P<step>\d+)/(?P<of>\d+) \[(?P<elapsed>[\d:]+)<[^,\]]*,\s*[\d.]+\s*(?:s/it|it/s)",
            _BATCH,
        ),
    ),
    memory=(
        MemoryForm("peak_memory_usage", re.compile("peak_memory_usage" + _IS + r"(?P<bytes>[\d.]+)"), "allocated", "B"),
    ),
    starts=("LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES", "Sanity Checking:"),
)  # fmt: skip


def _read(file: JobFile, context: Context) -> ImportedJob:
    findings = findings_of(file, TABLES)
    mean = f"NeMo prints a mean over the last {_LAST} steps" if findings.timing else ""
    return with_findings(_settled(file, context), findings, context, aside=[mean] if mean else ())


_SETTING: Final = "cfg/"
"""What stands in front of a model's settings where DLLogger writes them, tables within tables by slashes."""
_FIRST: Final = 1000
"""Lines among which they are."""


def _settled(file: JobFile, context: Context) -> ImportedJob:
    """The job of the settings that DLLogger writes; where they make none, why; of other logs nothing."""
    line = next((line for line in islice(file.lines(), _FIRST) if f'"{_SETTING}' in line), "")
    data = (table_in(line) or {}).get("data")
    if not isinstance(data, Mapping):
        return ImportedJob()
    model: dict[str, Any] = {}
    for path, value in data.items():
        *tables, key = str(path).removeprefix(_SETTING).split("/")
        at = model
        for name in tables:
            at = at.setdefault(name, {})
        at[key] = value
    try:
        job = nemo_job({"model": model, "trainer": {"precision": model.pop("precision", None)}}, context)
    except BadRequest as error:
        return ImportedJob(missing=(f"the settings that it prints do not make a job: {error}",))
    return replace(job, length=None)


def _recognises(file: JobFile) -> bool:
    configuration = {"trainer", "model"} <= set(file.document or ())  # of which checkpoints may be named by a loss
    return not configuration and has(file.text, _SIGN)


_SIGN: Final = re.compile("train_step_timing in s|reduced_train_loss")


READERS: Final = (LogReader("nemo-log", "a log of NeMo", "megatron-bridge", _recognises, _read),)
