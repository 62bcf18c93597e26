"""The results of a study on a terminal, how far it has come, and what failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from planner.answer.text import plural, short_seconds, three_digits
from planner.render.terminal.tables import height, print_wide, unlined, warned, widths
from planner.studies.result import Result
from planner.studies.study import Study
from planner.studies.table import row

SHOWN = 40
"""Rows of a table at most; the rest is counted."""
MOST_SHOWN = 1000
"""Rows where all are asked for."""
_WARNINGS_SHOWN: Final = 4
"""Kinds of warnings below a table, the most frequent; --format csv has them all."""
LINES: Final = 55
"""Lines of a table that is not asked for in full."""
_FIGURES = ("iteration", "MFU", "days", "cost", "GiB", "speedup")
_OPTIONAL = ("days", "cost", "GiB", "MFU", "speedup")
"""What a narrow terminal leaves out, the first first: the tokens, or another figure, tell it."""
_DEGREES = ("tp", "cp", "pp", "vpp", "dp", "ep")


def print_results(found: Iterable[Result], study: Study, console: Console, *, whole: bool = False) -> None:
    """The first rows as a table that takes no more than a screen, or the ``whole``, and how many more there are."""
    every = iter(found)
    some = list(islice(every, MOST_SHOWN if whole else SHOWN))
    while not whole and len(some) > 1 and height(console, _print_table, _columns(some, study)) > LINES:
        every = chain([some.pop()], every)
    more = sum(1 for _ in every)
    _print_table(_columns(some, study), console)
    for status in ("failed", "infeasible"):
        first = next((result for result in some if result.status == status), None)
        if first is not None:
            why = first.error or next((one["example"] for one in first.document.get("rejected", ())), "nothing fits")
            console.print(f"{named(first)}: {status}: {why}", overflow="fold", markup=False)
    for alike, warning in _warnings(some):
        console.print(warned(f"{_first(alike)}: {warning}"), overflow="fold")
    if more:
        shows = "" if whole else "-v shows them; "
        console.print(f"and {more:,} more rows; {shows}--format csv, json or parquet has them all", overflow="fold")


def _warnings(some: Iterable[Result]) -> list[tuple[list[Result], str]]:
    """Warnings of points, the most frequent first, each with its points; those alike but for numbers count as one."""
    kinds: dict[str, tuple[list[Result], str]] = {}
    for result in some:
        for warning in result.document.get("warnings", ()):
            kinds.setdefault(_NUMBER.sub("0", warning), ([], warning))[0].append(result)
    return sorted(kinds.values(), key=lambda kind: -len(kind[0]))[:_WARNINGS_SHOWN]


def _columns(some: Sequence[Result], study: Study) -> dict[str, list[str]]:
    """The cells of every column, by its heading: the axes, the plan, its figures."""
    axes = [axis.field.removeprefix("pins.") for axis in study.axes]
    if study.scenarios and "scenario" not in axes:
        axes.append("scenario")
    figures = _FIGURES if any(result.speedup is not None for result in some) else _FIGURES[:-1]
    headings = [*(axis.removeprefix("cluster.").replace(".", " ") for axis in axes), "plan", *figures]
    values = [row(result, study) for result in some]
    rows = [
        [*("" if one[axis] is None else str(one[axis]) for axis in axes), *(_plan(result, one) or [result.status])]
        for result, one in zip(some, values, strict=True)
    ]
    return {
        heading: [cells[place] if place < len(cells) else "" for cells in rows]
        for place, heading in enumerate(headings)
    }


def _print_table(columns: Mapping[str, Sequence[str]], console: Console) -> None:
    kept, wide, gap = _fitted(columns, console.width)
    print_wide(_table(kept, wide, gap=gap), console)
    if gone := [name for name in columns if name not in kept]:
        console.print(f"without {', '.join(gone)}, for which there is no room; --format csv has them", overflow="fold")


def _fitted(
    columns: Mapping[str, Sequence[str]], width: int
) -> tuple[Mapping[str, Sequence[str]], Sequence[int | None], int]:
    """Columns that fit, their widths and the gap between them: words stay whole, figures leave until they do."""
    natural, kept = [None] * len(columns), dict(columns)
    if sum(2 + max(map(len, (name, *cells))) for name, cells in columns.items()) - 2 <= width:
        return columns, natural, 2
    for name in ("", *_OPTIONAL):
        kept.pop(name, None)
        wide = widths(kept, [one in _FIGURES for one in kept], width, gap=1)
        if None not in wide:
            return kept, wide, 1
    return columns, natural, 2  # the names alone are too long: the terminal folds lines


def _table(columns: Mapping[str, Sequence[str]], wide: Sequence[int | None], *, gap: int) -> Table:
    table = unlined(gap)
    for name, width in zip(columns, wide, strict=True):
        figure = name in _FIGURES
        table.add_column(name, justify="right" if figure else "left", no_wrap=figure, overflow="fold", width=width)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


def named(result: Result) -> str:
    """A point by the values of its axes."""
    return ", ".join(f"{name} {value}" for name, value in result.axes.items()) or "the point"


def _plan(result: Result, values: Mapping[str, Any]) -> list[str]:
    if values["iteration_seconds"] is None or result.status == "infeasible":
        return []
    strategy, cost = result.document["strategy"], values["cost_dollars"]
    words = [f"{name.upper()} {strategy[name]}" for name in _DEGREES if strategy[name] > 1] or ["one GPU"]
    several = [f"MBS {strategy['micro_batch_size']}"] * (strategy["micro_batch_size"] > 1)
    words = [" ".join(words), *several, *_savings(strategy)]
    return [
        ", ".join(words),
        short_seconds(values["iteration_seconds"]),
        f"{values['mfu']:.1%}",
        three_digits(values["training_days"]),
        "" if cost is None else f"${cost:,.0f}",
        f"{values['peak_memory_bytes'] / 2**30:.1f}",
        "" if values["speedup"] is None else f"{values['speedup']:.2f}x",
    ]


def _savings(strategy: Mapping[str, Any]) -> list[str]:
    """What it does for memory, in a few words each; stores of earlier versions do not know of it."""
    together, offload = strategy.get("recompute_num_layers", 1), strategy.get("offload", "none")
    again = [f"{together} layers recomputed together"] if together > 1 else []
    return [*again, *([f"offload {offload}"] if offload != "none" else [])]


_KINDS_SHOWN: Final = 10
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


def status_record(name: str, place: str, found: Iterable[Result]) -> dict[str, Any]:
    """The state of a study as one JSON object, with every failed point."""
    counted = Counted()
    failed = [
        {"index": result.index, "point": result.axes, "error": result.error}
        for result in counted.passing(found)
        if result.status == "failed"
    ]
    counts = {status: counted.counts[status] for status in STATUSES}
    return {"study": name, "store": place, "points": counted.counts.total(), "counts": counts, "failed": failed}


def status_text(name: str, place: str, found: Iterable[Result]) -> str:
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
    lines = [f"  {_first(alike)}: {alike[0].error}" for alike in by_count[:_KINDS_SHOWN]]
    unsaid = f"{plural(len(kinds) - _KINDS_SHOWN, 'other message')}; " if len(kinds) > _KINDS_SHOWN else ""
    failed = sum(map(len, kinds.values()))
    return [*lines, *([f"  {unsaid}--format json names all {failed:,} failed points"] if failed > len(lines) else [])]


def _first(alike: Sequence[Result]) -> str:
    return named(alike[0]) + (f" and {len(alike) - 1:,} alike" if len(alike) > 1 else "")
