"""The results of a study on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from rich.console import Console
from rich.table import Table

from planner.answer.text import three_digits
from planner.render.terminal.tables import print_wide, widths
from planner.studies.answers import Result
from planner.studies.study import Study
from planner.studies.table import row

SHOWN = 40
"""Rows of a table; the rest is counted."""
_FIGURES = ("seconds", "MFU", "days", "cost", "GiB", "speedup")
_SPARED = ("days", "cost", "GiB", "MFU", "speedup")
"""What a narrow terminal leaves out, the first first: the tokens, or another figure, tell it."""
_DEGREES = ("tp", "cp", "pp", "vpp", "dp", "ep")


def print_results(found: Iterable[Result], study: Study, console: Console) -> None:
    """The first rows as a table, and how many more there are."""
    some, more = _parted(found)
    _print_table(_columns(some, study), console)
    for status in ("failed", "infeasible"):
        first = next((result for result in some if result.status == status), None)
        if first is not None:
            console.print(f"{named(first)}: {status}: {_why(first)}", overflow="fold", markup=False)
    if more:
        console.print(f"and {more:,} more rows; --format csv, json or parquet has them all")


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
    if sum(2 + _longest(name, cells) for name, cells in columns.items()) - 2 <= width:
        return columns, natural, 2
    for name in ("", *_SPARED):
        kept.pop(name, None)
        wide = widths(kept, [one in _FIGURES for one in kept], width, gap=1)
        if None not in wide:
            return kept, wide, 1
    return columns, natural, 2  # the names alone are too long: the terminal folds lines


def _longest(name: str, cells: Sequence[str]) -> int:
    return max(map(len, (name, *cells)))


def _table(columns: Mapping[str, Sequence[str]], wide: Sequence[int | None], *, gap: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for name, width in zip(columns, wide, strict=True):
        figure = name in _FIGURES
        table.add_column(name, justify="right" if figure else "left", no_wrap=figure, overflow="fold", width=width)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


def _parted(found: Iterable[Result]) -> tuple[list[Result], int]:
    """The first results, and how many there are beyond."""
    every = iter(found)
    return list(islice(every, SHOWN)), sum(1 for _ in every)


def named(result: Result) -> str:
    """A point by the values of its axes."""
    return ", ".join(f"{name} {value}" for name, value in result.axes.items()) or "the point"


def _why(result: Result) -> str:
    return result.error or next((one["example"] for one in result.document.get("rejected", ())), "nothing fits")


def _plan(result: Result, values: Mapping[str, Any]) -> list[str]:
    if values["iteration_seconds"] is None or result.status == "infeasible":
        return []
    strategy, cost = result.document["strategy"], values["cost_dollars"]
    words = [f"{name}{strategy[name]}" for name in _DEGREES if strategy[name] > 1]
    words += [f"mb{strategy['micro_batch_size']}", *_savings(strategy)]
    cells = [" ".join(words), f"{values['iteration_seconds']:.3g}"]
    cells += [
        f"{values['mfu']:.1%}",
        three_digits(values["training_days"]),
        "" if cost is None else f"${cost:,.0f}",
    ]
    cells.append(f"{values['peak_memory_bytes'] / 2**30:.1f}")
    return [*cells, "" if values["speedup"] is None else f"{values['speedup']:.2f}x"]


def _savings(strategy: Mapping[str, Any]) -> list[str]:
    """What it does for memory, in one word each; stores of earlier versions do not know of it."""
    together, offload = strategy.get("recompute_num_layers", 1), strategy.get("offload", "none")
    return [*([f"by{together}"] if together > 1 else []), *([f"offload-{offload}"] if offload != "none" else [])]
