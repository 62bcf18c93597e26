"""What speaks against a strategy, on the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from planner.answer.text import column_seconds, format_gib
from planner.explain.why_not import WhyNot
from planner.render.terminal.panels import PARTS, TERMS
from planner.render.terminal.strategy import along_the_pipeline, strategy_rows
from planner.render.terminal.tables import grid, headed, pairs, printable
from planner.render.terminal.terminal import nearest_that_works, refused


def render_why_not(answer: WhyNot, console: Console) -> None:
    """Print what speaks against a strategy: the rules it breaks, or its time term by term."""
    answer = printable(answer, console)
    for part in _objection(answer):
        console.print(part, overflow="fold")


def _objection(answer: WhyNot) -> Iterator[RenderableType]:
    yield Text(f"{answer.verdict[:1].upper()}{answer.verdict[1:]}.", style="bold")
    if answer.strategy is not None:
        rows = [*strategy_rows(answer.strategy), *along_the_pipeline(answer.strategy)]
        yield from headed("Strategy", pairs(rows))
    if answer.best:
        yield from ("", Text(f"The best plan: {answer.best}"))
    if rules := [rule for rule in answer.rules if rule.example not in answer.verdict]:
        yield from headed("Rules against it", refused(rules))
    yield from nearest_that_works(answer.nearest, answer.nothing_near)
    if answer.memory_terms:
        parts = {PARTS.get(name, name): pair for name, pair in answer.memory_terms.items()}
        yield from headed("Memory of the fullest device, GiB", _comparison(parts, format_gib))
    if answer.terms:
        whole = (answer.iteration_seconds, answer.best_iteration_seconds)
        largest = max((value for value in whole if value), default=1.0)
        show = partial(column_seconds, largest=largest)
        seen = {name: pair for name, pair in answer.terms.items() if {*map(show, pair)} != {show(0.0)}}
        terms = {TERMS.get(name, name): pair for name, pair in seen.items()}
        table = _comparison(terms, show)
        if whole[0] is not None and whole[1] is not None:
            table.add_row("iteration", *_compared(whole[0], whole[1], show), style="bold")
        yield from headed("Time per iteration", table)


def _comparison(terms: Mapping[str, tuple[float, float]], show: Callable[[float], str]) -> Table:
    table = grid("", "this", "best", "difference", whole=True)
    for name, (this, best) in terms.items():
        table.add_row(name, *_compared(this, best, show))
    return table


def _compared(this: float, best: float, show: Callable[[float], str]) -> tuple[str, str, str]:
    sign = "" if show(abs(this - best)) == show(0.0) else "+" if this > best else "-"
    return show(this), show(best), f"{sign}{show(abs(this - best))}"
