"""A job planned again, on the screen."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from hardware.units import format_quantity
from planner.analyses.replan_document import Choice, Replan
from planner.answer.text import format_percent, plural, short_seconds, strategy_in_words
from planner.render.terminal.tables import grid, indented, line, printable, section


def render(found: Replan, console: Console) -> None:
    """The whole answer, within the width of the console."""
    found = printable(found, console)
    was = f"{plural(found.old_gpus, 'GPU')}, {short_seconds(found.old_iteration_seconds)} per iteration"
    console.print(Text(f"{was} -> {plural(found.gpus, 'GPU')}, global batch {found.global_batch_size}", style="bold"))
    line(console, f"searched {', '.join(f'{count:,}' for count in found.counts)} GPUs: {found.statement}")
    if found.fastest is None or found.nearest is None:
        return
    choices = {"fastest": found.fastest} | ({} if found.fastest == found.nearest else {"nearest": found.nearest})
    table = grid("", "GPUs", "idle", "iteration", "slower", "moved", "pause", "strategy", left=(0, 7))
    for name, choice in choices.items():
        table.add_row(name, *map(Text, _cells(choice)))
    console.print("", indented(table), sep="\n")
    for name, choice in choices.items():
        section(name, Text(choice.moved.statement), console)


def _cells(choice: Choice) -> tuple[str, ...]:
    at, moved = choice.plan.strategy, choice.moved
    return (
        f"{choice.gpus:,}",
        f"{choice.idle_gpus:,}",
        short_seconds(choice.iteration_seconds),
        format_percent(choice.slower),
        format_quantity(moved.weight_bytes + moved.state_bytes, "bytes"),
        short_seconds(moved.seconds),
        strategy_in_words(at) if at else "",
    )
