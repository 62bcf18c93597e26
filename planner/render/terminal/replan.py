"""A job planned again, on the screen."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hardware.units import format_quantity
from planner.analyses.replan_document import Choice, Replan
from planner.answer.text import format_percent, plural, short_seconds, strategy_in_words
from planner.render.terminal.tables import grid, printable_text, section


def render(found: Replan, console: Console) -> None:
    """The whole answer, within the width of the console."""
    was = f"{plural(found.old_gpus, 'GPU')}, {short_seconds(found.old_iteration_seconds)} per iteration"
    console.print(Text(f"{was} -> {plural(found.gpus, 'GPU')}, global batch {found.global_batch_size}", style="bold"))
    searched = ", ".join(f"{count:,}" for count in found.counts)
    console.print(printable_text(f"searched {searched} GPUs: {found.statement}", console), overflow="fold")
    if found.fastest is None or found.nearest is None:
        return
    same = found.fastest == found.nearest
    choices = [("fastest", found.fastest), *([] if same else [("nearest", found.nearest)])]
    console.print("", Padding(_table(choices, console), (0, 0, 0, 2)), sep="\n")
    for name, choice in choices:
        section(name, printable_text(choice.moved.statement, console), console)


def _table(choices: list[tuple[str, Choice]], console: Console) -> Table:
    table = grid("", "GPUs", "idle", "iteration", "slower", "moved", "pause", "strategy", left=(0, 7))
    for name, choice in choices:
        at = choice.plan.strategy
        moved = choice.moved
        cells = (
            f"{choice.gpus:,}",
            f"{choice.idle_gpus:,}",
            short_seconds(choice.iteration_seconds),
            format_percent(choice.slower),
            format_quantity(moved.weight_bytes + moved.state_bytes, "bytes"),
            short_seconds(moved.seconds),
            strategy_in_words(at) if at else "",
        )
        table.add_row(name, *(printable_text(cell, console) for cell in cells))
    return table
