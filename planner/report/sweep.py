"""The results of a study on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from planner.report.bars import significant
from planner.sweep.answers import Result
from planner.sweep.study import Study
from planner.sweep.table import row

SHOWN = 40
"""Rows of a table; the rest is counted."""
_WIDEST = 400
"""Characters of a line: a narrow terminal folds lines, not columns."""
_DEGREES = ("tp", "cp", "pp", "vpp", "dp", "ep")


def print_results(found: Iterable[Result], study: Study, console: Console) -> None:
    """The first rows as a table, and how many more there are."""
    some, more = _parted(found)
    axes = [axis.field.removeprefix("pins.") for axis in study.axes]
    if study.scenarios and "scenario" not in axes:
        axes.append("scenario")
    compared = any(result.speedup is not None for result in some)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for axis in axes:
        table.add_column(axis.removeprefix("cluster.").replace(".", " "), overflow="fold")
    table.add_column("plan", overflow="fold")
    for name in ("seconds", "MFU", "days", "cost", "GiB", *(["speedup"] if compared else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for result in some:
        values = row(result, study)
        head = ["" if values[axis] is None else str(values[axis]) for axis in axes]
        table.add_row(*head, *(_plan(result, values, compared=compared) or [result.status]))
    natural = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
    console.print(table, width=max(natural, 1), crop=False, no_wrap=True, soft_wrap=True)
    for status in ("failed", "infeasible"):
        first = next((result for result in some if result.status == status), None)
        if first is not None:
            console.print(f"{_named(first)}: {status}: {_why(first)}", overflow="fold", markup=False)
    if more:
        console.print(f"and {more:,} more rows; --format csv, json or parquet has them all")


def _parted(found: Iterable[Result]) -> tuple[list[Result], int]:
    """The first results, and how many there are beyond."""
    every = iter(found)
    return list(islice(every, SHOWN)), sum(1 for _ in every)


def _named(result: Result) -> str:
    return ", ".join(f"{name} {value}" for name, value in result.axes.items()) or "the point"


def _why(result: Result) -> str:
    return result.error or next((one["example"] for one in result.document.get("rejected", ())), "nothing fits")


def _plan(result: Result, values: Mapping[str, Any], *, compared: bool) -> list[str]:
    if values["iteration_seconds"] is None or result.status == "infeasible":
        return []
    strategy, cost = result.document["strategy"], values["cost_dollars"]
    words = [f"{name}{strategy[name]}" for name in _DEGREES if strategy[name] > 1]
    cells = [" ".join([*words, f"mb{strategy['micro_batch_size']}"]), f"{values['iteration_seconds']:.3g}"]
    cells += [
        f"{values['mfu']:.1%}",
        significant(values["training_days"]),
        "" if cost is None else f"${cost:,.0f}",
    ]
    cells.append(f"{values['peak_memory_bytes'] / 2**30:.1f}")
    return cells + (["" if values["speedup"] is None else f"{values['speedup']:.2f}x"] if compared else [])
