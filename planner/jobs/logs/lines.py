"""Lines of a log as they were printed, without colours: who printed them and when, the memory that they report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Literal

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


@dataclass(frozen=True, slots=True)
class MemoryForm:
    """A form of line that reports the peak of a device.

    Attributes:
        mark: what all such lines have.
        pattern: ``bytes`` is the figure, ``unit`` its unit, ``rank`` the rank where the line says it.
        kind: handed out to tensors, reserved by the allocator, or all that the driver shows.
        unit: where no group says it.
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
