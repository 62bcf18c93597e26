"""The command that asks how many machines a deadline or a budget needs: size."""

from __future__ import annotations

from typing import Any

import click

from planner.cli.ask import question
from planner.cli.command import Command, option
from planner.cli.files import files_of_job, say_of_files
from planner.cli.live import working
from planner.cli.options import file_options, output_options, pin_options, question_options
from planner.cli.output import deliver, end_infeasible
from planner.cli.values import Read, quantity
from planner.errors import BadQuantity, BadRequest

_L = "Limits"


def _days(text: str) -> float:
    from hardware.units import parse_quantity

    plain = text.replace(".", "", 1)
    try:
        days = float(text) if plain.isascii() and plain.isdecimal() else parse_quantity(text, "time") / 86_400.0
    except BadQuantity:
        raise BadRequest(f"expected a time such as 30d or 720h, got {text!r:.40}") from None
    if not 0.0 < days < 1e5:
        raise BadRequest(f"expected a time of less than 100,000 days such as 30d, got {text!r:.40}")
    return days


def _dollars(text: str) -> float:
    return float(quantity("money").convert(text if "$" in text else f"${text}", None, None))


@click.command("size", cls=Command, short_help="How many GPUs a deadline or a budget needs.")
@file_options
@option(
    "--deadline", heading=_L, type=Read(_days), metavar="TIME", help="Longest training, such as 30d, 720h or 30 (days)."
)
@option("--budget", heading=_L, type=Read(_dollars), metavar="MONEY", help="Most dollars, such as 500k or $1.5M.")
@question_options
@pin_options
@output_options("table", "json")
@click.pass_context
def size(ctx: click.Context, /, deadline: float | None, budget: float | None, **params: Any) -> None:
    """Find the smallest cluster of whole nodes that trains in time, or for the money, and what a day costs.

    --gpus is the most that are considered; --time-limit is that of the whole answer. The exit code is 3 where nothing
    meets the limits; then the answer is what comes nearest.
    """
    from planner.analyses.size import MOST_GPUS
    from planner.analyses.size import size as sized
    from planner.answer.text import format_days, format_dollars, plural
    from planner.render.terminal.size import print_size

    found_files = files_of_job(ctx)
    asked = question(ctx, found_files, usual={"gpus": MOST_GPUS}, strategy=False).request
    say_of_files(params, found_files)
    with working("searching", params) as watched:
        found = sized(asked, days=deadline, dollars=budget, **watched)
    deliver(found, print_size, params)
    if found.status == "infeasible":
        said = found.statement
        if near := found.nearest:
            cost = "" if near.cost_dollars is None else f", {format_dollars(near.cost_dollars)}"
            said += f"; nearest: {plural(near.gpus, 'GPU')}, {format_days(near.days, deadline)}{cost}"
        end_infeasible(said, params)
