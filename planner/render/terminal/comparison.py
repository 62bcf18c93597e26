"""Two sides on the screen: what they take, term by term, and the steps from one to the other."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.analyses.compare import Compared, Comparison
from planner.answer.text import format_gib, format_percent, format_prefixed, short_seconds
from planner.render.terminal.panels import TERMS
from planner.render.terminal.tables import grid, line, section

_LEAST = 5e-4
_ROUNDING = 1e-9
"""Of an iteration: a difference below it is one of sums in another order."""


def print_comparison(found: Comparison, console: Console) -> None:
    """The whole comparison, within the width of the console."""
    line(console, _answer(found), "bold")
    for letter, side in (("A", found.a), ("B", found.b)):
        line(console, f"{letter}  {side.name}{_risk(side)}")
    for heading, table in (
        ("Totals", _sides(found)),
        ("Time per iteration", _terms(found)),
        ("From A to B, change by change", _steps(found)),
    ):
        if table.row_count:
            section(heading, table, console)
    if found.steps and found.more_tokens_seconds:
        console.print("  what changes save is for as many tokens as A's iteration has", overflow="fold")
    if not found.steps:
        console.print("", "A and B are the same.", sep="\n")


def _answer(found: Comparison) -> str:
    """Which iteration is shorter, by how much of A's."""
    a, b = found.a.iteration_seconds, found.b.iteration_seconds
    if abs(b / a - 1.0) < _LEAST:
        return f"Both are predicted to take {short_seconds(a)} per iteration."
    more = "less" if b < a else "more"
    took = f"{abs(b / a - 1.0):.1%} {more} time per iteration: {short_seconds(b)}, A {short_seconds(a)}"
    return f"B is predicted to take {took}."


def _risk(side: Compared) -> str:
    """What a time does not tell: a side that was not measured and may not run."""
    return "" if side.fits or side.measured_seconds is not None else ", likely to run out of memory"


def _sides(found: Comparison) -> Table:
    measured = any(side.measured_seconds for side in (found.a, found.b))
    table = grid("", "iteration", "MFU", *(["measured", "MFU"] if measured else []), "tokens/s", "GiB", "GPUs")
    for letter, side in (("A", found.a), ("B", found.b)):
        table.add_row(letter, *_figures(side, measured=measured))
    return table


def _figures(side: Compared, *, measured: bool) -> tuple[str, ...]:
    taken = (
        "" if side.measured_seconds is None else short_seconds(side.measured_seconds),
        "" if side.measured_mfu is None else format_percent(side.measured_mfu),
    )
    return (
        short_seconds(side.iteration_seconds),
        format_percent(side.mfu),
        *(taken if measured else ()),
        format_prefixed(side.tokens_per_second),
        format_gib(side.peak_memory_bytes),
        f"{side.gpus:,}",
    )


def _terms(found: Comparison) -> Table:
    table = grid("", "A", "B", "B - A", "of A")
    total = found.a.iteration_seconds
    for term in sorted(found.terms, key=lambda term: term.b - term.a):
        if max(term.a, term.b) >= _LEAST * total:
            table.add_row(TERMS.get(term.name, term.name), *_difference(term.a, term.b, total))
    table.add_row("sum", *_difference(found.a.iteration_seconds, found.b.iteration_seconds, total), style="bold")
    return table


def _difference(a: float, b: float, total: float) -> tuple[str, ...]:
    more = 0.0 if abs(b - a) < _ROUNDING * total else b - a
    sign = "-" if more < 0 else "+" if more else ""
    return short_seconds(a), short_seconds(b), f"{sign}{short_seconds(abs(more))}", f"{more / total:+.1%}"


def _steps(found: Comparison) -> Table:
    table = grid("change", "saves", "iteration", "MFU", "", left=(0, 4))
    for step in found.steps:
        figures = (_saved(step.saved_seconds), short_seconds(step.iteration_seconds), format_percent(step.mfu))
        table.add_row(step.change, *figures, Text(step.detail))
    if found.steps:
        _sum_up(found, table)
    return table


def _sum_up(found: Comparison, table: Table) -> None:
    """What leads from the sum of all that is saved to the difference of the iterations, and that difference."""
    if more := found.more_tokens_seconds:
        counts = [format_prefixed(side.tokens_per_second * side.iteration_seconds) for side in (found.a, found.b)]
        change = f"{'more' if more > 0 else 'fewer'} tokens"
        table.add_row(change, _saved(-more), "", "", " -> ".join(counts) + " in an iteration")
    table.add_row("sum", _saved(found.a.iteration_seconds - found.b.iteration_seconds), "", "", "", style="bold")


def _saved(value: float) -> str:
    return f"{'-' if value < 0 else ''}{short_seconds(abs(value))}"
