"""The commands that ask about one job: solve, predict, why-not."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from planner.cli.answer import check_writable, shown, talk, working, write
from planner.cli.ask import Question, question
from planner.cli.ending import INFEASIBLE
from planner.cli.options import (
    FORMATS,
    PINS_HEADING,
    Command,
    dry_run_option,
    option,
    output_options,
    pin_options,
    question_options,
    reasons_option,
    top_option,
)
from planner.errors import BadRequest

if TYPE_CHECKING:
    from planner.document import Plan

_LAYERS = re.compile(r"[0-9]{1,6}(,[0-9]{1,6})*")


@click.command("solve", cls=Command, short_help="The best plan (the default command).")
@question_options
@pin_options
@top_option
@reasons_option
@output_options(*FORMATS)
@dry_run_option
@click.pass_context
def solve(ctx: click.Context, /, **params: Any) -> None:
    """Find the strategy that trains fastest, prove that no other is faster, and say why."""
    asked = _asked(ctx)
    if asked is None:
        return
    from planner.api import plan

    with working("searching", quiet=params["quiet"]):
        answer = plan(asked.request)
    _deliver(answer, params)


@click.command("predict", cls=Command, short_help="Price one given strategy; no search.")
@question_options
@pin_options
@option(
    "--layers-per-stage",
    heading=PINS_HEADING,
    metavar="N,N,...",
    help="Layers of each pipeline stage (default: as even as possible).",
)
@output_options(*FORMATS)
@dry_run_option
@click.pass_context
def predict(ctx: click.Context, /, **params: Any) -> None:
    """Price one strategy, the one that the pins give; pins left out take their neutral value."""
    layers = _layers(params["layers_per_stage"])
    asked = _asked(ctx)
    if asked is None:
        return
    from planner.api import predict as price

    _deliver(price(asked.request, layers=layers), params)


@click.command("why-not", cls=Command, short_help="Rules and numbers against a strategy.")
@question_options
@pin_options
@output_options("table", "json")
@dry_run_option
@click.pass_context
def why_not(ctx: click.Context, /, **params: Any) -> None:
    """Say which rules forbid what the pins ask for, or what it costs against the best, term by term."""
    asked = _asked(ctx)
    if asked is None:
        return
    from planner.api import why_not as object_to

    with working("searching", quiet=params["quiet"]):
        answer = object_to(asked.request)
    if params["form"] == "json":
        write(answer.model_dump_json(indent=2) + "\n", params["output"])
        return
    from planner.report.terminal import render_why_not

    write(shown(lambda console: render_why_not(answer, console), params["output"]), params["output"])


def _asked(ctx: click.Context) -> Question | None:
    """The question, or None where it was only to be shown."""
    asked = question(ctx)
    check_writable(ctx.params["output"])
    if not ctx.params["dry_run"]:
        return asked
    from planner.report.dry_run import lines

    resolved = lines(asked.request, asked.origins)
    if ctx.params["form"] == "table":
        width = max(len(name) for name, _, _ in resolved)
        text = "".join(f"{name:<{width}}  {value}  [{origin}]\n" for name, value, origin in resolved)
    else:
        rows = {name: {"value": value, "origin": origin} for name, value, origin in resolved}
        text = json.dumps(rows, indent=2) + "\n"
    write(text, ctx.params["output"])
    return None


def _layers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if not _LAYERS.fullmatch(text):
        raise BadRequest(f"--layers-per-stage: expected counts such as 12,12,11,13, got {text!r}")
    return tuple(int(part) for part in text.split(","))


def _deliver(answer: Plan, params: dict[str, Any]) -> None:
    from planner.report.formats import written

    output = params["output"]
    remarks: tuple[str, ...] = ()
    if params["form"] == "table":
        from planner.report.terminal import render

        text = shown(lambda console: render(answer, console), output)
    else:
        text, remarks = written(answer, params["form"])
    write(text, output)
    for remark in remarks:
        talk(remark, params)
    if params["verbose"]:
        talk(f"version {answer.provenance.version}, catalogue {answer.provenance.catalogue_hash}", params)
    if answer.status == "infeasible":
        talk(_refusal(answer), params)
        sys.exit(INFEASIBLE)


def _refusal(answer: Plan) -> str:
    """Why nothing fits, in one line: memory where it came to that, else the first rule."""
    refused = sorted(answer.rejected, key=lambda one: one.rule != "memory")
    reason = refused[0].example if refused else "nothing fits"
    near = f"; nearest: {answer.nearest.subject}: {answer.nearest.text}" if answer.nearest else ""
    return f"infeasible: {reason}{near}"
