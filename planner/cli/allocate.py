"""The command that divides a cluster among queued jobs: allocate."""

from __future__ import annotations

from typing import Any

import click

from planner.cli.command import Command, option
from planner.cli.live import working
from planner.cli.options import field_option, output_options
from planner.cli.output import deliver, end_infeasible
from planner.cli.values import Count, Text, Word

_GOALS = ("throughput", "weighted-finish", "cost", "fairness")


@click.command("allocate", cls=Command, short_help="Divide a cluster among queued jobs.")
@click.argument("queue", type=Text(), metavar="QUEUE.toml")
@option("--objective", type=Word(_GOALS), help="Over the file's.")
@field_option("time_limit", help="Over the file's: 30s, 2min.")
@option("--workers", type=Count(), default=1, help="Processes that search (default: 1).")
@output_options("table", "json")
def allocate(
    queue: str,
    objective: str | None,
    time_limit: float | None,
    workers: int,
    **params: Any,
) -> None:
    """Say which job gets how many GPUs of which node group, under which strategy, proved; and why, and who waits.

    The file names a cluster and [[jobs]]: model, priority, allowed counts, deadline, where it runs now.
    examples/queue.toml of the sources shows one, docs/jobs.md explains it.
    """
    from planner.allocation.allocate import allocate as divide
    from planner.allocation.queue import queue_in

    over = {"objective": objective, "time_limit": None if time_limit is None else f"{time_limit} s"}
    asked = queue_in(queue, {name: value for name, value in over.items() if value is not None})
    with working("searching a plan for every job on every placement", params) as watched:
        answer = divide(asked, workers=workers, **watched)
    from planner.render.terminal.allocation import render

    deliver(answer, render, params)
    if answer.status == "infeasible":
        end_infeasible(answer.statement, params)
