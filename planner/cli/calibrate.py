"""The command that fits a cluster and a stack to one's own measurements."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from planner.cli.options import Command, Text, option, output_options
from planner.cli.output import check_writable, deliver, talk, working, write


@click.command("calibrate", cls=Command, short_help="A cluster and a stack from one's own measurements.")
@click.argument("files", nargs=-1, required=True, type=Text(), metavar="FILE...")
@option(
    "--cluster", heading="Question", metavar="NAME|FILE", help="Machines to start from (default: as the files say)."
)
@option("--stack", heading="Question", metavar="NAME|FILE", help="Framework to start from (default: as the runs say).")
@output_options("table", "json")
def calibrate(
    files: tuple[str, ...],
    cluster: str | None,
    stack: str | None,
    **params: Any,
) -> None:
    """Fit constants to training runs (JSON lines), answers of plan probe, nccl-tests and timed products (CSV).

    The report goes to stdout; --output names the profile, one TOML file for `plan --profile FILE`, which --cluster and
    --stack read too. Constants that the files do not tell stay as they were, with a warning.
    """
    output = params["output"]
    check_writable(output)
    if output is not None:
        from hardware.files import expanded
        from planner.runs.calibrate.profile import check_profile

        check_profile(expanded(output))
    from planner.runs.calibrate.calibrate import calibrate as fit

    with working("fitting", quiet=params["quiet"]):
        answer = fit(files, cluster=cluster, stack=stack)
    if output is not None:
        write(answer.profile, output)
    from planner.render.terminal.calibration import render

    document = partial(answer.model_dump_json, indent=2, by_alias=True)
    deliver(document, lambda console: render(answer, console), params | {"output": None})
    if output is None:
        talk("no profile was written; -o profile.toml writes it", params)
