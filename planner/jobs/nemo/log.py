"""Logs of NeMo 1 and 2, which Lightning prints: bars of progress and lines of steps; recipe or YAML say the job."""

from __future__ import annotations

import re
from typing import Final

from planner.jobs.imported import ImportedJob
from planner.jobs.logs.forms import row
from planner.jobs.logs.lines import has
from planner.jobs.logs.memory import MemoryForm
from planner.jobs.logs.scan import Tables
from planner.jobs.logs.told import told_by, with_told
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
    told = told_by(file, TABLES)
    mean = f"NeMo prints a mean over the last {_LAST} steps" if told.timing else ""
    return with_told(ImportedJob(), told, context, aside=[mean] if mean else ())


def _recognises(file: JobFile) -> bool:
    return has(file.text, _SIGN)


_SIGN: Final = re.compile("train_step_timing in s|reduced_train_loss")


READERS: Final = (LogReader("nemo-log", "a log of NeMo", "megatron-bridge", _recognises, _read),)
