"""Logs of Megatron-LM and of what is made of it: the dump of its arguments, its lines of iterations and of memory."""

from __future__ import annotations

import re
from typing import Final

from planner.jobs.deepspeed import log as deepspeed
from planner.jobs.imported import ImportedJob
from planner.jobs.logs.forms import row
from planner.jobs.logs.lines import has
from planner.jobs.logs.memory import Kind, MemoryForm
from planner.jobs.logs.scan import Dump, Fact, Tables
from planner.jobs.logs.statements import findings_of, with_findings
from planner.jobs.megatron.dump import dumped_job
from planner.jobs.reader import Context, JobFile, LogReader

_IS: Final = r"\s*[:=]\s*"
_PEAKS: Final[tuple[tuple[Kind, str], ...]] = (("allocated", "max allocated"), ("reserved", "max reserved"))
TABLES: Final = Tables(
    forms=(
        row(
            "iteration",
            r"\biteration" + r"\s*[:=]?\s*" + r"(?P<step>\d+)\s*/\s*(?P<of>\d+)",
            r"elapsed[ _]time[ _]per[ _]iteration[ _]\(?ms\)?" + _IS + r"(?P<ms>[\d.]+)",
            r"global[ _]batch[ _]size" + _IS + r"(?P<batch>\d+)",
            r"number[ _]of[ _]skipped[ _]iterations" + _IS + r"(?P<skipped>\d+)",
            since_last=True,
        ),
    ),
    memory=(
        *(
            MemoryForm(
                "memory (MB)",
                re.compile(rf"(?:\[Rank (?P<rank>\d+)\][^\[]*?)?memory \(MB\)[^\[]*?\| {words}: (?P<bytes>[\d.]+)"),
                kind,
                "MIB",
            )
            for kind, words in _PEAKS
        ),
        MemoryForm("mem usage/free", re.compile(r"mem usage/free[^:]*: (?P<bytes>[\d.]+)(?P<unit>[KMG]i?B)"), "device"),
        *deepspeed.MEMORY,
    ),
    dumps=(
        Dump(
            "- arguments -",
            "- end of arguments -",
            re.compile(r"(?:^|\s)(?P<name>[A-Za-z]\w*) \.{2,}(?P<value>.*)$"),
        ),
    ),
    facts=(Fact("padded vocab", re.compile(r"padded vocab \(size: (?P<vocab_size>\d+)\)")),),
    starts=("using world size:",),
    table="json = ",
)  # fmt: skip
"""Also of Megatron-DeepSpeed, GPT-NeoX, MindSpeed, Pai's and others that left its lines as they are."""


def _read(file: JobFile, context: Context) -> ImportedJob:
    findings = findings_of(file, TABLES)
    return with_findings(dumped_job(findings.start, context), findings, context)


def _recognises(file: JobFile) -> bool:
    return has(file.text, _SIGN)


_SIGN: Final = re.compile(r"iteration\W+\d+\s*/.{0,400}elapsed[ _]time[ _]per[ _]iteration|-{8} arguments -{8}")

READERS: Final = (LogReader("megatron-log", "a log of Megatron-LM or a relative", "megatron-lm", _recognises, _read),)
