"""The command that fits a cluster and a stack to one's own measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from planner.cli.command import Command
from planner.cli.files import files_of_side
from planner.cli.live import working
from planner.cli.options import job_options, output_options, pin_options, question_options
from planner.cli.output import deliver, talk, write
from planner.cli.values import Text
from planner.errors import BadFile

if TYPE_CHECKING:
    from planner.runs.calibrate.records import FileRun


_MUCH = 3
"""Things that a log lacks from which on its script is asked for."""


@click.command("calibrate", cls=Command, short_help="A cluster and a stack from one's own measurements.")
@click.argument("files", type=Text(), nargs=-1, required=True, metavar="FILE...")
@job_options
@question_options
@pin_options
@output_options("table", "json")
@click.pass_context
def calibrate(
    ctx: click.Context, /, files: tuple[str, ...], cluster: str | None, stack: str | None, **params: Any
) -> None:
    """Fit constants to training runs (JSON lines), logs, answers of plan probe, nccl-tests and timed products (CSV).

    The report goes to stdout; --output names the profile, one TOML file for `plan --profile FILE`, which --cluster and
    --stack read too. Constants that the files do not tell stay as they were, with a warning. --cluster and --stack are
    what to start from, where the files do not say it; the other fields complete logs.
    """
    output = params["output"]
    if output is not None:
        from hardware.files import expanded
        from planner.runs.calibrate.profile import check_profile

        check_profile(expanded(output))
    from planner.runs.calibrate.calibrate import calibrate as fit

    runs = {name: run for name in files if (run := _of_log(ctx, name)) is not None}
    with working("fitting constants to the measurements", params) as watched:
        others = [name for name in files if name not in runs]
        answer = fit(others, runs=tuple(runs.values()), cluster=cluster, stack=stack, **watched)
    if output is not None:
        write(answer.profile, output)
    from planner.render.terminal.calibration import render

    deliver(answer, render, params | {"output": None})
    if output is None:
        talk(params, "no profile was written; -o profile.toml writes it")


def _of_log(ctx: click.Context, name: str) -> FileRun | None:
    """The measured run of a log, completed by what the options say; None where the file is no log.

    Raises:
        BadFile: what the log and the options say makes no run.
    """
    from hardware.files import expanded
    from planner.cli.ask import gathered, still_missing
    from planner.cli.files import document_of
    from planner.jobs.assemble import kind
    from planner.jobs.reader import LogReader, job_file
    from planner.jobs.readers import READERS
    from planner.runs.schema import run_of

    path = expanded(name)
    if path.name.endswith((".jsonl.gz", ".json.gz")) or not path.is_file():
        return None
    logs = [reader for reader in READERS if isinstance(reader, LogReader)]
    if kind(job_file(path), logs) is None:
        return None
    found = files_of_side(ctx, name)
    given = gathered(ctx, found)
    if lacking := still_missing(found.job, given):
        raise BadFile(path, _lacks(lacking, alone=not ctx.params.get("source")))
    try:
        return path.name, run_of(document_of(found, given))
    except ValueError as error:
        raise BadFile(path, str(error)) from None


def _lacks(lacking: list[str], *, alone: bool) -> str:
    """What a log does not say; of a log ``alone`` that lacks much, what says most of it at once."""
    if not alone or len(lacking) < _MUCH:
        return "; ".join(lacking)
    options = ", ".join(one.rpartition("give ")[2] for one in lacking)
    return f"the log alone says too little: --from SCRIPT adds what started it; or give {options}"
