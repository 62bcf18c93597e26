"""The commands that ask about one job: solve, predict, why-not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from planner.cli.ask import Question, question
from planner.cli.command import Command, option
from planner.cli.files import files_of_job, say_of_files
from planner.cli.input import measured_run, with_saved_strategy
from planner.cli.live import working
from planner.cli.options import (
    FORMATS,
    dry_run_option,
    field_option,
    file_options,
    output_options,
    pin_options,
    question_options,
)
from planner.cli.output import as_json, deliver, end_infeasible, shown, talk, write
from planner.errors import BadRequest, NothingFits
from planner.request.fields import GIVEN_SPLIT, PIN_AXES, VARIED

if TYPE_CHECKING:
    from planner.answer.plan import Plan
    from planner.jobs.assemble import FilesOfJob
    from planner.request.request import PlanRequest

_INSTEAD = "Instead of a plan"


@click.command("solve", cls=Command, short_help="The best plan (the default command).")
@file_options
@question_options
@pin_options
@option("--what-if", heading=_INSTEAD, is_flag=True, help="Plan again with each figure of the machines up and down.")
@option("--robust", heading=_INSTEAD, metavar="SHARE", help="Least worst regret if rates are off by a SHARE like 20%.")
@field_option("top")
@field_option("reasons")
@output_options(*FORMATS)
@dry_run_option
@click.pass_context
def solve(ctx: click.Context, /, **params: Any) -> None:
    """Find the strategy that trains fastest, prove that no other is faster, and say why.

    FILE is a script, a configuration, a model or a log of a job: its model, machines and batch are taken from there,
    and the strategy is chosen.
    """
    instead, found = _instead_of_a_plan(params), files_of_job(ctx)
    params["config"] = ctx.params["config"]
    asked = _asked(ctx, found, strategy=False)
    if asked is None or (instead and _answered_instead(asked.request, params)):
        return
    from planner.api import plan

    with working("searching", params, in_bytes=asked.request.objective == "memory") as watched:
        answer = plan(asked.request, **watched)
    say_of_files(params, found)
    _deliver(answer, params)


def _instead_of_a_plan(params: dict[str, Any]) -> bool:
    """Whether --what-if or --robust is asked for."""
    asked = [name for name, given in (("--what-if", params["what_if"]), ("--robust", params["robust"])) if given]
    if len(asked) > 1:
        raise BadRequest("--what-if and --robust are two questions; ask one at a time")
    if asked and params["form"] not in {"table", "json"}:
        raise BadRequest(f"{asked[0]} is answered as table or json, not as {params['form']}")
    return bool(asked)


def _answered_instead(request: PlanRequest, params: dict[str, Any]) -> bool:
    """Answer --what-if or --robust; False where nothing fits, which a plan says with its reasons."""
    from planner.analyses.robust import robust
    from planner.analyses.what_if import what_if
    from planner.render.terminal.what_if import print_robust, print_sensitivity

    answer: Any
    draw: Any
    try:
        if params["what_if"]:
            with working("searching", params) as watched:
                answer, draw = what_if(request, **watched), print_sensitivity
        else:
            with working("searching", params) as watched:
                answer, draw = robust(request, params["robust"], **watched), print_robust
    except NothingFits:
        return False
    deliver(answer, draw, params)
    return True


@click.command("predict", cls=Command, short_help="Price one given strategy; no search.")
@file_options
@question_options
@pin_options
@field_option("layers_per_stage")
@output_options(*FORMATS)
@dry_run_option
@click.pass_context
def predict(ctx: click.Context, /, **params: Any) -> None:
    """Price one strategy, the one that the pins or the files of a job give, and say how far it is from the best.

    What all of them leave out takes its neutral value.
    """
    found = files_of_job(ctx)
    params["config"] = ctx.params["config"]
    asked = _asked(ctx, found)
    if asked is None:
        return
    from planner.api import predict as price

    request, ran, chunked = _staged(asked, found), None, not _of_files(asked, found, "layers_per_stage")
    if not found:
        request, ran = with_saved_strategy(request, params["config"], asked.origins), measured_run(params["config"])
        if ran is not None and (other := _changed(asked, params["config"])):
            talk(
                params,
                f"{', '.join(other)} is not as in the run, so its measured time is left out",
            )
            ran = None
    answer = price(request, chunked=chunked, as_ran=ran is not None)
    if ran is not None and (seconds := ran.measured.iteration_seconds) and answer.prediction:
        talk(params, _against_measured(seconds, answer.prediction.iteration_seconds))
    if found:
        _say_measured(answer, found, params)
        from planner.analyses.compare_with_best import compare_with_best

        with working("comparing with the best plan", params) as watched:
            searched = request.model_copy(update=dict.fromkeys(GIVEN_SPLIT))
            answer = compare_with_best(answer, searched, found.job.framework, **watched)
        say_of_files(params, found)
        talk(params, *_length(found, asked))
    _deliver(answer, params)


def _of_files(asked: Question, found: FilesOfJob | None, name: str) -> bool:
    """Whether the files of a job say a value, or it follows from what they say."""
    return found is not None and asked.origins.get(name) in {found.names, *found.job.origins.values()}


def _staged(asked: Question, found: FilesOfJob | None) -> PlanRequest:
    """The request; without the layers of the files' stages where options ask for other stages, or for several."""
    request = asked.request
    if not _of_files(asked, found, "layers_per_stage"):
        return request
    from planner.request.pins import parse_pins

    pins = parse_pins(request.pins)
    same = all(_of_files(asked, found, f"pins.{axis}") for axis in ("pp", "vpp") if axis in pins)
    if same and all(len(pin.values) == 1 for pin in pins.values()):
        return request
    return request.model_copy(update=dict.fromkeys(GIVEN_SPLIT))


def _changed(asked: Question, config: str) -> list[str]:
    """What an option or a variable says otherwise than a measured run that is given as a configuration."""
    fields = {name: name.removeprefix("pins.") for name in asked.origins}
    bear = {*VARIED, *PIN_AXES, *GIVEN_SPLIT}
    return [name for path, name in fields.items() if name in bear and asked.origins[path] not in (config, "default")]


def _against_measured(measured: float, predicted: float) -> str:
    """A measured iteration compared with its price."""
    return f"measured {measured:.4g} s; predicted {predicted / measured - 1.0:+.1%}, {predicted:.4g} s"


def _say_measured(answer: Plan, found: FilesOfJob, params: dict[str, Any]) -> None:
    """How far the price is from what a log measured."""
    measured = (found.run or {}).get("measured") or {}
    if (seconds := measured.get("iteration_seconds")) and answer.prediction:
        talk(params, _against_measured(seconds, answer.prediction.iteration_seconds))


def _length(found: FilesOfJob, asked: Question) -> list[str]:
    """That the tokens of the run are the file's, where they are, or that it does not say enough of them."""
    length, request = found.job.length, asked.request
    if length is None:
        return []
    if request.tokens is None:
        return [f"{length.word} counts nothing, as no sequence length is said; --tokens says how long the training is"]
    if asked.origins["tokens"] not in {found.names, *found.job.origins.values()}:
        return [f"{length.word} is not read, since {asked.origins['tokens']} says the tokens"]
    return [length.described(request.global_batch_size or 0, request.seq_length or 0)]


@click.command("why-not", cls=Command, short_help="Rules and numbers against a strategy.")
@file_options
@question_options
@pin_options
@output_options("table", "json")
@dry_run_option
@click.pass_context
def why_not(ctx: click.Context, /, **params: Any) -> None:
    """Say which rules forbid what the pins or the files of a job ask for, or what it costs against the best."""
    found = files_of_job(ctx)
    asked = _asked(ctx, found)
    if asked is None:
        return
    from planner.api import why_not as object_to

    with working("searching", params, in_bytes=asked.request.objective == "memory") as watched:
        chunked = not _of_files(asked, found, "layers_per_stage")  # whose file may draw every chunk
        answer = object_to(_staged(asked, found), chunked=chunked, **watched)
    say_of_files(params, found)
    if not asked.request.pins:
        talk(params, "no choice was asked about, so this is the best plan; --tp 8, say, asks about that one")
    from planner.render.terminal.why_not import render_why_not

    deliver(answer, render_why_not, params)


def _asked(ctx: click.Context, found: FilesOfJob | None = None, *, strategy: bool = True) -> Question | None:
    """The question, or None where it was only to be shown."""
    asked = question(ctx, found, strategy=strategy)
    if not ctx.params["dry_run"]:
        return asked
    from planner.render.terminal.dry_run import lines

    resolved = lines(asked.request, asked.origins, searched=ctx.command is not predict)
    if ctx.params["form"] == "table":
        width = max(len(name) for name, _, _ in resolved)
        text = "".join(f"{name:<{width}}  {value}  [{origin}]\n" for name, value, origin in resolved)
    else:
        text = as_json({name: {"value": value, "origin": origin} for name, value, origin in resolved})
    write(text, ctx.params["output"])
    return None


def _deliver(answer: Plan, params: dict[str, Any]) -> None:
    from planner.render.terminal.formats import written

    output = params["output"]
    remarks: tuple[str, ...] = ()
    if params["form"] == "table":
        from planner.render.terminal.terminal import render

        text = shown(lambda console: render(answer, console, whole=params["verbose"], most=params.get("top")), output)
    else:
        text, remarks = written(answer, params["form"])
    write(text, output)
    talk(params, *remarks)
    if params["verbose"]:
        talk(params, f"version {answer.provenance.version}, catalogue {answer.provenance.catalogue_hash}")
        if answer.proof and answer.proof.scope:
            talk(params, f"what the proof covers: strategies {'; '.join(answer.proof.scope)}")
    if answer.status == "infeasible":
        end_infeasible(_refusal(answer), params)


def _refusal(answer: Plan) -> str:
    """Why nothing fits, in one line, and what does, or who finds it."""
    from planner.answer.text import why_infeasible

    known = answer.nearest or answer.nothing_near
    return why_infeasible(answer) + ("" if known else "; `plan` in place of `plan predict` finds what comes nearest")
