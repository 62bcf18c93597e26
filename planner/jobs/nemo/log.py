"""Logs of NeMo 1 and 2, which Lightning prints: bars of progress and lines of steps; recipe or YAML say the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from planner.jobs.data import put
from planner.jobs.imported import ImportedJob
from planner.jobs.logs.lines import table_in
from planner.jobs.logs.tables import Findings, log_reader, made_job, tables
from planner.jobs.nemo.read import nemo_job
from planner.jobs.reader import Context, JobFile

_SETTING: Final = "cfg/"
"""What stands in front of a model's settings where DLLogger writes them, tables within tables by slashes."""
_FIRST: Final = 1000
"""Lines among which they are."""


def _settled(_: Findings, file: JobFile, context: Context) -> ImportedJob:
    """The job of the settings that DLLogger writes; where they make none, why; of other logs nothing."""
    line = next((line for line in islice(file.lines(), _FIRST) if f'"{_SETTING}' in line), "")
    data = (table_in(line) or {}).get("data")
    if not isinstance(data, Mapping):
        return ImportedJob()
    model: dict[str, Any] = {}
    for path, value in data.items():
        put(model, str(path).removeprefix(_SETTING).split("/"), value)
    document = {"model": model, "trainer": {"precision": model.pop("precision", None)}}
    return replace(made_job(lambda: nemo_job(document, context), "settings that it prints do"), length=None)


def _aside(findings: Findings) -> Sequence[str]:
    """Over how many steps its timer takes the mean."""
    last = tables("nemo/log").forms[0].of_last
    return [f"NeMo prints a mean over the last {last} steps"] if findings.timing else ()


READERS: Final = (
    log_reader(  # a configuration may name checkpoints by a loss
        "nemo", _settled, aside=_aside, unless=lambda file: {"trainer", "model"} <= set(file.document or ())
    ),
)
