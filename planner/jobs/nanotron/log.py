"""Logs of nanotron: its lines of iterations and of memory; its YAML says the job."""

from __future__ import annotations

import re
from typing import Final

from planner.jobs.imported import ImportedJob
from planner.jobs.logs.forms import row
from planner.jobs.logs.lines import has
from planner.jobs.logs.memory import Kind, MemoryForm
from planner.jobs.logs.scan import Tables
from planner.jobs.logs.statements import findings_of, with_findings
from planner.jobs.reader import Context, JobFile, LogReader

_FIGURE: Final = r"(?P<{}>[\d.]+[KMGT]?)"
_PEAKS: Final[tuple[tuple[Kind, str], ...]] = (("allocated", "Peak allocated"), ("reserved", "Peak reserved"))
TABLES: Final = Tables(
    forms=(
        row(
            "iteration: ",
            r"\biteration: (?P<step>\d+) / (?P<of>\d+)",
            r"time_per_iteration_ms: " + _FIGURE.format("ms"),
            r"tokens_per_sec_per_gpu: " + _FIGURE.format("tokens_s"),
            r"global_batch_size: " + _FIGURE.format("batch"),
        ),
    ),
    memory=tuple(
        MemoryForm("Peak ", re.compile(rf"{words}:? (?P<bytes>[\d.]+)(?P<unit>[KMG]iB)"), kind)
        for kind, words in _PEAKS
    ),
    starts=("[Start training]", "[Before the start of training]"),
)  # fmt: skip
"""Times are rounded to three digits and a K; peaks are those of rank 0, since the last line of them."""


def _read(file: JobFile, context: Context) -> ImportedJob:
    return with_findings(ImportedJob(), findings_of(file, TABLES), context)


def _recognises(file: JobFile) -> bool:
    return has(file.text, _SIGN)


_SIGN: Final = re.compile(r"iteration: \d+ / \d+ \| consumed_tokens: .{0,400}time_per_iteration_ms: ")

READERS: Final = (LogReader("nanotron-log", "a log of nanotron", "nanotron", _recognises, _read),)
