"""The least worst-case regret on the screen."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from planner.analyses.robust import Candidate, Robust
from planner.answer.text import format_percent, plural, short_seconds
from planner.render.terminal.sensitivity import words
from planner.render.terminal.tables import grid, line, print_head, print_wide


def print_robust(found: Robust, console: Console) -> None:
    """The choice beside the best, the next candidates, and how far the best stays best."""
    spread = f"{', '.join(found.uncertain)} each within {format_percent(found.within)}"
    asked = f"{found.model} on {plural(found.gpus, 'GPU')} of {found.cluster}; {spread}"
    print_head(asked, found.defaults, console)
    print_wide(_table(found), console)
    console.print()
    whole = found.radius >= found.within
    share = format_percent(found.within) if whole else f"{100 * found.radius:.2g} %"
    line(console, f"The nominal best stays best, to 0.1 %, at every corner {'of' if whole else 'up to'} {share}.")
    line(console, f"{found.statement[0].upper()}{found.statement[1:]}.")
    console.print()
    worst = format_percent(found.chosen.worst_regret)
    line(console, f"{words(found.chosen.strategy)}: at worst {worst} over the best.", "bold")


def _table(found: Robust) -> Table:
    columns = ("", "nominal", "regret", "worst", "best in", "strategy", "worst where")
    table = grid(*columns, left=(0, 5, 6), wrap=False)
    same = found.chosen == found.best
    table.add_row("robust, best at nominal" if same else "robust", *_cells(found.chosen, found))
    if not same:
        table.add_row("best at nominal", *_cells(found.best, found))
    for other in found.others:
        if other != found.best:
            table.add_row("", *_cells(other, found))
    return table


def _cells(one: Candidate, found: Robust) -> tuple[str, ...]:
    where = ", ".join(f"{name} {'+' if factor > 1 else '-'}" for name, factor in one.worst_where.items() if factor != 1)
    figures = (short_seconds(one.seconds), format_percent(one.regret), format_percent(one.worst_regret))
    return *figures, f"{one.best_in} of {found.scenarios}", words(one.strategy), where or "nominal"
