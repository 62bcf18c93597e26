"""Readers of logs by tables of data: a file ``log.toml`` has how a framework writes its lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from planner.errors import BadRequest
from planner.jobs.data import data
from planner.jobs.imported import ImportedJob
from planner.jobs.logs.forms import Form, keyed, row
from planner.jobs.logs.lines import MemoryForm, has
from planner.jobs.logs.scan import Dump, Fact, Tables
from planner.jobs.logs.statements import Findings, findings_of, with_findings
from planner.jobs.reader import Context, JobFile, LogReader


@cache
def tables(name: str) -> Tables:
    """How a framework writes its log; ``like`` stands for the rows of another table."""
    said = data(name)
    other = tables(said["like"]) if "like" in said else Tables(())
    dump, settings = said.get("dump"), said.get("settings")
    return Tables(
        forms=tuple(_forms(name)) or other.forms,
        memory=tuple(_memory(name)) or other.memory,
        facts=(*other.facts, *(Fact(mark, re.compile(one)) for mark, one in said.get("facts", {}).items())),
        dumps=(Dump(dump[0], dump[1], re.compile(dump[2])),) if dump else other.dumps,
        starts=tuple(said.get("starts", other.starts)),
        table=said.get("table", other.table),
        settings=(settings[0], re.compile(settings[1])) if settings else other.settings,
        follows=said.get("follows", ""),
    )


def _forms(name: str) -> Iterator[Form]:
    for one in data(name).get("steps", ()):
        if "like" in one:
            yield from _forms(one["like"])
        else:
            yield keyed(**one) if "keys" in one else row(**one)


def _memory(name: str) -> Iterator[MemoryForm]:
    for mark, *rest in data(name).get("memory", ()):
        if not rest:
            yield from _memory(mark)  # another table's
            continue
        kind, pattern, *unit = rest
        yield MemoryForm(mark, re.compile(pattern), kind, *unit)


Job = Callable[[Findings, JobFile, Context], ImportedJob]
"""What a log says of the settings, of what it reports of the run, the file and what else is known."""


def log_reader(
    name: str,
    job: Job = lambda *_: ImportedJob(),
    *,
    aside: Callable[[Findings], Sequence[str]] = lambda _: (),
    unless: Callable[[JobFile], bool] = lambda _: False,
    read: Callable[[JobFile, Context], ImportedJob] | None = None,
) -> LogReader:
    """The reader of a framework's logs.

    Args:
        name: of the framework's folder.
        job: what the settings that it prints ask for.
        aside: remarks of the framework.
        unless: whether a file that has its lines is none.
        read: in place of all that, where a log is more than lines.
    """
    said = data(f"{name}/log")
    sign, others = re.compile(said["sign"], re.MULTILINE), re.compile(said.get("others", r"(?!)"))

    def recognises(file: JobFile) -> bool:
        return not unless(file) and has(file.text, sign) and not has(file.text, others)

    def of_lines(file: JobFile, context: Context) -> ImportedJob:
        findings = findings_of(file, tables(f"{name}/log"))
        return with_findings(job(findings, file, context), findings, context, aside=aside(findings))

    return LogReader(said["form"], said["title"], said.get("framework", ""), recognises, read or of_lines)


def made_job(make: Callable[[], ImportedJob], what: str, otherwise: ImportedJob | None = None) -> ImportedJob:
    """The job of what a program prints; where that makes none, the reason and what is known anyway."""
    try:
        return make()
    except BadRequest as error:
        return replace(otherwise or ImportedJob(), missing=(f"the {what} not make a job: {error}",))
