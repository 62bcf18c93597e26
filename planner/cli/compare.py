"""The command that sets two plans, or a plan and a measured run, side by side: compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from planner.cli.input import answer_in, measured_run, text_in
from planner.cli.options import Command, Text, output_options
from planner.cli.output import deliver
from planner.errors import BadRequest

if TYPE_CHECKING:
    from planner.analyses.compare import Side

_STDIN = "-"


@click.command("compare", cls=Command, short_help="Two plans, or a plan and a measured run, term by term.")
@click.argument("a", type=Text())
@click.argument("b", type=Text())
@output_options("table", "json")
def compare(a: str, b: str, **params: Any) -> None:
    """Say where the time of A and B differs, and which change saves how much on the way from A to B.

    A and B are files that `plan --format json` wrote (- for stdin), files of one measured run (run/1), or ids of
    published runs as `plan validate --format json` lists them.
    """
    if a == b == _STDIN:
        raise BadRequest("stdin holds one answer; name a file for the other")
    from planner.analyses.compare import compare as set_side_by_side
    from planner.render.terminal.comparison import print_comparison

    found = set_side_by_side(*(_side(one, quiet=params["quiet"]) for one in (a, b)))
    deliver(found, print_comparison, params)


def _side(given: str, *, quiet: bool) -> Side:
    from hardware.files import expanded
    from planner.analyses.compare import side_of_plan, side_of_run
    from planner.runs.files import read_runs

    if given != _STDIN and not expanded(given).exists() and not given.endswith(".json"):
        return side_of_run(given)
    if given.endswith((".jsonl", ".jsonl.gz")):
        run, *others = read_runs(expanded(given))
        if others:
            raise BadRequest(f"{given} holds {len(others) + 1} runs; name a file of one, or the id of a published one")
        return side_of_run(run)
    ran = measured_run(given) if text_in(given).lstrip().startswith("{") else None
    return side_of_run(ran) if ran else side_of_plan(answer_in(given, quiet=quiet), given)
