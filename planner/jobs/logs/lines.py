"""Lines of a log as they were printed: who printed them and when, the steps and the memory that they report."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\[(?:0|1|[349][0-79])(?:;\d+)*m")
"""Terminal sequences, and what a copy out of a terminal leaves of them."""
_RANKS: Final = tuple(map(re.compile, (
    r"^\s*\[default(\d+)\]:",
    r"^\s*\[rank(\d+)\]",
    r"^\s*\[\d+,(\d+)\]<std(?:out|err)>",
    r"^\s*(\d+): ",
    r"\[INFO\|([^\]]+)\]",
    r"^\s*\[(pod/[^\]\s]+)\]",
    r"^\((\w+ pid=\d+[^)]*)\)",
)))  # fmt: skip
"""Who printed a line: torchrun, torchtitan's ranks, mpirun, srun -l, nanotron, kubectl logs --prefix, Ray."""
_STAMPS: Final = (
    (re.compile(r"(20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?"), "%Y-%m-%d %H:%M:%S", ""),
    (re.compile(r"(\d\d/\d\d/20\d\d \d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?"), "%m/%d/%Y %H:%M:%S", ""),
    (re.compile(r"\b[IWE](\d{4} \d\d:\d\d:\d\d)\.(\d{1,6})"), "%Y%m%d %H:%M:%S", "2024"),
)
"""Times of day in front of lines, and how they are written; the year of those that have none."""
_CLOCK: Final = re.compile(r"(?:(\d+) days?, )?(?:(\d+):)?(\d{1,2}):(\d\d)(?:\.\d+)?$")
_UNITS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_WORDS: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([dhms])")
_SUFFIXES: Final = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_NUMBER: Final = re.compile(r"([-+]?[\d,]*\.?\d+(?:[eE][-+]?\d+)?)([KMGT]?)")


def plain(lines: Iterator[str]) -> Iterator[str]:
    """Lines without colours; what a progress bar draws over itself is a line each time."""
    for line in lines:
        for part in line.rstrip("\n").split("\r"):
            yield _COLOURS.sub("", part) if "[" in part else part


def gathered(lines: Iterator[str], follows: str) -> Iterator[str]:
    """Lines with those that go on with them, as far as these begin so behind their rank and their indent."""
    begins = re.compile(rf"(?:\s*\d+:)?\s*{re.escape(follows)}")
    whole: list[str] = []
    for line in lines:
        if whole and not begins.match(line):
            yield " ".join(whole)
            whole = []
        whole.append(line)
    if whole:
        yield " ".join(whole)


@lru_cache(maxsize=4)
def uncoloured(text: str) -> str:
    """A text without terminal sequences."""
    return _COLOURS.sub("", text)


def has(file_text: str, pattern: re.Pattern[str]) -> bool:
    """Whether a text has something outside of comments, as scripts and configurations have figures of what they ran."""
    text = uncoloured(file_text)
    return any(text[text.rfind("\n", 0, found.start()) + 1] != "#" for found in pattern.finditer(text))


def rank_of(line: str) -> str:
    """Who printed it, as the line has it; nothing where it does not say."""
    for pattern in _RANKS:
        if found := pattern.search(line):
            return found[1]
    return ""


def stamp_of(line: str) -> tuple[float, float] | None:
    """The time of day that a line begins with, in seconds of some zero, and how fine it is; None where it has none."""
    for pattern, written, year in _STAMPS:
        if found := pattern.search(line):
            parts = found[2] or ""
            whole = datetime.strptime(f"{year}{found[1].replace('T', ' ')} +0000", f"{written} %z")
            return whole.timestamp() + float(f"0.{parts or 0}"), 10.0 ** -len(parts)
    return None


def seconds_in(text: str) -> float | None:
    """Seconds of a duration: "1:02:03", "4 days, 7:19:52", "49m 19s"; None where it is none."""
    if found := _CLOCK.match(text.strip()):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds
    parts = _WORDS.findall(text)
    return sum(float(count) * _UNITS[unit] for count, unit in parts) if parts else None


def number_in(text: str) -> float | None:
    """The number that a text begins with: "1,234", "2e+3", "4.71K"; None where it is none."""
    found = _NUMBER.match(text.strip())
    return float(found[1].replace(",", "")) * _SUFFIXES[found[2]] if found else None


def last_digit(text: str) -> float:
    """What one of the last digit of a number is worth: 0.1 of "2152.2", 10 of "4.71K"."""
    found = _NUMBER.match(text.strip())
    if not found:
        return 0.0
    digits, _, power = found[1].lower().partition("e")
    _, _, decimals = digits.partition(".")
    return float(10.0 ** (int(power or 0) - len(decimals)) * _SUFFIXES[found[2]])


Kind = Literal["allocated", "reserved", "device"]
_BYTES: Final = {"B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 2**10, "MB": 2**20, "GB": 2**30, "1E9": 10**9}
"""Frameworks divide by powers of two whatever they call the unit, but for those that a table says."""


class MemoryForm(NamedTuple):
    """A form of line that reports the peak of a device, by what all such lines have.

    Groups of the pattern are ``bytes``, ``unit`` and ``rank``. The kind is memory handed out to tensors, reserved by
    the allocator, or all that the driver shows.
    """

    mark: str
    pattern: re.Pattern[str]
    kind: Kind
    unit: str = "GIB"


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest memory of a device."""

    bytes: float
    kind: Kind
    rank: str
    rounding: float


def peaks_in(line: str, forms: Iterable[MemoryForm]) -> Iterator[Peak]:
    """Every peak that a line reports."""
    for form in forms:
        if form.mark in line:
            for found in form.pattern.finditer(line):
                groups = found.groupdict()
                value, factor = number_in(found["bytes"]), _BYTES[(groups.get("unit") or form.unit).upper()]
                if value:
                    fine = last_digit(found["bytes"]) / 2.0 / value
                    yield Peak(value * factor, form.kind, groups.get("rank") or rank_of(line), min(fine, 1.0))


def peak_memory(found: Mapping[tuple[Kind, str], Peak]) -> dict[str, Any] | None:
    """The record of the fullest device, of tensors if the log has them; of the first stage if only rank 0 prints."""
    for kind in ("allocated", "reserved", "device"):
        alike = [one for one in found.values() if one.kind == kind]
        if alike:
            most = max(alike, key=lambda one: one.bytes)
            alone = {"stage": 0} if {one.rank for one in alike} == {"0"} else {}
            return {"bytes": most.bytes, "kind": kind, "rounding": most.rounding, **alone}
    return None


_OUT: Final = re.compile(
    r"OutOfMemoryError|(?:CUDA|HIP|NPU|XPU|MUSA) out of memory|RESOURCE_EXHAUSTED: Out of memory"
    r"|CUDA error: out of memory"
    r"|failed to allocate (?:request for )?[\d.]+\s*[KMG]iB"
)


def ran_out(line: str) -> bool:
    """Whether a line says that a device is out of memory."""
    return "emory" in line and bool(_OUT.search(line))


Groups = Mapping[str, str]
"""What a line says, by name: ``step``, ``of``, ``ms``, ``s``, ``per_s`` (iterations a second), ``elapsed`` (since the
start), ``hours`` and ``since`` (hours and seconds of training), ``speed`` (iterations a second since then), ``pace``
(seconds an iteration since the start), ``batch``, ``skipped``."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form of line that reports a step.

    Attributes:
        mark: what all such lines have, so that others are passed over quickly.
        read: what a line says by name, None where it is none.
        of_last: iterations over which a running mean goes; 1 where the time is the line's own.
        since_last: whether the time is the mean of all iterations since the line before.
        first: number of the first iteration, where a framework counts from 0.
        clock: whether the time of day in front of the line, or the time since the start, says the time.
    """

    mark: str
    read: Callable[[str], Groups | None]
    of_last: int = 1
    since_last: bool = False
    first: int = 1
    clock: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What a line says of a step.

    Attributes:
        done: iterations that are done.
        of: iterations of the whole run, 0 where it is not said.
        seconds: of an iteration.
        fine: what one of the last printed digit of that is worth, in seconds.
        clock: seconds since some zero.
        coarse: how coarse that clock is, in seconds.
        batch: sequences of the iteration, 0 where it is not said.
        skipped: iterations since the last line whose update was dropped.
        aside: what happened since the step before it that is no training, such as "an evaluation".
    """

    done: int
    of: int = 0
    seconds: float | None = None
    fine: float = 0.0
    clock: float | None = None
    coarse: float = 0.0
    batch: int = 0
    skipped: int = 0
    aside: str = ""

    @property
    def apart(self) -> str:
        """Why its time is none of training alone; nothing where it is."""
        return self.aside or ("dropped updates" if self.skipped else "")


def row(mark: str, begin: str, parts: Sequence[str] = (), **more: Any) -> Form:
    """A form by a pattern of its begin and patterns of parts that may follow in any order.

    Named groups are those of ``Groups``.
    """
    pattern = re.compile(begin + "".join(rf"(?=.*?{part}|)" for part in parts))

    def read(line: str) -> Groups | None:
        found = pattern.search(line)
        return {name: value for name, value in found.groupdict().items() if value} if found else None

    return Form(mark, read, **more)


def keyed(mark: str, keys: Mapping[str, str], **more: Any) -> Form:
    """A form by the names of a table, JSON's or Python's, that a line has: what each is called here."""

    def read(line: str) -> Groups | None:
        found = table_in(line)
        if found is None:
            return None
        said = {ours: str(found[theirs]) for theirs, ours in keys.items() if found.get(theirs) is not None}
        step, _, total = said.get("step", "").partition("/")  # 12/100 is a step and how many there are
        return {**said, "step": step, **({"of": total} if total else {})} if "step" in said else None

    return Form(mark, read, **more)


LONGEST_TABLE: Final = 2**16
"""Characters of the longest table that is one step's."""


def table_in(line: str, *, longest: int = LONGEST_TABLE) -> Mapping[str, Any] | None:
    """The table, as JSON or Python prints it, that a line ends with; None where there is none."""
    start, end = line.find("{"), line.rfind("}")
    if not 0 <= start < end or end - start > longest:
        return None
    text = line[start : end + 1]
    parsers: tuple[Callable[[str], Any], ...] = (json.loads, ast.literal_eval)
    for parse in parsers:
        try:
            found = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return found if isinstance(found, Mapping) else None
    return None


_PER: Final[Mapping[str, Callable[[float], float]]] = {
    "ms": lambda value: value / 1e3,
    "s": lambda value: value,
    "per_s": lambda value: 1.0 / value if value else 0.0,
}
"""Seconds of an iteration, by the name of what is printed."""


def step_of(form: Form, line: str) -> Step | None:
    """What a line says of a step, None where it is not of this form."""
    said = form.read(line)
    done = number_in(said["step"]) if said else None
    if said is None or done is None:
        return None
    seconds, fine = _seconds(said)
    clock, coarse = _clock(form, said, line, done)
    total, batch, skipped = (int(number_in(said.get(name, "")) or 0) for name in ("of", "batch", "skipped"))
    return Step(round(done) + 1 - form.first, total, seconds, fine, clock, coarse, batch, skipped)


def _seconds(said: Groups) -> tuple[float | None, float]:
    """Seconds of an iteration and what its last digit is worth."""
    for name, of in _PER.items():
        if name in said and (value := number_in(said[name])):
            seconds = of(value)
            return seconds, seconds * last_digit(said[name]) / value
    return None, 0.0


def _clock(form: Form, said: Groups, line: str, done: float) -> tuple[float | None, float]:
    """Seconds since some zero, and how coarse they are: of an average since the start where the time agrees with it."""
    for name, unit in _TRAINED.items():
        if name in said and (value := number_in(said[name])) is not None:
            return value * unit, last_digit(said[name]) * unit
    elapsed = seconds_in(said["elapsed"]) if "elapsed" in said else None
    for name in ("speed", "pace"):
        if name in said and (value := number_in(said[name])):
            clock = done / value if name == "speed" else done * value
            if elapsed is None or abs(clock - elapsed) <= max(_AGREES * elapsed, 2.0):
                return clock, min(clock * last_digit(said[name]) / value, 1.0)
    if elapsed is not None:
        return elapsed, 1.0
    return (stamp_of(line) or (None, 0.0)) if form.clock else (None, 0.0)


_TRAINED: Final = {"since": 1.0, "hours": 3600.0}
_AGREES: Final = 0.02
"""How far an average since the start may be from the time since then; a run that was resumed counts steps otherwise."""
