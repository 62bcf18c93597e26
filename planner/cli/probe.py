"""The command that measures the machine that it runs on."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import click

from hardware.errors import meant
from planner.cli.command import Command, option
from planner.cli.output import check_writable, write
from planner.cli.values import Text
from planner.errors import BadRequest

PROGRAM = "planner.runs.probe.measure"


@click.command("probe", cls=Command, short_help="Measure this machine, for `plan calibrate`.")
@option("--print", "printed", is_flag=True, help="Print the program, for where only PyTorch is.")
@option(
    "--only",
    type=Text(),
    metavar="NAMES",
    help="Sections, separated by commas, such as matrix,attention.",
)
@option(
    "--output",
    "-o",
    heading="Answer",
    type=Text(),
    default="probe.json",
    help="File to write, or to go on with (default: probe.json).",
)
def probe(printed: bool, only: str | None, output: str) -> None:
    """Measure products, attention, passes over memory, launches and copies of the GPU that is here, in 3 minutes.

    It needs PyTorch. `plan probe --print > measure.py` writes the program, one file that needs nothing else; for
    the links between devices start that with torchrun. `plan calibrate probe.json` makes a profile of the answer.
    """
    from planner.runs.probe.program import program
    from planner.runs.probe.records import SECTIONS

    if unknown := [name for name in (only or "").split(",") if name and name not in (*SECTIONS, "collectives")]:
        raise BadRequest(f"--only {unknown[0]:.40}: there is no such section; {meant(unknown[0], SECTIONS)}")
    if printed:
        write(program(), None)
        return
    check_writable(output, "--output")
    if find_spec("torch") is None:
        raise BadRequest(
            "plan probe needs PyTorch, which is not here; plan probe --print > measure.py, and run it where it is"
        )
    chosen = ["--only", only] if only else []
    ended = subprocess.run([sys.executable, "-m", PROGRAM, "-o", output, *chosen], check=False).returncode  # noqa: S603
    if ended:
        raise BadRequest(f"the program that measures ended with {ended}; sections that were done stand in {output}")
