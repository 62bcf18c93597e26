"""The command that draws one iteration of a plan: trace."""

from __future__ import annotations

import json
from typing import Any

import click
from click.core import ParameterSource

from planner.cli.ask import question
from planner.cli.command import Command, option
from planner.cli.input import answer_in
from planner.cli.live import working
from planner.cli.options import output_options, pin_options, question_options
from planner.cli.output import talk, write
from planner.cli.values import Count, Text
from planner.errors import BadRequest
from planner.request.fields import FIELDS

_UNEVEN = 0.005
"""Share from which it is said why a trace is not as long as its price."""


@click.command("trace", cls=Command, short_help="The timeline of one iteration, for Perfetto.")
@click.argument("result", type=Text(), required=False, metavar="[RESULT]")
@question_options
@pin_options
@option(
    "--micro-batches",
    heading="Answer",
    type=Count(),
    help="Micro-batches to draw (default: all, or as many as make 20,000 passes).",
)
@output_options()
@click.pass_context
def trace(ctx: click.Context, /, result: str | None, **params: Any) -> None:
    """Write one iteration of a plan as Chrome trace events, which https://ui.perfetto.dev opens.

    RESULT is what `plan --format json` wrote, or - for stdin; without it the options are asked as `plan` would.
    """
    if result is not None:
        if given := [name for name in FIELDS if ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE]:
            option = f"--{given[0].replace('_', '-')}"
            raise BadRequest(f"a saved answer is already a question: leave out {option}, or {result}")
        answer = answer_in(result, quiet=params["quiet"])
    else:
        asked = question(ctx)
        from planner.api import plan

        with working("searching", params) as watched:
            answer = plan(asked.request, **watched)
    from planner.render.trace import trace as draw

    drawn = draw(answer, params["micro_batches"])
    write(json.dumps(drawn.document, separators=(",", ":")) + "\n", params["output"])
    some = "" if drawn.drawn == drawn.planned else f" of {drawn.planned} (--micro-batches draws more)"
    gap = round(drawn.span / drawn.predicted - 1, 3) + 0.0  # which leaves no minus zero
    uneven = answer.strategy is not None and answer.strategy.vpp > 1 and abs(gap) > _UNEVEN
    why = "; the embedding and the head lengthen their chunks, the closed form takes all as equal" if uneven else ""
    share = f"{drawn.span:.4g} s drawn, {drawn.predicted:.4g} s by the closed form ({gap:+.1%}{why})"
    talk(params, f"{drawn.drawn} micro-batches{some}: {share}")
