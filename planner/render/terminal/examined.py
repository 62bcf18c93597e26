"""A measured run on the screen: the answer in two lines, then where the time goes and what to change first."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.analyses.examine_run import NOTABLE, Examined
from planner.answer.text import format_gib, format_percent, plural, short_seconds
from planner.render.terminal.bars import bar
from planner.render.terminal.panels import TERMS
from planner.render.terminal.tables import grid, line, printable, section, speaks_utf

_LEAST = 5e-4
_BAR = 20


def print_examined(found: Examined, console: Console) -> None:
    """All of it, within the width of the console."""
    found = printable(found, console)
    line(console, _answer(found), "bold")
    if first := _first(found):
        line(console, first, "bold")
    for text in _memory(found):
        line(console, text)
    for heading, table in (
        ("Where the predicted time goes", _terms(found, blocks=speaks_utf(console))),
        ("One change alone, by the prediction", _changes(found)),
    ):
        if table.row_count:
            section(heading, table, console)
    for heading, lines in (("The best plan for the same job", _best(found)), ("Also", [*_also(found)])):
        if lines:
            section(heading, Text("\n".join(lines)), console)


def _answer(found: Examined) -> str:
    """Measured against predicted, in one sentence."""
    name = "the job" if found.model == "given" else found.model
    where = f"{name} on {plural(found.gpus, 'GPU')} of {found.cluster}"
    if found.measured_seconds is None:
        said = "ran out of memory" if found.out_of_memory else "no time was measured"
        return f"{where}: {said}; {short_seconds(found.predicted_seconds)} per iteration predicted"
    apart = found.measured_seconds / found.predicted_seconds - 1.0
    slower = f"{abs(apart):.0%} {'longer' if apart > 0 else 'less'} than"
    took = f"{short_seconds(found.measured_seconds)} per iteration measured"
    return f"{where}: {took}, {slower} the {short_seconds(found.predicted_seconds)} predicted{_within(found)}"


def _within(found: Examined) -> str:
    if found.low_seconds is None or found.high_seconds is None or found.measured_seconds is None:
        return ""
    inside = found.low_seconds <= found.measured_seconds <= found.high_seconds
    interval = f"{short_seconds(found.low_seconds)} to {short_seconds(found.high_seconds)}"
    return f" ({'inside' if inside else 'outside'} the interval, {interval})"


def _first(found: Examined) -> str:
    """What to do first."""
    if not found.changes:
        return f"No single change gains {NOTABLE:.1%} by the prediction" if found.predicted_to_fit else ""
    change = found.changes[0]
    return f"Change first: {change.text}; it saves {format_percent(change.saved)}"


def _memory(found: Examined) -> Iterator[str]:
    if found.measured_memory_bytes and found.predicted_memory_bytes:
        error = found.predicted_memory_bytes / found.measured_memory_bytes - 1.0
        measured, predicted = (
            format_gib(value) for value in (found.measured_memory_bytes, found.predicted_memory_bytes)
        )
        yield f"memory: {measured} GiB {found.memory_kind} measured, {predicted} GiB predicted ({error:+.0%})"
    if found.out_of_memory == found.predicted_to_fit:
        ran, said = ("ran out of memory", "fits") if found.out_of_memory else ("ran", "does not fit")
        yield f"memory: it {ran}, the prediction says that it {said}"


def _terms(found: Examined, *, blocks: bool) -> Table:
    total = sum(found.breakdown_seconds.values()) or 1.0
    table = grid("", "seconds", "share", "", left=(0, 3))
    for name, seconds in sorted(found.breakdown_seconds.items(), key=lambda term: -term[1]):
        if seconds >= _LEAST * total:
            drawn = bar(seconds / total, _BAR, blocks=blocks)
            table.add_row(TERMS.get(name, name), short_seconds(seconds), format_percent(seconds / total), drawn)
    return table


def _changes(found: Examined) -> Table:
    table = grid("change", "saves", "iteration", "", left=(0, 3))
    for change in found.changes:
        name = change.name.replace("_", " ")
        figures = (format_percent(change.saved), short_seconds(change.iteration_seconds))
        table.add_row(name, *figures, Text(change.text))
    return table


def _best(found: Examined) -> list[str]:
    if found.best_seconds is None:
        return []
    same = found.best_seconds >= found.predicted_seconds * (1.0 - NOTABLE)
    if same or not found.best_differs:
        return ["is this one, within half a percent"]
    gain = 1.0 - found.best_seconds / found.predicted_seconds
    lines = [f"takes {short_seconds(found.best_seconds)}, {format_percent(gain)} less: {found.best_differs}"]
    if found.measured_seconds:
        would = found.best_seconds * found.measured_seconds / found.predicted_seconds
        lines.append(f"{short_seconds(would)} if its prediction is as far off as that of the run")
    return lines


def _also(found: Examined) -> Iterator[str]:
    if found.suspect:
        yield "- the measurement is uncertain; read the notes"
    yield from (f"- {text}" for text in (*found.broken, *found.notes))
