"""Readers of logs: what a log reports of a run, by tables of data that say how a framework writes its lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from planner.answer.text import plural, short_seconds
from planner.errors import BadRequest
from planner.jobs.documents import describes_model
from planner.jobs.imported import ImportedJob
from planner.jobs.logs.lines import Form, MemoryForm, gathered, has, keyed, peak_memory, plain, row
from planner.jobs.logs.scan import Dump, Fact, Scan, Start, Tables
from planner.jobs.logs.series import FEWEST, Reading, Timing, readings, timing
from planner.jobs.reader import Context, JobFile, LogReader
from planner.jobs.values import data


@dataclass(frozen=True)
class Findings:
    """What a log reports.

    Attributes:
        start: of the program, the one that ran longest; its settings are the run's.
        measured: as a ``run/1`` document has it.
        timing: what an iteration takes; None where nothing is measured.
        remarks: how it was measured, or why not.
        uncertain: whether the time is a figure and no measurement, such as the mean of a whole run.
    """

    start: Start
    measured: dict[str, Any] = field(default_factory=dict)
    timing: Timing | None = None
    remarks: tuple[str, ...] = ()
    uncertain: bool = False


def findings_of(file: JobFile, tables: Tables) -> Findings:
    """Read a log through the tables of its framework."""
    lines = plain(file.lines())
    return tell(Scan(tables).feed(gathered(lines, tables.follows) if tables.follows else lines), tables.forms)


def tell(starts: Sequence[Start], forms: Sequence[Form]) -> Findings:
    """Time, memory and remarks of some starts."""
    found = [(start, *_timed(start, forms)) for start in starts]
    start, time, read = max(found, key=lambda one: (one[1].count if one[1] else 0, one[0].done))
    last = next((one for one in reversed(starts) if one.begun), starts[-1])
    peak, out = peak_memory(start.memory), last.ran_out
    seconds = {"iteration_seconds": time.seconds, "rounding": time.rounding} if time else {}
    measured: dict[str, Any] = seconds | ({"peak_memory": peak} if peak else {})
    measured |= {"out_of_memory": True} if out >= 0 else {}
    where = f"after {plural(out, 'iteration')}" if out else "before the first iteration was done"
    lost = [f"out of memory {where}"] if out >= 0 else []
    remarks = (*_starts(starts, start), *(_time(time) if time else _no_time(read, start)), *lost)
    return Findings(start, measured, time, remarks, uncertain=bool(time and not time.settled))


def _timed(start: Start, forms: Sequence[Form]) -> tuple[Timing | None, list[Reading]]:
    """The time of a start by the first form of the table that measures one, and the readings of the first that has."""
    most: list[Reading] = []
    for place in sorted(start.steps):
        read = readings(start.steps[place], since_last=forms[place].since_last)
        most = most or read
        if time := timing(read, of_last=forms[place].of_last):
            return time, read
    return None, most


def _starts(starts: Sequence[Start], taken: Start) -> Iterator[str]:
    ran = [one for one in starts if one.steps]
    if len(ran) > 1:
        place = next((place for place, one in enumerate(ran, 1) if one is taken), len(ran))
        each = f"number {place}, up to iteration {taken.done:,}, is used"
        yield f"steps start {len(ran)} times, after restarts or because several ranks log; {each}"


def _time(time: Timing) -> Iterator[str]:
    """How the time was taken."""
    where = f"the median of {plural(time.count, 'iteration')}, {time.first:,} to {time.last:,}"
    yield f"{short_seconds(time.seconds)} per iteration: {where}; the middle half of them lies within {time.spread:.1%}"
    if time.warm_up:
        yield f"{plural(time.warm_up, 'iteration')} of warm-up left out"
    for reason, count in time.aside:
        yield f"{plural(count, 'iteration')} left out for {reason}"
    if time.outliers:
        slowest = short_seconds(time.slowest)
        yield f"{plural(time.outliers, 'iteration')} much slower, up to {slowest}; the median ignores them"
    if len(time.batches) > 1:
        sizes = ", ".join(f"{size:,}" for size in time.batches[:4])
        yield f"the batch changes ({sizes}); the time is for {time.batch:,} sequences"
    if not time.settled:
        yield "the time never settles, so it is compared, but not used to calibrate"


def _no_time(read: Sequence[Reading], start: Start) -> Iterator[str]:
    if start.ran_out >= 0 and not start.done:
        return
    count = sum(one.count for one in read)
    if not start.steps or (not read and max(map(len, start.steps.values())) > 1):
        yield f"no line of the log reports {'the time of ' if start.steps else ''}an iteration, so no time is read"
    elif len(read) < 2:
        yield f"one line of time is not enough; a measurement needs {FEWEST + 1} iterations or more"
    else:
        yield f"{plural(count, 'iteration')} are too few for a measurement of time; it needs {FEWEST + 1} or more"


def with_findings(job: ImportedJob, findings: Findings, context: Context, *, aside: Sequence[str] = ()) -> ImportedJob:
    """A job of what a log says of the settings, with what it reports of the run, and what must be said elsewhere."""
    fields = dict(job.fields)
    if findings.timing and findings.timing.batch:
        fields["global_batch_size"] = findings.timing.batch
    known = {*fields, *(f"pins.{axis}" for axis in job.pins), *context.known}
    known |= {"cluster"} if "profile" in known else set()
    known |= {"global_batch_size"} if "steps" in job.pins else set()
    known |= {"model"} if any(map(describes_model, context.files)) else set()
    rest = any(not describes_model(file) for file in context.files)  # which a configuration or a script says
    asked = ["cluster"] if rest else list(_ASKED)
    lacks = [f"the log does not say {_ASKED[name][0]}; give {_ASKED[name][1]}" for name in asked if name not in known]
    if len(lacks) > FEW:
        lacks[-1] += " (or the job's configuration together with the log, which says most of these)"
    return replace(
        job,
        fields=fields,
        measured=findings.measured,
        suspect=findings.uncertain,
        missing=(*job.missing, *lacks),
        remarks=(*findings.remarks, *aside, *job.remarks),
    )


FEW: Final = 2
"""Settings that a log may lack until its job's configuration is the easier way to say them."""
_ASKED: Final[Mapping[str, Sequence[str]]] = data("logs/asked")["asked"]
"""What must be known for a price of what ran, in words, and the option that says it."""


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
    """The reader of the logs of a framework, by the table in its folder.

    ``job`` makes one of the settings that are printed, ``aside`` are remarks; ``unless`` a file is none for all its
    lines, and ``read`` stands in place of all that, where a log is more than lines.
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
