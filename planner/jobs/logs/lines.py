"""Lines of a log as they were printed, without colours, with the rank and the clock that stand in front of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Final

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
