"""A division of a cluster on the screen."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.allocation.document import Allocation, JobAnswer
from planner.answer.text import format_days, format_prefixed, short_seconds, strategy_in_words
from planner.render.terminal.tables import grid, printable_text, section

_DAY = 86400.0


def render(found: Allocation, console: Console) -> None:
    """The whole answer, within the width of the console."""
    use = "  ".join(f"{group.used:,} of {group.gpus:,} {group.name}" for group in found.groups)
    console.print(Text(f"{found.objective}  {_value(found)}  {use}", style="bold"), overflow="fold")
    for line in found.assumed:
        console.print(printable_text(f"assumed: {line}", console, style="dim"), overflow="fold")
    spent = (
        f"{found.searches} placements searched in {found.curve_seconds:.1f} s, divided in {found.solve_seconds:.2f} s"
    )
    console.print(printable_text(f"{spent}; {found.statement}", console), overflow="fold")
    if found.jobs:
        console.print("", Padding(_table(found.jobs, console), (0, 0, 0, 2)), sep="\n")
        section("Why", _reasons(found.jobs, console), console)


def _value(found: Allocation) -> str:
    if found.value is None:
        return "infeasible"
    match found.objective:
        case "throughput":
            return f"{format_prefixed(found.value)}{'' if found.value else ' '}FLOP/s x priority"
        case "weighted-finish":
            return f"{found.value / _DAY:,.1f} days x priority"
        case "cost":
            return f"${format_prefixed(found.value)}"
        case _:
            return f"sum of logarithms {found.value:.3f}"


def _table(jobs: tuple[JobAnswer, ...], console: Console) -> Table:
    table = grid("job", "", "group", "GPUs", "iteration", "finish", "cost", "strategy", left=(0, 1, 2, 7))
    for job in jobs:
        table.add_row(*(printable_text(text, console) for text in _cells(job)))
    return table


def _cells(job: JobAnswer) -> tuple[str, ...]:
    at = job.placed
    if at is None:
        return job.name, job.change, "", "", "", "", "", ""
    money = "" if at.cost_dollars is None else f"${format_prefixed(at.cost_dollars)}"
    finish = f"{format_days(at.finish_seconds / _DAY)}{' late' if job.late else ''}"
    where = (at.group, f"{at.gpus:,}", short_seconds(at.iteration_seconds))
    return (job.name, job.change, *where, finish, money, strategy_in_words(at.strategy))


def _reasons(jobs: tuple[JobAnswer, ...], console: Console) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for job in jobs:
        table.add_row(printable_text(job.name, console), printable_text(job.because, console))
        if job.with_more:
            table.add_row("", printable_text(f"with more: {job.with_more}", console, style="dim"))
    return table
