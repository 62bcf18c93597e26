"""How far a study has come, and what failed: messages that differ in numbers only stand together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from planner.answer.text import plural
from planner.render.terminal.sweep import named
from planner.studies.answers import Result

SHOWN: Final = 10
"""Kinds of failure on the screen; the rest is counted."""
STATUSES: Final = ("optimal", "feasible", "infeasible", "failed", "pending")
_NUMBER: Final = re.compile(r"\d[\d.,]*\d|\d")


@dataclass
class Counted:
    """Results by their status, as they pass by."""

    counts: Counter[str] = field(default_factory=Counter)

    def passing(self, found: Iterable[Result]) -> Iterator[Result]:
        """The same results, counted."""
        for result in found:
            self.counts[result.status] += 1
            yield result

    @property
    def answered(self) -> int:
        """Points with an answer; a failed one has none."""
        return self.counts.total() - self.counts["failed"] - self.counts["pending"]

    def in_words(self) -> str:
        """How many points are answered, and how many failed."""
        failed = f", {self.counts['failed']:,} failed" if self.counts["failed"] else ""
        return f"{self.answered:,} of {self.counts.total():,} points answered{failed}"


def record(name: str, place: str, found: Iterable[Result]) -> dict[str, Any]:
    """The state of a study as one JSON object, with every failed point."""
    counted = Counted()
    failed = [
        {"index": result.index, "point": result.axes, "error": result.error}
        for result in counted.passing(found)
        if result.status == "failed"
    ]
    counts = {status: counted.counts[status] for status in STATUSES}
    return {"study": name, "store": place, "points": counted.counts.total(), "counts": counts, "failed": failed}


def text(name: str, place: str, found: Iterable[Result]) -> str:
    """The same for people: failed points by message, the first point of each."""
    counted = Counted()
    kinds: dict[str, list[Result]] = {}
    for result in counted.passing(found):
        if result.status == "failed":
            kinds.setdefault(_NUMBER.sub("0", result.error or ""), []).append(result)
    lines = [f"{name}: {counted.in_words()} in {place}"]
    lines += [f"  {counted.counts[status]:>9,} {status}" for status in STATUSES]
    return "".join(f"{line}\n" for line in (*lines, *_failures(kinds)))


def _failures(kinds: Mapping[str, Sequence[Result]]) -> list[str]:
    by_count = sorted(kinds.values(), key=len, reverse=True)
    lines = [f"  {_first(alike)}: {alike[0].error}" for alike in by_count[:SHOWN]]
    unsaid = f"{plural(len(kinds) - SHOWN, 'other message')}; " if len(kinds) > SHOWN else ""
    failed = sum(map(len, kinds.values()))
    return [*lines, *([f"  {unsaid}--format json names all {failed:,} failed points"] if failed > len(lines) else [])]


def _first(alike: Sequence[Result]) -> str:
    return named(alike[0]) + (f" and {len(alike) - 1:,} alike" if len(alike) > 1 else "")
