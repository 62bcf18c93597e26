"""The command that fits a cluster and a stack to one's own measurements."""

from __future__ import annotations

from typing import Any

import click

from planner.cli.options import Command, Text, field_option, output_options
from planner.cli.output import deliver, talk, working, write


@click.command("calibrate", cls=Command, short_help="A cluster and a stack from one's own measurements.")
@click.argument("files", type=Text(), nargs=-1, required=True, metavar="FILE...")
@field_option("cluster", help="Machines to start from (default: as the files say).")
@field_option("stack", help="Framework to start from (default: as the runs say).")
@output_options("table", "json")
def calibrate(files: tuple[str, ...], cluster: str | None, stack: str | None, **params: Any) -> None:
    """Fit constants to training runs (JSON lines), answers of plan probe, nccl-tests and timed products (CSV).

    The report goes to stdout; --output names the profile, one TOML file for `plan --profile FILE`, which --cluster and
    --stack read too. Constants that the files do not tell stay as they were, with a warning.
    """
    output = params["output"]
    if output is not None:
        from hardware.files import expanded
        from planner.runs.calibrate.profile import check_profile

        check_profile(expanded(output))
    from planner.runs.calibrate.calibrate import calibrate as fit

    with working("fitting", params):
        answer = fit(files, cluster=cluster, stack=stack)
    if output is not None:
        write(answer.profile, output)
    from planner.render.terminal.calibration import render

    deliver(answer, render, params | {"output": None})
    if output is None:
        talk(params, "no profile was written; -o profile.toml writes it")
