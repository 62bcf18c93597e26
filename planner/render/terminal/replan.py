"""A job planned again, on the screen."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from hardware.units import format_quantity
from planner.analyses.replan_document import Choice, OtherBatch, Replan
from planner.answer.headline import degrees
from planner.answer.text import format_percent, plural, short_seconds, strategy_in_words
from planner.render.terminal.tables import grid, indented, line, printable, section


def render(found: Replan, console: Console) -> None:
    """The whole answer, within the width of the console."""
    found = printable(found, console)
    line(console, _answer(found), "bold")
    if found.other_batch:
        line(console, _proposed(found.other_batch))
    was = f"{plural(found.old_gpus, 'GPU')}, {short_seconds(found.old_iteration_seconds)} per iteration"
    line(console, f"It was {was}; the global batch is {found.global_batch_size:,} sequences.")
    *others, last = found.counts
    line(console, f"Searched {''.join(f'{count:,}, ' for count in others)}{plural(last, 'GPU')}: {found.statement}.")
    if found.fastest is None or found.nearest is None:
        return
    choices = {"fastest": found.fastest} | ({} if found.fastest == found.nearest else {"nearest": found.nearest})
    table = grid("", "GPUs", "idle", "iteration", "slower", "moved", "pause", "strategy", left=(0, 7), whole=True)
    for name, choice in choices.items():
        table.add_row(name, *map(Text, _cells(choice)))
    console.print("", indented(table), sep="\n")
    for name, choice in choices.items():
        section(name, Text(choice.moved.statement), console)


def _answer(found: Replan) -> str:
    """What to go on with, in one sentence."""
    choice = found.nearest or found.fastest
    if choice is None or choice.plan.strategy is None:
        return f"Nothing fits {plural(found.gpus, 'GPU')}."
    idle = f" ({choice.idle_gpus:,} idle)" if choice.idle_gpus else ""
    took, pause = short_seconds(choice.iteration_seconds), short_seconds(choice.moved.seconds)
    use = f"On {plural(found.gpus, 'GPU')} use {degrees(choice.plan.strategy)}{idle}"
    return f"{use}: {took} per iteration after a pause of {pause}."


def _proposed(other: OtherBatch) -> str:
    """What another batch would gain."""
    took = f"{short_seconds(other.iteration_seconds)} per iteration on {plural(other.gpus, 'GPU')}"
    why = f"which divides among {plural(other.copies, 'replica')}"
    return f"With --global-batch {other.global_batch_size}, {why}: {took}, {other.faster:.1%} more tokens per second."


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
