"""What speaks against a strategy, on the screen."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from planner.answer.text import column_seconds, format_gib
from planner.explain.why_not import WhyNot
from planner.render.terminal.bars import flow
from planner.render.terminal.panels import TERMS, along_the_pipeline
from planner.render.terminal.tables import grid
from planner.render.terminal.terminal import degrees, indented, nearest_that_works, printable, refused, switches, title


def render_why_not(answer: WhyNot, console: Console) -> None:
    """Print what speaks against a strategy: the rules it breaks, or its time term by term."""
    answer = printable(answer, console)
    for part in _objection(answer, console.width):
        console.print(part, overflow="fold")


def _objection(answer: WhyNot, width: int) -> Iterator[RenderableType]:
    yield Text(answer.verdict, style="bold")
    if answer.strategy is not None:
        yield from ("", Text(flow(degrees(answer.strategy), width=width)))
        yield Text(flow(switches(answer.strategy), width=width))
        yield from map(Text, along_the_pipeline(answer.strategy))
    if answer.rules:
        yield from ("", title("Rules against it"), indented(refused(answer.rules)))
    yield from nearest_that_works(answer.nearest, answer.nothing_near)
    if answer.memory_terms:
        yield from ("", title("Memory of the fullest device, GiB"), indented(_held(answer)))
    if answer.terms:
        yield from ("", title("Time per iteration"), indented(_comparison(answer)))


def _comparison(answer: WhyNot) -> Table:
    table = grid("", "this", "best", "difference", wrap=False)
    whole = (answer.iteration_seconds, answer.best_iteration_seconds)
    largest = max((value for value in whole if value), default=1.0)
    for name, (this, best) in answer.terms.items():
        if this or best:
            table.add_row(TERMS.get(name, name), *_compared(this, best, largest))
    if whole[0] is not None and whole[1] is not None:
        table.add_row("iteration", *_compared(whole[0], whole[1], largest), style="bold")
    return table


def _held(answer: WhyNot) -> Table:
    table = grid("", "this", "best", "difference", wrap=False)
    for name, (this, best) in answer.memory_terms.items():
        table.add_row(
            name, format_gib(this), format_gib(best), f"{'+' if this >= best else '-'}{format_gib(abs(this - best))}"
        )
    return table


def _compared(this: float, best: float, largest: float) -> tuple[str, str, str]:
    sign = "+" if this >= best else "-"
    return (
        column_seconds(this, largest),
        column_seconds(best, largest),
        f"{sign}{column_seconds(abs(this - best), largest)}",
    )
