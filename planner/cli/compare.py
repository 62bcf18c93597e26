"""The command that sets two plans, or a plan and a measured run, side by side: compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from planner.cli.ask import gathered, question
from planner.cli.command import Command
from planner.cli.files import document_of, files_of_side, say_of_files
from planner.cli.input import answer_in, measured_run, text_in
from planner.cli.live import working
from planner.cli.options import job_options, output_options, pin_options, question_options
from planner.cli.output import deliver
from planner.cli.values import Text
from planner.errors import BadRequest
from planner.request.fields import GIVEN_SPLIT

if TYPE_CHECKING:
    from planner.analyses.compare import Side
    from planner.analyses.examine_run import Examined
    from planner.jobs.assemble import FilesOfJob

_STDIN = "-"


@click.command("compare", cls=Command, short_help="Two plans, or a plan and a measured run, term by term.")
@click.argument("a", type=Text())
@click.argument("b", type=Text(), required=False)
@job_options
@question_options
@pin_options
@output_options("table", "json")
@click.pass_context
def compare(ctx: click.Context, /, a: str, b: str | None, **params: Any) -> None:
    """Say where the time of A and B differs, and which change saves how much on the way from A to B.

    A and B are files that `plan --format json` wrote (- for stdin), files of one measured run (run/1), ids of published
    runs as `plan validate --format json` lists them, or a script, a configuration or a log of a job. Without B, the job
    of A is compared with the best plan for it; a log is compared with its own prediction too, and the one change that
    gains most is named. Further files of A's job, such as a log's configuration, go behind --from.
    """
    if a == b == _STDIN:
        raise BadRequest("stdin holds one answer; name a file for the other")
    from planner.analyses.compare import compare as set_side_by_side
    from planner.render.terminal.comparison import print_comparison

    if b is None and (examined := _examined(ctx, a, params)):
        from planner.render.terminal.examined import print_examined

        deliver(examined, print_examined, params)
        return
    one = _side(ctx, a, params)
    other = _side(ctx, b, params) if b else _best(ctx, a, params)
    deliver(set_side_by_side(one, other), print_comparison, params)


def _examined(ctx: click.Context, given: str, params: dict[str, Any]) -> Examined | None:
    """A log by itself: what was measured, what is predicted and what would be best; None for other files."""
    found = _job(ctx, given)
    if found is None or found.run is None:
        return None
    from planner.analyses.examine_run import examine_run
    from planner.runs.schema import run_of

    question(ctx, found)  # which says what is missing
    with working("comparing with the best plan", params) as watched:
        return examine_run(run_of(document_of(found, gathered(ctx, found))), found.job.framework, **watched)


def _side(ctx: click.Context, given: str, params: dict[str, Any]) -> Side:
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
    if (found := _job(ctx, given)) is not None:
        say_of_files(params, found)
        return _side_of_job(ctx, found)
    ran = measured_run(given) if text_in(given).lstrip().startswith("{") else None
    return side_of_run(ran) if ran else side_of_plan(answer_in(given, quiet=params["quiet"]), given)


def _job(ctx: click.Context, given: str) -> FilesOfJob | None:
    """The job of a file of another program; None where it is an answer or a run of ours."""
    if given == _STDIN or given.endswith(".json.gz"):
        return None
    from hardware.files import expanded
    from planner.jobs.assemble import kind
    from planner.jobs.documents import READERS
    from planner.jobs.reader import job_file

    own = kind(job_file(expanded(given)), [one for one in READERS if one.form in {"run", "plan"}])
    return None if own else files_of_side(ctx, given)


def _side_of_job(ctx: click.Context, found: FilesOfJob) -> Side:
    """A job as a side: of a log the measured run, else its price."""
    from planner.analyses.compare import side_of_plan, side_of_run
    from planner.api import predict
    from planner.runs.schema import run_of

    asked = question(ctx, found)
    if found.run is not None:
        return side_of_run(run_of(document_of(found, gathered(ctx, found))))
    return side_of_plan(predict(asked.request), found.names)


def _best(ctx: click.Context, given: str, params: dict[str, Any]) -> Side:
    """The best plan for the job of a file.

    Raises:
        BadRequest: the file is no job's.
    """
    from planner.analyses.compare import side_of_plan
    from planner.api import plan

    found = _job(ctx, given)
    if found is None:
        raise BadRequest(
            f"compare needs a second side B for {given}; only a script, a configuration or a log is compared alone"
        )
    asked = question(ctx, found, strategy=False).request
    with working("searching", params) as watched:
        best = plan(asked.model_copy(update={"reasons": False, **dict.fromkeys(GIVEN_SPLIT)}), **watched)
    return side_of_plan(best, "the best plan for it")
