"""The command that draws one iteration of a plan: trace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from planner.cli.ask import question
from planner.cli.input import answer_in
from planner.cli.options import Command, Count, Text, option, pin_options, question_options
from planner.cli.output import check_writable, talk, working, write
from planner.errors import BadRequest
from planner.request.fields import FIELDS

if TYPE_CHECKING:
    from planner.answer.plan import Plan

_H = "Answer"
_UNEVEN = 0.005
"""Share from which it is said why a trace is not as long as its price."""


@click.command("trace", cls=Command, short_help="The timeline of one iteration, for Perfetto.")
@click.argument("result", required=False, type=Text(), metavar="[RESULT]")
@question_options
@pin_options
@option(
    "--micro-batches",
    heading=_H,
    type=Count(),
    help="Micro-batches to draw (default: all, or as many as make 20,000 passes).",
)
@option("--output", "-o", heading=_H, metavar="FILE", help="Write there instead of stdout.")
@option("--quiet", "-q", heading=_H, is_flag=True, help="No talk on stderr.")
@option("--verbose", "-v", heading=_H, is_flag=True, help="More talk on stderr.")
@click.pass_context
def trace(ctx: click.Context, /, result: str | None, **params: Any) -> None:
    """Write one iteration of a plan as Chrome trace events, which https://ui.perfetto.dev opens.

    RESULT is what `plan --format json` wrote, or - for stdin; without it the options are asked as `plan` would.
    """
    check_writable(params["output"])
    answer = _asked(ctx) if result is None else _read(ctx, result)
    from planner.render.trace import trace as draw

    drawn = draw(answer, params["micro_batches"])
    write(json.dumps(drawn.document, separators=(",", ":")) + "\n", params["output"])
    some = "" if drawn.drawn == drawn.planned else f" of {drawn.planned} (--micro-batches draws more)"
    gap = drawn.span / drawn.predicted - 1
    uneven = answer.strategy is not None and answer.strategy.vpp > 1 and abs(gap) > _UNEVEN
    why = "; the embedding and the head lengthen their chunks, the closed form takes all as equal" if uneven else ""
    talk(
        f"{drawn.drawn} micro-batches{some}: {drawn.span:.4g} s drawn, {drawn.predicted:.4g} s by the closed form "
        f"({gap:+.1%}{why})",
        params,
    )


def _asked(ctx: click.Context) -> Plan:
    asked = question(ctx)
    from planner.api import plan

    with working("searching", quiet=ctx.params["quiet"]):
        return plan(asked.request)


def _read(ctx: click.Context, result: str) -> Plan:
    given = [name for name in FIELDS if _on_the_line(ctx, name)]
    if given:
        raise BadRequest(f"an answer is a question of its own: leave out --{given[0].replace('_', '-')}, or {result}")
    return answer_in(result, quiet=ctx.params["quiet"])


def _on_the_line(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE
