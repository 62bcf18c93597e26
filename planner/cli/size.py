"""The command that asks how many machines a deadline or a budget needs: size."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from planner.cli.ask import quantity_in, question
from planner.cli.options import Command, option, output_options, pin_options, question_options
from planner.cli.output import check_writable, deliver, end_infeasible, working
from planner.errors import BadQuantity, BadRequest

_L = "Limits"


@click.command("size", cls=Command, short_help="How many GPUs a deadline or a budget needs.")
@option("--deadline", heading=_L, metavar="TIME", help="Longest training, such as 30d, 720h or 30 (days).")
@option("--budget", heading=_L, metavar="MONEY", help="Most dollars, such as 500k or $1.5M.")
@question_options
@pin_options
@output_options("table", "json")
@click.pass_context
def size(ctx: click.Context, /, deadline: str | None, budget: str | None, **params: Any) -> None:
    """Find the smallest cluster of whole nodes that trains in time, or for the money, and what a day costs.

    --gpus is the most that are considered; --time-limit is that of the whole answer. The exit code is 3 where nothing
    meets the limits; then the answer is what comes nearest.
    """
    check_writable(params["output"])
    from planner.analyses.size import MOST_GPUS
    from planner.analyses.size import size as sized
    from planner.render.terminal.size import print_size

    days, dollars = _days(deadline), _dollars(budget)
    asked = question(ctx, usual={"gpus": MOST_GPUS}).request
    with working("searching", quiet=params["quiet"]):
        found = sized(asked, days=days, dollars=dollars)
    deliver(partial(found.model_dump_json, by_alias=True, indent=2), lambda console: print_size(found, console), params)
    if found.status == "infeasible":
        near = found.nearest
        said = _near(near.gpus, near.days, near.cost_dollars) if near else ""
        end_infeasible(found.statement + said, params)


def _near(gpus: int, days: float, cost: float | None) -> str:
    return f"; nearest: {gpus:,} GPUs, {days:.3g} days" + ("" if cost is None else f", ${cost:,.0f}")


def _days(text: str | None) -> float | None:
    if text is None:
        return None
    from hardware.units import parse_quantity

    try:
        days = float(text) if text.replace(".", "", 1).isascii() and text.replace(".", "", 1).isdecimal() else None
        days = parse_quantity(text, "time") / 86_400.0 if days is None else days
    except BadQuantity:
        raise BadRequest(f"--deadline: expected a time such as 30d or 720h, got {text!r:.40}") from None
    if not 0.0 < days < 1e5:
        raise BadRequest(f"--deadline: expected a time of less than 100,000 days such as 30d, got {text!r:.40}")
    return days


def _dollars(text: str | None) -> float | None:
    if text is None:
        return None
    dollars = quantity_in("--budget", text if "$" in text else f"${text}", "money")
    if not dollars > 0.0:
        raise BadRequest(f"--budget: expected an amount such as $1.5M, got {text!r:.40}")
    return dollars
