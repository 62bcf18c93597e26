"""The commands that ask about one job: solve, predict, why-not."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from planner.cli.ask import Question, question
from planner.cli.options import (
    FORMATS,
    SOURCES,
    Command,
    Text,
    Word,
    dry_run_option,
    field_option,
    option,
    output_options,
    pin_options,
    question_options,
)
from planner.cli.output import check_writable, deliver, end_infeasible, shown, talk, working, write
from planner.errors import BadRequest, NothingFits
from planner.request.fields import PINS

if TYPE_CHECKING:
    from planner.answer.plan import Plan
    from planner.jobs.imported import ImportedJob
    from planner.request.request import PlanRequest

_INSTEAD = "Instead of a plan"
_LAYERS = re.compile(r"[0-9]{1,6}(,[0-9]{1,6})*")


@click.command("solve", cls=Command, short_help="The best plan (the default command).")
@question_options
@pin_options
@option("--what-if", heading=_INSTEAD, is_flag=True, help="What would help: every lever turned both ways.")
@option("--robust", heading=_INSTEAD, metavar="SHARE", help="Least worst regret, rates uncertain by so much: 20%.")
@field_option("top")
@field_option("reasons")
@output_options(*FORMATS)
@dry_run_option
@click.pass_context
def solve(ctx: click.Context, /, **params: Any) -> None:
    """Find the strategy that trains fastest, prove that no other is faster, and say why."""
    instead, asked = _instead_of_a_plan(params), _asked(ctx)
    if asked is None or (instead and _answered_instead(asked.request, params)):
        return
    from planner.api import plan

    with working("searching", quiet=params["quiet"]):
        answer = plan(asked.request)
    _deliver(answer, params)


def _instead_of_a_plan(params: dict[str, Any]) -> bool:
    """Whether --what-if or --robust is asked for.

    Raises:
        BadRequest: both, or in a form that only a plan has.
    """
    asked = [name for name, given in (("--what-if", params["what_if"]), ("--robust", params["robust"])) if given]
    if len(asked) > 1:
        raise BadRequest("--what-if and --robust are two questions; ask one at a time")
    if asked and params["form"] not in {"table", "json"}:
        raise BadRequest(f"{asked[0]} is answered as table or json, not as {params['form']}")
    return bool(asked)


def _answered_instead(request: PlanRequest, params: dict[str, Any]) -> bool:
    """Answer --what-if or --robust; False where nothing fits, which a plan says with its reasons."""
    from planner.analyses.robust import robust
    from planner.analyses.what_if import sensitivity
    from planner.render.terminal.what_if import print_robust, print_sensitivity

    answer: Any
    draw: Any
    try:
        if params["what_if"]:
            with working("turning levers", quiet=params["quiet"]):
                answer, draw = sensitivity(request), print_sensitivity
        else:
            with working("searching every corner", quiet=params["quiet"]):
                answer, draw = robust(request, params["robust"]), print_robust
    except NothingFits:
        return False
    deliver(partial(answer.model_dump_json, by_alias=True, indent=2), lambda console: draw(answer, console), params)
    return True


@click.command("predict", cls=Command, short_help="Price one given strategy; no search.")
@click.argument("file", required=False, type=Text(), metavar="[FILE]")
@option(
    "--from",
    "source",
    heading="Question",
    type=Word(SOURCES),
    metavar="|".join(SOURCES),
    help="Read the job and its strategy from FILE, and say how far it is from the best and why.",
)
@question_options
@pin_options
@option(
    "--layers-per-stage",
    heading=PINS,
    metavar="N,N,...",
    help="Layers of each pipeline stage (default: the split that a search takes).",
)
@output_options(*FORMATS)
@dry_run_option
@click.pass_context
def predict(ctx: click.Context, /, **params: Any) -> None:
    """Price one strategy, the one that the pins or a file give; what both leave out takes its neutral value."""
    layers = _layers(params["layers_per_stage"])
    imported = _imported(params)
    asked = _asked(ctx, imported)
    if asked is None:
        return
    from planner.api import predict as price
    from planner.cli.input import answered, measured_run

    own = answered(asked.request, None if imported else params["config"], asked.origins)
    given = imported.layers if imported and not layers else layers or own.layers
    as_said = imported is not None and asked.request.pins.get("recompute") == "partial"
    more: dict[str, Any] = {"recomputed": imported.recomputed} if imported and as_said else {}
    if own.recomputed and not layers:
        more["recomputed"] = own.recomputed
    if imported and not layers:
        more["chunked"] = False  # a file may draw every chunk, which one number a stage does not say
    ran = None if imported else measured_run(params["config"])
    if ran is not None:
        more["as_ran"] = True
    answer = price(own.request, layers=given, **more)
    if ran is not None and (seconds := ran.measured.iteration_seconds) and answer.prediction:
        error = answer.prediction.iteration_seconds / seconds - 1.0
        talk(f"measured {seconds:.4g} s; predicted {error:+.1%}", params)
    if imported:
        from planner.analyses.compare_with_best import compare_with_best

        with working("searching", quiet=params["quiet"]):
            answer = compare_with_best(answer, asked.request, imported.framework)
        for remark in (*imported.remarks, *_length(imported, asked, params["source"])):
            talk(remark, params)
    _deliver(answer, params)


def _length(imported: ImportedJob, asked: Question, source: str) -> list[str]:
    """That the tokens of the run are the file's, where they are, or that it does not say enough of them."""
    length, request = imported.length, asked.request
    if length is None:
        return []
    if request.tokens is None:
        return [f"{length.word} counts nothing, as no sequence length is said; --tokens says how long the training is"]
    if asked.origins["tokens"] != source:
        return [f"{length.word} is not read, since {asked.origins['tokens']} says the tokens"]
    return [length.described(request.global_batch_size or 0, request.seq_length or 0)]


def _imported(params: dict[str, Any]) -> ImportedJob | None:
    """What the file of another program says, where one is given.

    Raises:
        BadRequest: a file without its format, or a format without a file.
    """
    if (params["file"] is None) != (params["source"] is None):
        lacks = "--from, such as --from megatron-args" if params["file"] else "a FILE"
        raise BadRequest(f"predict: a configuration of another program needs {lacks}")
    if params["source"] is None:
        return None
    from hardware.files import expanded
    from planner.jobs.registry import import_job

    known = [name for name, value in params.items() if value is not None]
    return import_job(params["source"], expanded(params["file"]), known=known)


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
    from planner.render.terminal.objection import render_why_not

    document = partial(answer.model_dump_json, by_alias=True, indent=2)
    deliver(document, lambda console: render_why_not(answer, console), params)


def _asked(ctx: click.Context, imported: ImportedJob | None = None) -> Question | None:
    """The question, or None where it was only to be shown."""
    asked = question(ctx, imported)
    check_writable(ctx.params["output"])
    if not ctx.params["dry_run"]:
        return asked
    from planner.render.terminal.dry_run import lines

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
    from planner.render.terminal.formats import written

    output = params["output"]
    remarks: tuple[str, ...] = ()
    if params["form"] == "table":
        from planner.render.terminal.terminal import render

        text = shown(lambda console: render(answer, console), output)
    else:
        text, remarks = written(answer, params["form"])
    write(text, output)
    for remark in remarks:
        talk(remark, params)
    if params["verbose"]:
        talk(f"version {answer.provenance.version}, catalogue {answer.provenance.catalogue_hash}", params)
        if answer.proof and answer.proof.scope:
            talk(f"what the proof covers: strategies {'; '.join(answer.proof.scope)}", params)
    if answer.status == "infeasible":
        end_infeasible(_refusal(answer), params)


def _refusal(answer: Plan) -> str:
    """Why nothing fits, in one line, and what does, or who finds it."""
    from planner.answer.text import why_infeasible

    known = answer.nearest or answer.nothing_near
    return why_infeasible(answer) + ("" if known else "; `plan` in place of `plan predict` finds what comes nearest")
