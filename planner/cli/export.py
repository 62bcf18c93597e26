"""The command that writes what a framework or a launcher reads: export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.command import Command, option
from planner.cli.ending import write_error
from planner.cli.input import answer_in
from planner.cli.options import output_options
from planner.cli.output import talk, write
from planner.cli.values import Text
from planner.errors import BadRequest

if TYPE_CHECKING:
    from planner.answer.plan import Plan
    from planner.jobs.job import Export


@click.command("export", cls=Command, short_help="A plan as the files that start it.")
@click.argument("answer", type=Text(), metavar="PLAN")
@option("--to", "target", metavar="NAME", required=True, help="`plan list exporters` shows them.")
@option("--target-version", metavar="VERSION", help="Version of the target (default: the first listed).")
@option("--force", heading="Answer", is_flag=True, help="Overwrite files that are there.")
@output_options(takes="DIR", written="Write the files there; without it the first one goes to stdout.")
def export(answer: str, target: str, **params: Any) -> None:
    """Write a plan for a framework or a launcher; refuse what it cannot express, with what it can.

    PLAN is what `plan --format json` wrote, or - for stdin.
    """
    folder = _folder(params["output"])
    plan = answer_in(answer, quiet=params["quiet"])
    made = _exported(plan, target, params["target_version"])
    if folder is None:
        first, *others = made.files
        write(made.files[first], None)
        if others:
            talk(params, f"--output DIR also writes {', '.join(others)}")
    else:
        _write_all(made, folder, params)
    talk(params, *made.remarks)


def _folder(output: str | None) -> Path | None:
    """The folder, which is made where its parent exists."""
    if output is None:
        return None
    from hardware.files import expanded

    path = expanded(output)
    if path.exists() and not path.is_dir():
        raise BadRequest(f"--output: {output} is a file; name a folder")
    if not path.parent.is_dir():
        raise BadRequest(f"--output: there is no folder {path.parent}")
    return path


def _exported(plan: Plan, target: str, version: str | None) -> Export:
    from planner.jobs.job import Inexpressible
    from planner.jobs.nearest import nearest_expressible
    from planner.jobs.registry import export as to
    from planner.jobs.registry import target as known

    try:
        return to(plan, target, version=version)
    except Inexpressible as error:
        raise BadRequest(f"{error}{nearest_expressible(plan, known(target).name)}") from None


def _write_all(made: Export, folder: Path, params: dict[str, Any]) -> None:
    """Every file whole or not at all; none is written where one stands in the way and --force is not said."""
    if in_the_way := [name for name in made.files if (folder / name).exists() and not params["force"]]:
        raise BadRequest(f"--output: {folder / in_the_way[0]} exists; --force overwrites it")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise write_error("--output", folder, error) from None
    for name, text in made.files.items():
        write(text, str(folder / name))
    talk(params, f"wrote {', '.join(str(folder / name) for name in made.files)}")
