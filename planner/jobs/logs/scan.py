"""A log read once, line by line: its starts, the steps of each, memory, and what the program dumped of its settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from planner.jobs.logs.lines import Form, Kind, MemoryForm, Peak, Step, peaks_in, ran_out, rank_of, step_of

_ASIDES: Final = tuple((re.compile(pattern, re.IGNORECASE), name) for pattern, name in (
    (r"validation (?:loss|results)|evaluating|running evaluation|completed eval step", "an evaluation"),
    (r"eval_(?:\w*_)?(?:loss|runtime)\W+\d", "an evaluation"),
    (r"sav(?:ing|ed) .*(?:checkpoint|model)|checkpoint saved|finished saving", "a checkpoint"),
    (r"dumping (?:profiler )?traces|profiler (?:step|trace)|memory snapshot", "a profile"),
    (r"skipping step|grad overflow on iteration", "dropped updates"),
))  # fmt: skip
"""What falls between two steps and is no training, by what it prints."""
_ASIDE_MARKS: Final = r"[Ee]val|[Vv]alid|[Ss]av|[Dd]ump|[Pp]rofil|snapshot|[Ss]kipping|overflow"
_EVALUATED: Final = re.compile(r"eval_(?:\w*_)?(?:loss|runtime)\W+\d")
"""What a line of a step has that an evaluation prints."""
_LEAPS: Final = 2
"""Lines that ranks may lag behind each other by; a step further back is a new start."""
_TOGETHER: Final = 0.1
"""How far apart the clocks of ranks may be that tell the same step, over the time since the start."""
_MINUTE: Final = 60.0
"""And how far at least, in seconds."""
_EPOCH: Final = 1e8
"""Seconds from which on a clock is a date and no time since the start."""


class Fact(NamedTuple):
    """A form of line that says a setting: what all such lines have, and a pattern whose groups are called as these."""

    mark: str
    pattern: re.Pattern[str]


class Dump(NamedTuple):
    """A block of lines in which a program prints its settings.

    It has what its first line and its last line have, and a pattern of those between, groups ``name`` and ``value``.
    """

    begin: str
    end: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Tables:
    """How a framework writes its log.

    Attributes:
        forms: of steps, those first that tell more.
        memory: of peaks.
        facts: of single settings.
        dumps: of all settings.
        starts: what is printed once at every start.
        table: what stands in front of the settings as JSON, nothing where they are not printed so.
        settings: what a line with one setting has, and its pattern, groups ``name`` and ``value``.
        follows: how lines begin that go on with the line before, behind their indent; nothing where none do.
    """

    forms: tuple[Form, ...]
    memory: tuple[MemoryForm, ...] = ()
    facts: tuple[Fact, ...] = ()
    dumps: tuple[Dump, ...] = ()
    starts: tuple[str, ...] = ()
    table: str = ""
    settings: tuple[str, re.Pattern[str]] | None = None
    follows: str = ""


@dataclass
class Start:
    """A start of the program, and what it printed until the next.

    Attributes:
        steps: by the place of their form in the table.
        memory: the largest of every kind and rank.
        said: settings by name.
        table: settings printed as JSON, as text.
        ran_out: after how many iterations memory ran out, -1 where it did not.
    """

    steps: dict[int, list[Step]] = field(default_factory=dict)
    memory: dict[tuple[Kind, str], Peak] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    table: str = ""
    ran_out: int = -1

    @property
    def begun(self) -> bool:
        """Whether it came to a step, or to its end before one."""
        return bool(self.steps) or self.ran_out >= 0

    @property
    def done(self) -> int:
        """The last iteration that was printed."""
        return max((found[-1].done for found in self.steps.values() if found), default=0)


class Scan:
    """Reads lines into starts, by the tables of a framework."""

    def __init__(self, tables: Tables) -> None:
        self.starts: list[Start] = [Start()]
        self._tables = tables
        self._aside = ""
        self._banner = False
        self._clocks: dict[int, float] = {}
        self._ranks: dict[int, str] = {}
        self._dump: Dump | None = None
        self._next: dict[str, str] = {}
        self._open = ""
        marks = [*(one.mark for one in tables.forms), *(one.mark for one in tables.facts)]
        marks += [one.mark for one in tables.memory]
        marks += [*tables.starts, *(one.begin for one in tables.dumps), *filter(None, [tables.table])]
        marks += [tables.settings[0]] if tables.settings else []
        self._marked = re.compile("|".join([*map(re.escape, dict.fromkeys(marks)), "emory", _ASIDE_MARKS]))

    def feed(self, lines: Iterable[str]) -> list[Start]:
        """All starts of some lines."""
        for line in lines:
            if self._dump or self._open or self._marked.search(line):
                self._line(line)
        return self.starts

    def _line(self, line: str) -> None:
        if self._settings(line):
            return
        self._banner = self._banner or any(mark in line for mark in self._tables.starts)
        for place, form in enumerate(self._tables.forms):
            if form.mark in line and (step := step_of(form, line)) is not None:
                self._step(place, step, rank_of(line))
                self._others(line, of_step=True)
                return
        self._others(line)

    def _others(self, line: str, *, of_step: bool = False) -> None:
        start = self.starts[-1]
        for fact in self._tables.facts:
            if fact.mark in line and (found := fact.pattern.search(line)):
                start.said |= {name: value for name, value in found.groupdict().items() if value}
        for peak in peaks_in(line, self._tables.memory):
            known = start.memory.get((peak.kind, peak.rank))
            if known is None or peak.bytes > known.bytes:
                start.memory[peak.kind, peak.rank] = peak
        if start.ran_out < 0 and ran_out(line):
            start.ran_out = start.done
        if of_step:
            self._aside = "an evaluation" if _EVALUATED.search(line) else self._aside
        else:
            self._aside = next((name for pattern, name in _ASIDES if pattern.search(line)), self._aside)

    def _begin(self) -> None:
        """A new start, which keeps the settings until it prints its own."""
        before = self.starts[-1]
        self.starts.append(Start(said=dict(before.said), table=before.table))
        self._aside, self._banner, self._ranks, self._clocks = "", False, {}, {}

    def _step(self, place: int, step: Step, rank: str) -> None:
        """Take a step, of the first rank that reports any; what other ranks say again is passed over."""
        if not self._banner and self._ranks.setdefault(place, rank) != rank:
            return
        found = self.starts[-1].steps.get(place, [])
        if found and step.done <= found[-1].done:
            if not self._banner and self._again(step, found):
                return
            self._begin()
        elif found and self._banner:
            self._aside = "a new start"
        self._banner = False
        if self.starts[-1].ran_out in range(step.done - 1):
            self.starts[-1].ran_out = -1  # training went on
        self._ranks.setdefault(place, rank)
        if step.clock is not None:
            self._clocks.setdefault(step.done, step.clock)
        self.starts[-1].steps.setdefault(place, []).append(replace(step, aside=self._aside))
        if place == min(self.starts[-1].steps):
            self._aside = ""

    def _again(self, step: Step, found: Sequence[Step]) -> bool:
        """Whether a step that was printed is printed again: by the next line, as of an evaluation, or by another rank.

        A rank does so at about the same clock, or within a few lines.
        """
        if step.done == found[-1].done:
            return True
        if step.clock is None:
            return step.done in {one.done for one in found[-_LEAPS:]}
        at = self._clocks.get(step.done)
        since_start = at is not None and at < _EPOCH
        near = max(_TOGETHER * at, _MINUTE) if at is not None and since_start else _MINUTE
        return at is not None and abs(at - step.clock) <= near

    def _settings(self, line: str) -> bool:
        """Take a line of a dump of settings; whether it was one."""
        if self._open or (self._tables.table and self._tables.table in line):
            return self._json(line)
        if self._tables.settings and self._tables.settings[0] in line:
            if found := self._tables.settings[1].search(line):
                self._settled().said[found["name"]] = found["value"].strip()
            return bool(found)
        if self._dump is None:
            self._dump = next((one for one in self._tables.dumps if one.begin in line), None)
            self._next = {}
            return self._dump is not None
        if self._dump.end in line:
            self._settled().said = self._next
            self._dump = None
        elif found := self._dump.pattern.search(line):
            self._next[found["name"]] = found["value"].strip()
        return True

    def _settled(self) -> Start:
        """The start that settings are of: a new one where the last one has begun."""
        if self.starts[-1].begun:
            self._begin()
        return self.starts[-1]

    def _json(self, line: str) -> bool:
        """Gather a table until its braces close."""
        text = line if self._open else line[line.find(self._tables.table) + len(self._tables.table) :]
        if not self._open and "{" not in text:
            return False
        self._open += text + "\n"
        if self._open.count("{") <= self._open.count("}") or len(self._open) > _LONGEST:
            self._settled().table, self._open = self._open, ""
        return True


_LONGEST: Final = 2**20


def settings(starts: Iterable[Start]) -> Mapping[str, str]:
    """The settings of the last start that said any."""
    return next((one.said for one in reversed(list(starts)) if one.said), {})
