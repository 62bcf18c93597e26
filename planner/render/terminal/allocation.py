"""A division of a cluster on the screen."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.allocation.document import Allocation, JobAnswer, in_words
from planner.answer.text import format_days, format_prefixed, short_seconds, strategy_in_words
from planner.render.terminal.tables import columns, grid, indented, line, print_assumed, printable, section

_DAY = 86400.0


def render(found: Allocation, console: Console) -> None:
    """The whole answer, within the width of the console."""
    found = printable(found, console)
    line(console, _answer(found), "bold")
    use = ", ".join(f"{group.used:,} of {group.gpus:,} {group.name}" for group in found.groups)
    value = "infeasible" if found.value is None else in_words(found.objective, found.value)
    line(console, f"GPUs in use: {use}. {found.objective}: {value}.")
    took = f"in {found.curve_seconds:.1f} s, divided in {found.solve_seconds:.2f} s"
    line(console, f"{found.searches} placements searched {took}; {found.statement}.")
    if found.jobs:
        console.print("", indented(_table(found.jobs)), sep="\n")
        section("Why", columns(_reasons(found.jobs), {"no_wrap": True}), console)
    print_assumed(found.assumed, console)


def _answer(found: Allocation) -> str:
    """Who runs and who waits, in one sentence."""
    if found.value is None:
        return "No division of the cluster meets what the jobs ask for."
    runs = [f"{job.name} on {job.placed.gpus:,} {job.placed.group}" for job in found.jobs if job.placed]
    waits = [job.name for job in found.jobs if not job.placed]
    said = f"Run {', '.join(runs)}" if runs else "Nothing runs"
    return said + (f"; {', '.join(waits)} wait{'s' if len(waits) == 1 else ''}." if waits else ".")


def _table(jobs: tuple[JobAnswer, ...]) -> Table:
    table = grid("job", "", "group", "GPUs", "iteration", "finish", "cost", "strategy", left=(0, 1, 2, 7))
    for job in jobs:
        table.add_row(*map(Text, _cells(job)))
    return table


def _cells(job: JobAnswer) -> tuple[str, ...]:
    at = job.placed
    if at is None:
        return job.name, job.change, "", "", "", "", "", ""
    money = "" if at.cost_dollars is None else f"${format_prefixed(at.cost_dollars)}"
    finish = f"{format_days(at.finish_seconds / _DAY)}{' late' if job.late else ''}"
    where = (at.group, f"{at.gpus:,}", short_seconds(at.iteration_seconds))
    return (job.name, job.change, *where, finish, money, strategy_in_words(at.strategy))


def _reasons(jobs: tuple[JobAnswer, ...]) -> Iterator[tuple[Text, Text]]:
    for job in jobs:
        yield Text(job.name), Text(job.because)
        if job.with_more:
            yield Text(), Text(f"with more: {job.with_more}")
